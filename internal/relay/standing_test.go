package relay_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("c%02d", i))
	}
	return all
}

// SAFE-10: the removal of most resources of a type counts after 5 s, like that of all. The removal of
// half, or of few, counts at once.
func TestRemovalOfMostIsConfirmed(t *testing.T) {
	for _, tt := range []struct {
		had, has int
		after    time.Duration
	}{
		{20, 9, 5 * time.Second},
		{20, 10, 0},
		{19, 1, 0},
		{40, 1, 5 * time.Second},
	} {
		t.Run(fmt.Sprint(tt.had, " to ", tt.has), func(t *testing.T) {
			both(t, func(t *testing.T, delta bool) {
				up := newUpstream(t)
				up.set(xds.Cluster, numbered(tt.had)...)
				w := relayOf(t, up, "", delta, nil)
				c := xdstest.Delta(t, w.conn)
				c.Subscribe(xds.Cluster, "*")
				c.Await(xds.Cluster, numbered(tt.had)...)
				up.set(xds.Cluster, numbered(tt.has)...)
				takes(t, tt.after, func() { c.Await(xds.Cluster, numbered(tt.has)...) })
			})
		})
	}
}

// An upstream that restarts, and reads its resources little by little with other versions, removes
// nothing.
func TestSlowRestartRemovesNothing(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, numbered(30)...)
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Cluster, "*")
		c.Await(xds.Cluster, numbered(30)...)
		up.stop()
		time.Sleep(time.Minute)
		c.ExpectNothing()
		up.start()
		up.set(xds.Cluster, numbered(2)...)
		for w.streams() == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		up.set(xds.Cluster, numbered(10)...)
		time.Sleep(2 * time.Second)
		up.set(xds.Cluster, numbered(30)...)
		time.Sleep(time.Minute)
		c.ExpectNothing()
		up.content(xds.Cluster, "new", numbered(30)...)
		if r := c.Next(xds.Cluster); len(r.Resources) != 30 {
			t.Errorf("%v", r)
		}
	})
}

// A name that is no longer requested is not removed: other clients keep it.
func TestDroppedNameIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		up.set(xds.Endpoint, numbered(40)...)
		w := relayOf(t, up, "", true, nil)
		one, many := xdstest.Delta(t, w.conn), xdstest.Delta(t, w.conn)
		one.Subscribe(xds.Endpoint, "c00", "c01")
		one.Await(xds.Endpoint, "c00", "c01")
		many.Subscribe(xds.Endpoint, numbered(40)...)
		many.Await(xds.Endpoint, numbered(40)...)
		many.Close()
		time.Sleep(61 * time.Second)
		up.set(xds.Endpoint, numbered(40)[1:]...)
		takes(t, 0, func() { one.Await(xds.Endpoint, "c01") })
	})
}
