package relay_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// both runs a test for an upstream of each variant, in a bubble.
func both(t *testing.T, f func(t *testing.T, delta bool)) {
	for _, delta := range []bool{false, true} {
		name := "sotw upstream"
		if delta {
			name = "delta upstream"
		}
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, delta) }) })
	}
}

func dumped(c *client.Client, t *xds.Type) (names []string) {
	for _, s := range c.Dump() {
		if s.Type.Is(t) {
			names = append(names, s.Name)
		}
	}
	return names
}

// Many clients are one subscription upstream, which ends some time after the last of them.
func TestOneSubscription(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		up.set(xds.Endpoint, "e", "f", "g")
		w := relayOf(t, up, "", delta, nil)
		time.Sleep(2 * time.Minute) // the relay has probed the upstream
		if n := w.streams(); n != 0 || !w.src.Ready() {
			t.Fatalf("%d streams upstream before there is a client; ready: %v", n, w.src.Ready())
		}
		var clients []*xdstest.Client
		for i := range 20 {
			c := xdstest.Delta(t, w.conn)
			if i%2 == 0 {
				c = xdstest.SotW(t, w.conn)
			}
			c.Subscribe(xds.Cluster, "*")
			c.Await(xds.Cluster, "a", "b")
			c.Subscribe(xds.Endpoint, "e")
			c.Await(xds.Endpoint, "e")
			clients = append(clients, c)
		}
		if n := w.streams(); n != 1 {
			t.Errorf("%d streams upstream, want 1", n)
		}
		if got := dumped(w.cl, xds.Endpoint); !slices.Equal(got, []string{"e"}) {
			t.Errorf("asked for %v", got)
		}
		for _, c := range clients[1:] {
			c.Close()
		}
		time.Sleep(2 * time.Minute)
		if n := w.streams(); n != 1 {
			t.Errorf("%d streams upstream with a client, want 1", n)
		}
		clients[0].Close()
		time.Sleep(59 * time.Second)
		if n := w.streams(); n != 1 {
			t.Errorf("%d streams upstream within the grace time, want 1", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := w.streams(); n != 0 {
			t.Errorf("%d streams upstream without any interest", n)
		}
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a", "b")
	})
}

// Changes reach clients, and a missing name is sent when it exists.
func TestChanges(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		up.set(xds.Endpoint, "e")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a", "b")
		up.set(xds.Cluster, "b", "c")
		c.Await(xds.Cluster, "b", "c")
		c.Subscribe(xds.Endpoint, "e", "f")
		c.Await(xds.Endpoint, "e")
		up.set(xds.Endpoint, "e", "f")
		c.Await(xds.Endpoint, "e", "f")
		up.content(xds.Endpoint, "new", "e", "f")
		if r := c.Next(xds.Endpoint); len(r.Resources) != 2 {
			t.Errorf("%v", r)
		}
	})
}

// SAFE-10: a wildcard is answered only after the upstream has answered.
func TestWildcardWaitsForUpstream(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.stop()
		w := relayOf(t, up, "", delta, nil)
		sotw, inc := xdstest.SotW(t, w.conn), xdstest.Delta(t, w.conn)
		for _, c := range []*xdstest.Client{sotw, inc} {
			c.Subscribe(xds.Cluster, "*")
			c.Subscribe(xds.Endpoint, "e")
			c.ExpectNothing()
		}
		time.Sleep(10 * time.Minute)
		sotw.ExpectNothing()
		inc.ExpectNothing()
		up.start()
		up.set(xds.Cluster, "a")
		up.set(xds.Endpoint, "e")
		time.Sleep(3 * time.Minute) // it tries again
		for _, c := range []*xdstest.Client{sotw, inc} {
			c.Await(xds.Cluster, "a")
			c.Await(xds.Endpoint, "e")
		}
	})
}

// SAFE-10: the loss of the upstream removes nothing, and one that comes back empty counts after some
// seconds.
func TestEmptinessIsConfirmed(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		up.set(xds.Endpoint, "e")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a", "b")
		c.Subscribe(xds.Endpoint, "e")
		c.Await(xds.Endpoint, "e")
		up.stop()
		time.Sleep(time.Hour)
		c.ExpectNothing()

		up.start()
		up.set(xds.Cluster) // the relay knows nothing yet
		for n := 0; w.streams() == 0; n++ {
			if time.Sleep(time.Second); n > 300 {
				t.Fatal("the relay does not come back")
			}
		}
		time.Sleep(3 * time.Second)
		c.ExpectNothing()
		up.set(xds.Cluster, "a", "b")
		up.set(xds.Endpoint, "e")
		time.Sleep(time.Minute)
		c.ExpectNothing()
		up.set(xds.Cluster, "b")
		c.Await(xds.Cluster, "b")
	})
}

