package quarantine

import (
	"testing"
	"testing/synctest"

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
