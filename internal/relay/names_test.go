package relay_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// SAFE-10: emptiness is confirmed for the whole time after the upstream is back. The time while it was
// away does not count.
func TestEmptinessIsConfirmedAnewAfterLoss(t *testing.T) {
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
		up.start()
		up.set(xds.Endpoint)
		for w.streams() == 0 {
			time.Sleep(time.Millisecond)
		}
		start := time.Now()
		c.Await(xds.Endpoint)
		if d := time.Since(start); d < 4990*time.Millisecond {
			t.Errorf("the client gets %v after the upstream is back", d)
		}
	})
}

// SAFE-1: the number of unwanted names that stay requested is limited.
func TestLingeringIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := relayWith(t, newUpstream(t), "", true, nil, func(*relay.Options) {})
		watch := watchOf(t, w)
		names := make([]string, 10_005)
		for i := range names {
			names[i] = fmt.Sprint("e", i)
		}
		watch.Interested(xds.Endpoint, false, names, nil)
		synctest.Wait()
		if n := len(dumped(w.cl, xds.Endpoint)); n != len(names) {
			t.Errorf("%d names are asked for", n)
		}
		watch.Close()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(dumped(w.cl, xds.Endpoint)); n != 10_000 {
			t.Errorf("%d unwanted names are requested", n)
		}
	})
}

// NAME-2: a name is requested once, whatever the order of its context parameters.
func TestContextParametersInAnyOrder(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		const of = "xdstp:///envoy.config.endpoint.v3.ClusterLoadAssignment/e"
		up := newUpstream(t)
		up.set(xds.Endpoint, of+"?a=1&b=2")
		w := relayWith(t, up, "", delta, nil, func(*relay.Options) {})
		watch := watchOf(t, w)
		watch.Interested(xds.Endpoint, false, []string{of + "?b=2&a=1"}, nil)
		synctest.Wait()
		if v, _, err := watch.Next(); err != nil || v.Table(xds.Endpoint).Lookup(of+"?a=1&b=2") == nil {
			t.Errorf("%v, %v", v, err)
		}
		if got := dumped(w.cl, xds.Endpoint); len(got) != 1 {
			t.Errorf("%q are asked for", got)
		}
	})
}

// SAFE-10: a complete collection does not make the type known.
func TestCollectionDoesNotMakeTypeKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const of = "xdstp:///envoy.config.endpoint.v3.ClusterLoadAssignment/"
		up := newUpstream(t)
		up.set(xds.Endpoint, of+"e", "other")
		w := relayOf(t, up, "", true, nil)
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Endpoint, of+"*")
		c.Await(xds.Endpoint, of+"e")
		up.stop()
		time.Sleep(time.Second)
		all := xdstest.Delta(t, w.conn)
		all.Subscribe(xds.Endpoint, "*")
		time.Sleep(time.Minute)
		all.ExpectNothing()
	})
}

// A name that cannot be requested does not exist: clients wait neither for it nor for the names requested
// with it.
func TestInvalidNameDoesNotExist(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Listener, "a")
		w := relayOf(t, up, "", delta, nil)
		c := xdstest.SotW(t, w.conn)
		c.Subscribe(xds.Listener, "a", "xdstp://nobody/envoy.config.listener.v3.Listener/b")
		c.Await(xds.Listener, "a")
	})
}

// A stream that has only asked for changes still learns that an empty type is known.
func TestEmptyTypeBecomesKnownWithoutChanges(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		w := relayWith(t, up, "", delta, nil, func(*relay.Options) {})
		watch := watchOf(t, w)
		watch.Interested(xds.Listener, true, nil, nil)
		watch.Interested(xds.Endpoint, false, []string{"e"}, nil)
		if v, _, _ := watch.Next(); !v.(xds.Undecided).Undecided(xds.Listener, "*") {
			t.Error("the absence of listeners is known at once")
		}
		up.set(xds.Endpoint, "e")
		time.Sleep(10 * time.Second)
		v, names, err := watch.Next()
		if names != nil || err != nil || v.(xds.Undecided).Undecided(xds.Listener, "*") || v.Table(xds.Endpoint).Lookup("e") == nil {
			t.Errorf("it hears of %v, and has %v; %v", names, v, err)
		}
	})
}

// SAFE-1: the number of remembered unusable names is limited.
func TestUnusableIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(t)
		names := make([]string, 1005)
		for i := range names {
			names[i] = fmt.Sprint("e", i)
		}
		up.set(xds.Endpoint, names...)
		w := relayOf(t, up, "", true, func(*xds.Resource) error { return errors.New("it is bad") })
		c := xdstest.Delta(t, w.conn)
		c.Subscribe(xds.Endpoint, "*")
		synctest.Wait()
		if n := w.src.Unusable(xds.Endpoint); n != 1000 {
			t.Errorf("%d names are known", n)
		}
	})
}

// A type that becomes known between a stream's look and its request wakes the stream.
func TestTypeKnownBeforeRequestWakesStream(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		up.set(xds.Cluster, "a")
		w := relayWith(t, up, "", delta, nil, func(*relay.Options) {})
		watch := watchOf(t, w)
		time.Sleep(time.Second)
		if _, _, err := watch.Next(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-watch.C():
		default:
		}
		time.Sleep(10 * time.Second) // the absence of listeners is confirmed, which is not a commit
		watch.Interested(xds.Listener, true, nil, nil)
		select {
		case <-watch.C():
		default:
			t.Fatal("the watch is not signalled")
		}
		if v, _, _ := watch.Next(); v.(xds.Undecided).Undecided(xds.Listener, xds.Wildcard) {
			t.Error("the absence of listeners is not known")
		}
	})
}