// An upstream that comes back empty, and has all again a little later, is not a change.
func TestShortEmptinessIsNotPassedOn(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a", "b")
		up.set(xds.Cluster)
		time.Sleep(4 * time.Second)
		up.set(xds.Cluster, "a", "b")
		time.Sleep(time.Minute)
		c.ExpectNothing()
		up.set(xds.Cluster)
		takes(t, 5*time.Second, func() { c.Await(xds.Cluster) })
	})
}

// SAFE-10: after a restart without the upstream the relay serves what the last run has stored.
func TestRestartServesFromDisk(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		dir := t.TempDir()
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		up.set(xds.Endpoint, "e")
		w := relayOf(t, up, dir, delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a", "b")
		c.Subscribe(xds.Endpoint, "e")
		c.Await(xds.Endpoint, "e")
		time.Sleep(5 * time.Second)
		up.stop()
		w.stop()
		time.Sleep(time.Minute)

		w = relayOf(t, up, dir, delta, nil)
		time.Sleep(time.Second)
		next := xdstest.Delta(t, w.conn)
		next.Resume(xds.Cluster, c)
		next.ExpectNothing() // the client has all: versions are derived from the content
		next.Resume(xds.Endpoint, c)
		next.ExpectNothing()              // though the relay has to request it first (DELTA-9)
		next.Subscribe(xds.Listener, "*") // the disk has none
		time.Sleep(10 * time.Minute)
		next.ExpectNothing()
		sotw := xdstest.SotW(t, w.conn)
		sotw.Subscribe(xds.Cluster, "*")
		sotw.Await(xds.Cluster, "a", "b")
		up.start()
		up.set(xds.Cluster, "b", "c")
		time.Sleep(3 * time.Minute)
		sotw.Await(xds.Cluster, "b", "c")
	})
}

// refuses is a check that refuses the content of a resource.
func refuses(bad *xds.Resource) func(*xds.Resource) error {
	return func(r *xds.Resource) error {
		if slices.Equal(r.Body, bad.Body) {
			return errors.New("it is bad")
		}
		return nil
	}
}

// A client's refusal is not a refusal of the relay. A resource that the relay cannot use is refused
// upstream, and the last good one stays.
func TestRefusals(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a")
		w := relayOf(t, up, "", delta, refuses(resource(xds.Cluster, "a", "bad")))
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.NACK(c.Expect(xds.Cluster, "a"), "no")
		synctest.Wait()
		if n := up.refused.n.Load(); n != 0 {
			t.Errorf("%d refusals upstream for a refusal of a client", n)
		}
		up.content(xds.Cluster, "bad", "a")
		synctest.Wait()
		if n := up.refused.n.Load(); n != 1 {
			t.Errorf("%d refusals upstream for an unusable resource, want 1", n)
		}
		c.ExpectNothing()
		up.content(xds.Cluster, "good", "a")
		c.Await(xds.Cluster, "a")
	})
}

// SAFE-10: emptiness before the loss of the upstream confirms nothing afterwards.
func TestEmptinessBeforeLossDoesNotCount(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, "a")
		up.set(xds.Cluster)
		time.Sleep(2 * time.Second)
		up.stop()
		time.Sleep(time.Hour)
		c.ExpectNothing()
		up.start()
		up.set(xds.Cluster)
		for n := 0; w.streams() == 0; n++ {
			if time.Sleep(time.Second); n > 300 {
				t.Fatal("the relay does not come back")
			}
		}
		time.Sleep(3 * time.Second)
		c.ExpectNothing()
		up.set(xds.Cluster, "a")
		time.Sleep(time.Minute)
		c.ExpectNothing()
	})
}

// The linger time of a name begins with the last stream that left.
func TestLingerBeginsWithLastStream(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Endpoint, "e")
		w := relayOf(t, up, "", delta, nil)
		for range 2 { // the stream leaves after 0 s, then another one after 40 s
			c := xdstest.Delta(t, w.conn)
			c.Subscribe(xds.Endpoint, "e")
			c.Await(xds.Endpoint, "e")
			c.Close()
			time.Sleep(40 * time.Second)
		}
		synctest.Wait()
		if got := dumped(w.cl, xds.Endpoint); !slices.Equal(got, []string{"e"}) {
			t.Errorf("40 s after the last stream %v is asked for", got)
		}
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if got := dumped(w.cl, xds.Endpoint); len(got) != 0 {
			t.Errorf("61 s after the last stream %v is asked for", got)
		}
	})
}

