package relay_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// quarantineSource is a source as package quarantine uses it.
type quarantineSource struct{ *relay.Source }

func (s quarantineSource) Watch(ctx context.Context, n *xds.Node) (server.Watch, error) {
	return s.Source.Watch(ctx, n)
}

// passing is a relay that passes refusals up. The text of a client's NACK names the refused resource.
func passing(t *testing.T, up *upstream) *testRelay {
	t.Helper()
	var q *quarantine.Source
	w := relayWith(t, up, "", true, nil, func(o *relay.Options) {
		o.Refused = func() (all []relay.Refusal) {
			for _, r := range q.Refused(100) {
				all = append(all, relay.Refusal(r))
			}
			return all
		}
	})
	q = quarantine.New(quarantineSource{w.src}, quarantine.Options{
		Guilty: func(_ context.Context, _ *server.Stream, _ *xds.Type, text string) quarantine.Blame {
			name, _, _ := strings.Cut(text, ":")
			return quarantine.Blame{Names: []string{name}, Named: true}
		},
		Moved: w.src.Refused,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.conn = xdstest.Serve(t, server.New(q, server.WithObserver(q)))
	return w
}

func await(t *testing.T, w *testRelay, of ...string) *xdstest.Client {
	t.Helper()
	c := xdstest.Delta(t, w.conn)
	c.Subscribe(xds.Cluster, "*")
	c.Await(xds.Cluster, of...)
	return c
}

// A client's refusal reaches the upstream with its text, without a change of the resource. Other clients
// have the resource. When no client refuses it any more, the upstream gets an ACK.
func TestRefusalIsPassedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		w := passing(t, up)
		picky, other := await(t, w, "a", "b"), await(t, w, "a", "b")
		time.Sleep(time.Minute)
		up.content(xds.Cluster, "bad", "a", "b")
		picky.NACK(picky.Next(xds.Cluster), "a: it is bad")
		gets(t, other, "a", "bad")
		if n := len(up.refused.textsSent()); n != 0 {
			t.Fatalf("%d refusals upstream at once", n)
		}
		time.Sleep(2 * time.Second)
		gets(t, picky, "b", "bad") // the quarantine sends the client the other resources
		if got := up.refused.textsSent(); len(got) != 1 || !strings.Contains(got[0], "clients of the relay refuse it: a: it is bad") || strings.Contains(got[0], `"b"`) {
			t.Fatalf("the upstream hears %q", got)
		}
		if n := up.srv.Stats().Open; n != 1 {
			t.Errorf("%d streams upstream", n)
		}
		other.ExpectNothing()
		w.src.Refused() // without a change
		time.Sleep(10 * time.Minute)
		if n, streams := len(up.refused.textsSent()), up.srv.Stats().Streams; n != 1 || streams != 2 {
			t.Errorf("%d refusals, %d streams while nothing changes", n, streams)
		}

		picky.Close()
		time.Sleep(2 * time.Second)
		if n, streams, acks := len(up.refused.textsSent()), up.srv.Stats().Streams, up.refused.settled(); n != 1 || streams != 3 || !acks {
			t.Errorf("%d refusals, %d streams; accepted: %v, though no client refuses it", n, streams, acks)
		}
		time.Sleep(time.Minute)
		up.content(xds.Cluster, "good", "a", "b")
		gets(t, other, "a", "good")
		if n := up.srv.Stats().Streams; n != 3 {
			t.Errorf("%d streams upstream", n)
		}
	})
}

