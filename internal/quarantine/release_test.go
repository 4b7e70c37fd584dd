package quarantine

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// lastStream is an observer that keeps the last opened stream.
type lastStream struct{ st *server.Stream }

func (o *lastStream) Opened(st *server.Stream)             { o.st = st }
func (o *lastStream) Closed(*server.Stream, error)         {}
func (o *lastStream) Event(*server.Stream, protocol.Event) {}

// An operator has a client sent the refused version again. If the client accepts it, the quarantine ends.
// If not, the resource comes into quarantine again.
func TestReleaseSendsTheRefusedVersionAgain(t *testing.T) {
	within(t, func(r *fixture) {
		var o lastStream
		c := xdstest.Delta(r, xdstest.Serve(r, server.New(r.source, server.WithObserver(server.Observers(r.source, r, &o)))), node)
		r.start(c)
		r.guilty = []string{"b"}
		r.set("a", "2", "b", "bad")
		c.NACK(c.Expect(xds.Cluster, "a", "b"), "no")
		c.ACK(c.Next(xds.Cluster))
		r.holds(1)
		if n := r.source.Release(o.st, xds.Cluster, "a") + r.source.Release(o.st, xds.Listener, "") + r.source.Release(&server.Stream{}, xds.Cluster, ""); n != 0 {
			t.Errorf("%d resources are released that are not in quarantine", n)
		}
		c.ExpectNothing()
		for _, name := range []string{"b", ""} { // refused again
			if n := r.source.Release(o.st, xds.Cluster, name); n != 1 {
				t.Errorf("%d released", n)
			}
			again := c.Expect(xds.Cluster, "b")
			if !says(again, "b", "bad") {
				t.Errorf("sent %v", again)
			}
			c.NACK(again, "no")
			c.ACK(c.Next(xds.Cluster))
			r.holds(1)
		}
		r.source.Release(o.st, xds.Cluster, "b")
		c.ACK(c.Expect(xds.Cluster, "b"))
		synctest.Wait()
		r.holds(0)
		if last := r.acks[len(r.acks)-1]; last.Refuses {
			t.Error("the client counts as refusing although it has accepted the version")
		}
	})
}

// An operator releases a resource while its retry has no answer. The refusal goes on until the client accepts
// the refused version.
func TestReleaseDuringARetry(t *testing.T) {
	for _, c := range []struct {
		name   string
		again  bool // the client refuses the retry
		resend bool // the command resync first sends the resource again
	}{
		{"accepted", false, false},
		{"refused again", true, false},
		{"accepted, resync", false, true},
		{"refused again, resync", true, true},
	} {
		for _, name := range []string{"b", "new"} { // with a replacement, or without
			for variant, dial := range map[string]func(xdstest.T, grpc.ClientConnInterface, ...xdstest.Option) *xdstest.Client{"delta": xdstest.Delta, "SotW": xdstest.SotW} {
				t.Run("HEAL-5 "+variant+" "+name+" "+c.name, func(t *testing.T) {
					within(t, func(r *fixture) { releaseDuringARetry(r, dial, name, c.again, c.resend) })
				})
			}
		}
	}
}

func releaseDuringARetry(r *fixture, dial func(xdstest.T, grpc.ClientConnInterface, ...xdstest.Option) *xdstest.Client, name string, again, resend bool) {
	var o lastStream
	var count record
	srv := server.New(r.source, server.WithRetryRefused(), server.WithObserver(server.Observers(r.source, r, &o, &count)))
	c := dial(r, xdstest.Serve(r, srv), node, xdstest.WithTimeout(time.Hour))
	r.start(c)
	r.answered[node0.ID]++
	refuses := func(is bool) {
		r.Helper()
		if recovered, _ := count.counts(); (recovered == 0) != is {
			r.Errorf("%d ends of the refusal", recovered)
		}
	}
	bad := bad(name)
	r.guilty = []string{name}
	r.set(name, "bad")
	r.answer(c, "no", bad)
	retry := r.next(c)
	if resend {
		if n, err := o.st.Resend(r.Context(), xds.Cluster, name); n != 1 || err != nil {
			r.Errorf("%d sent again, %v", n, err)
		}
	}
	if n := r.source.Release(o.st, xds.Cluster, name); n != 1 {
		r.Errorf("%d released", n)
	}
	time.Sleep(time.Minute) // for some seconds the stream applies changes only with an answer
	refuses(true)
	if again {
		c.NACK(retry, "no")
		refuses(true)
		r.answer(c, "no", bad)
		refuses(true)
		r.holds(1)
		retry = r.next(c)
	}
	if !bad(retry) {
		r.Errorf("sent %v", retry)
	}
	c.ACK(retry)
	r.answer(c, "no", func(*xdstest.Response) bool { return false })
	refuses(false)
	r.holds(0)
	if r.nacks > 4 {
		r.Errorf("refused %d times", r.nacks)
	}
}
