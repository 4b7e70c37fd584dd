package relay_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// removing is a client with a route to a cluster, which the upstream removes then.
func removing(t *testing.T, delta bool) (*upstream, *world, *xdstest.Client) {
	up := newUpstream(t)
	up.content(xds.Cluster, "to:e", "a", "b")
	up.set(xds.Endpoint, "e", "f")
	up.content(xds.Route, "to:a", "r")
	w := relayOf(t, up, "", delta, nil)
	c := xdstest.Delta(t, w.conn)
	c.Subscribe(xds.Cluster, "*")
	c.Await(xds.Cluster, "a", "b")
	c.Subscribe(xds.Endpoint, "e", "f")
	c.Await(xds.Endpoint, "e", "f")
	c.Subscribe(xds.Route, "r")
	c.Await(xds.Route, "r")
	time.Sleep(time.Second)
	up.content(xds.Cluster, "to:e", "b")
	synctest.Wait()
	return up, w, c
}

// ADS-3: an upstream that removes a cluster before it changes the routes to it costs no requests:
// that waits for these, and goes behind them.
func TestRemovalBeforeRoutes(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up, _, c := removing(t, delta)
		time.Sleep(2 * time.Second)
		c.ExpectNothing()
		up.content(xds.Route, "to:b", "r")
		r := c.Next(xds.Route)
		c.ExpectNothing() // the client has not accepted it yet
		c.ACK(r)
		takes(t, 0, func() { c.Await(xds.Cluster, "b") })
	})
}

// What nothing refers to goes at once, and what something refers to after 5 s.
func TestRemovalGoes(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up, _, c := removing(t, delta)
		up.content(xds.Cluster, "to:e", "b", "c")
		c.Await(xds.Cluster, "a", "b", "c")
		up.content(xds.Cluster, "to:e", "b")
		takes(t, 0, func() { c.Await(xds.Cluster, "a", "b") })
		takes(t, 5*time.Second, func() { c.Await(xds.Cluster, "b") })
	})
}

// What has come back is there for all, and has 5 s when it goes again.
func TestRemovalTakenBack(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up, _, c := removing(t, delta)
		time.Sleep(4 * time.Second)
		up.content(xds.Cluster, "to:e", "a", "b")
		time.Sleep(4 * time.Second)
		up.content(xds.Cluster, "to:e", "b")
		time.Sleep(4*time.Second - 100*time.Millisecond)
		c.ExpectNothing() // which takes a tenth of a second
		takes(t, time.Second, func() { c.Await(xds.Cluster, "b") })
	})
}

// SAFE-10: an upstream that is lost between the two takes nothing away.
func TestRemovalAndLost(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up, w, c := removing(t, delta)
		up.stop()
		time.Sleep(time.Hour)
		c.ExpectNothing()
		up.start()
		up.content(xds.Cluster, "to:e", "b")
		up.set(xds.Endpoint, "e", "f")
		up.content(xds.Route, "to:b", "r")
		time.Sleep(3 * time.Minute)
		if w.streams() != 1 {
			t.Fatal("the relay does not come back")
		}
		c.Await(xds.Route, "r")
		c.Await(xds.Cluster, "b")
	})
}

// What is kept keeps what it refers to.
func TestRemovalOfBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, _, c := removing(t, true)
		up.content(xds.Cluster, "to:f", "b") // and of what is kept none but a needs e
		up.set(xds.Endpoint, "f")
		c.ACK(c.Next(xds.Cluster))
		warms := c.Next(xds.Endpoint)
		if len(warms.Removed) > 0 {
			t.Errorf("%v", warms)
		}
		c.ACK(warms)
		time.Sleep(time.Second)
		c.ExpectNothing()
		up.content(xds.Route, "to:b", "r")
		c.ACK(c.Next(xds.Route))
		takes(t, 0, func() { c.Await(xds.Cluster, "b") })
		r := c.Next(xds.Endpoint)
		if len(r.Removed) != 1 || r.Removed[0] != "e" {
			t.Errorf("%v", r)
		}
	})
}
