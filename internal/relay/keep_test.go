package relay_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// removing is a client with a route to a cluster that the upstream then removes.
func removing(t *testing.T, delta bool) (*upstream, *testRelay, *xdstest.Client) {
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

// ADS-3: if the upstream removes a cluster before it changes the routes to it, no request fails: the
// removal waits for the routes.
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

// An unreferenced resource is removed at once, and a referenced one after 5 s.
func TestUnreferencedRemovalIsPassedOn(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up, _, c := removing(t, delta)
		up.content(xds.Cluster, "to:e", "b", "c")
		c.Await(xds.Cluster, "a", "b", "c")
		up.content(xds.Cluster, "to:e", "b")
		takes(t, 0, func() { c.Await(xds.Cluster, "a", "b") })
		takes(t, 5*time.Second, func() { c.Await(xds.Cluster, "b") })
	})
}

// A resource that came back is there for all, and has 5 s when it is removed again.
func TestRemovalTakenBack(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up, _, c := removing(t, delta)
		time.Sleep(4 * time.Second)
		up.content(xds.Cluster, "to:e", "a", "b")
		time.Sleep(4 * time.Second)
		up.content(xds.Cluster, "to:e", "b")
		time.Sleep(4*time.Second - 100*time.Millisecond)
		c.ExpectNothing() // within a tenth of a second
		takes(t, time.Second, func() { c.Await(xds.Cluster, "b") })
	})
}

// SAFE-10: an upstream that is lost between the two removes nothing.
func TestRemovalAndLostUpstream(t *testing.T) {
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

// A kept resource keeps what it refers to.
func TestKeptResourceKeepsItsReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, _, c := removing(t, true)
		up.content(xds.Cluster, "to:f", "b") // of the kept clusters, only a needs e
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