// SAFE-10: names on the disk do not make the type known.
func TestNamesOnDiskDoNotMakeTypeKnown(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		dir := t.TempDir()
		up := newUpstream(t)
		up.set(xds.Endpoint, "e", "f")
		w := relayOf(t, up, dir, delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Endpoint, "e")
		c.Await(xds.Endpoint, "e")
		time.Sleep(5 * time.Second)
		up.stop()
		w.stop()

		w = relayOf(t, up, dir, delta, nil)
		all, one := xdstest.SotW(t, w.conn), xdstest.Delta(t, w.conn)
		all.Subscribe(xds.Endpoint, "*")
		synctest.Wait()
		one.Subscribe(xds.Endpoint, "e")
		one.Await(xds.Endpoint, "e")
		time.Sleep(time.Minute)
		all.ExpectNothing()
	})
}

// SAFE-10: a new wildcard is not answered with what an earlier one knew.
func TestNewWildcardWaitsForUpstream(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a", "b")
		w := relayOf(t, up, "", delta, nil)
		one, all := xdstest.Delta(t, w.conn), xdstest.Delta(t, w.conn)
		one.Subscribe(xds.Cluster, "a") // so that a resource of the type stays
		one.Await(xds.Cluster, "a")
		all.Subscribe(xds.Cluster, "*")
		all.Await(xds.Cluster, "a", "b")
		all.Close()
		time.Sleep(2 * time.Minute)
		up.stop()
		time.Sleep(time.Second)
		all = xdstest.Delta(t, w.conn)
		all.Subscribe(xds.Cluster, "*")
		time.Sleep(time.Minute)
		all.ExpectNothing()
		up.start()
		up.set(xds.Cluster, "a", "b")
		time.Sleep(3 * time.Minute)
		all.Await(xds.Cluster, "a", "b")
	})
}

// An empty response is an answer, too, which a SotW client waits for.
func TestEmptyTypeIsAnswered(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.SotW(t, w.conn)
		c.Subscribe(xds.Listener, "*")
		takes(t, 5*time.Second, func() { c.Expect(xds.Listener) })
	})
}

// An empty collection is answered like a name that does not exist, but after 5 s if the whole type is empty.
func TestEmptyCollectionIsAnswered(t *testing.T) {
	const empty = "xdstp:///envoy.config.cluster.v3.Cluster/no/*"
	for _, tt := range []struct {
		name  string
		has   []string
		after time.Duration
	}{
		{"DELTA-7 the type has a resource", []string{"a"}, 0},
		{"SAFE-10 the type has no resource", nil, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, delta bool) {
				up := newUpstream(t)
				up.set(xds.Cluster, tt.has...)
				w := relayOf(t, up, "", delta, nil)
				synctest.Wait()
				c := xdstest.Delta(t, w.conn)
				c.Subscribe(xds.Cluster, empty)
				takes(t, tt.after, func() { c.ExpectRemoved(xds.Cluster, empty) })
			})
		})
	}
}

// A SotW client that requests names of a full-state type, as gRPC does for listeners, gets them when all
// are known.
func TestSotWNamesOfFullStateType(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Listener, "a", "b")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.SotW(t, w.conn)
		c.Subscribe(xds.Listener, "a")
		c.Await(xds.Listener, "a")
		c.Subscribe(xds.Listener, "b")
		c.Await(xds.Listener, "a", "b")
		up.content(xds.Listener, "new", "a", "b")
		c.ACK(c.Next(xds.Listener))
		c.ExpectNothing()
	})
}

// SAFE-10: emptiness is confirmed after a loss, though the upstream sends nothing about it then.
func TestEmptinessIsConfirmedAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Endpoint, "e")
		w := relayOf(t, up, "", true, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Endpoint, "e")
		c.Await(xds.Endpoint, "e")
		up.set(xds.Endpoint)
		time.Sleep(time.Second)
		up.stop()
		time.Sleep(time.Minute)
		c.ExpectNothing()
		up.start()
		up.set(xds.Endpoint)
		time.Sleep(5 * time.Minute)
		c.Await(xds.Endpoint)
	})
}

// SAFE-10: an unusable resource is not a removal. Clients keep the last good one until the upstream
// removes it.
func TestUnusableResourceIsNotARemoval(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.content(xds.Cluster, "bad", "a")
		w := relayOf(t, up, "", delta, refuses(resource(xds.Cluster, "a", "bad")))
		c := xdstest.SotW(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		time.Sleep(time.Minute)
		c.ExpectNothing()
		up.set(xds.Cluster)
		takes(t, 5*time.Second, func() { c.Expect(xds.Cluster) })
	})
}

// SAFE-10: only for clients of all resources of a type an unusable one means that the type is not empty. A name that
// the upstream removes is removed, also if another name is unusable.
func TestUnusableResourceDoesNotKeepOtherNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Endpoint, "a", "b")
		w := relayOf(t, up, "", true, refuses(resource(xds.Endpoint, "b", "")))
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Endpoint, "a", "b")
		c.Await(xds.Endpoint, "a")
		up.set(xds.Endpoint, "b")
		takes(t, 5*time.Second, func() { c.Await(xds.Endpoint) })
	})
}