// SAFE-1: a client's text is one line of the relay's error upstream. So it blames no other resource, and
// controls no terminal.
func TestRefusalIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		w := passing(t, up)
		liar := await(t, w, "a", "b")
		time.Sleep(time.Minute)
		up.content(xds.Cluster, "bad", "a", "b")
		liar.NACK(liar.Next(xds.Cluster), "a: no\nb: it is bad\r\x1b[2J"+strings.Repeat("y", 100_000))
		time.Sleep(2 * time.Second)
		got := up.refused.textsSent()
		if len(got) != 1 || len(got[0]) > 1200 || strings.ContainsAny(got[0], "\n\r\x1b") || !strings.HasPrefix(got[0], "a: clients of the relay refuse it: a: no b: it is bad [2Jyyy") {
			t.Errorf("%.100q", got)
		}
	})
}

// A client that refuses a resource new to it gets the others: the hidden resource is decided.
func TestRefusalOfANewResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		w := passing(t, up)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.NACK(c.Next(xds.Cluster), "b: no")
		c.Await(xds.Cluster, "a")
	})
}

// A refused content that was removed and comes back is like any other: clients decide again.
func TestRefusalIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		w := passing(t, up)
		picky, other := await(t, w, "a", "b"), await(t, w, "a", "b")
		time.Sleep(time.Minute)
		up.content(xds.Cluster, "bad", "a", "b")
		picky.NACK(picky.Next(xds.Cluster), "a: it is bad")
		gets(t, picky, "b", "bad")
		gets(t, other, "a", "bad")
		time.Sleep(2 * time.Second)
		for i, more := range []string{"good", "bad"} {
			up.content(xds.Cluster, more, "a", "b")
			gets(t, picky, "a", more) // the client accepts the content now
			gets(t, other, "a", more)
			time.Sleep(time.Minute)
			if n, streams := len(up.refused.textsSent()), up.srv.Stats().Streams; n != 1 || streams != 2 {
				t.Errorf("%d: %d refusals, %d streams", i, n, streams)
			}
		}
	})
}

// A refused content that is removed and comes back before the next look is refused at once, and then
// requested again.
func TestRefusedComesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a")
		w := passing(t, up)
		picky, other := await(t, w, "a"), await(t, w, "a")
		time.Sleep(time.Minute)
		up.content(xds.Cluster, "bad", "a")
		picky.NACK(picky.Next(xds.Cluster), "a: it is bad")
		gets(t, picky, "a", "") // the earlier content
		gets(t, other, "a", "bad")
		time.Sleep(2 * time.Second)
		up.content(xds.Cluster, "good", "a")
		gets(t, picky, "a", "good")
		gets(t, other, "a", "good")
		up.content(xds.Cluster, "bad", "a")
		synctest.Wait()
		if n := len(up.refused.textsSent()); n != 2 {
			t.Errorf("%d refusals", n)
		}
		time.Sleep(time.Minute)
		gets(t, picky, "a", "bad")
		gets(t, other, "a", "bad")
		if !up.refused.settled() {
			t.Error("the upstream has not got the ACK")
		}
	})
}

// A client that alternates, and many clients that refuse, cost one stream in 30 s.
func TestRefusalsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		names := []string{"a", "b", "c", "d", "e", "f"}
		up.set(xds.Cluster, names...)
		w := passing(t, up)
		time.Sleep(2 * time.Minute)
		before := up.srv.Stats().Streams
		for _, name := range names {
			c := xdstest.Delta(t, w.conn)
			c.Subscribe(xds.Cluster, "*")
			c.NACK(c.Next(xds.Cluster), name+": no")
			time.Sleep(10 * time.Second)
			c.Close()
		}
		time.Sleep(time.Minute)
		if n := up.srv.Stats().Streams - before; n < 2 || n > 5 {
			t.Errorf("%d streams in two minutes", n)
		}
	})
}

// gets makes a client accept the next response, in which a name has the given text.
func gets(t *testing.T, c *xdstest.Client, name, more string) {
	t.Helper()
	r := c.Next(xds.Cluster)
	c.ACK(r)
	for _, of := range r.Resources {
		if of.Name == name && strings.Contains(string(of.Body), more) {
			return
		}
	}
	t.Errorf("%v, want %s with %q", r, name, more)
}
