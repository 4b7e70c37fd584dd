package relay_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// An upstream that adds and removes resources without end must not fill the store with held removals.
func TestCrowdedStoreHoldsNoRemovals(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shown int
		after time.Duration
	}{
		{"SAFE-14 above the limit, removals are passed on at once", 4 * 3 << 10, 0},
		{"SAFE-14 below the limit, removals are held back", 1 << 20, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, delta bool) {
				up := newUpstream(t)
				up.set(xds.Cluster, "a", "b", "c")
				up.content(xds.Route, "to:a", "r")
				w := relayWith(t, up, "", delta, nil, func(o *relay.Options) { o.Shown = tt.shown })
				c := xdstest.Delta(t, xdstest.Serve(t, server.New(w.src), grpc.WaitForHandlers(true)))
				c.Subscribe(xds.Cluster, "*")
				c.Await(xds.Cluster, "a", "b", "c")
				c.Subscribe(xds.Route, "r")
				c.Await(xds.Route, "r")
				time.Sleep(time.Second)
				up.set(xds.Cluster, "b", "c")
				takes(t, tt.after, func() { c.Await(xds.Cluster, "b", "c") }) // r refers to a
				up.set(xds.Cluster, "b", "c", "d")
				c.Await(xds.Cluster, "b", "c", "d")
				up.set(xds.Cluster)
				takes(t, tt.after, func() { c.Await(xds.Cluster) })
				up.set(xds.Cluster, "a")
				c.Await(xds.Cluster, "a")
				up.set(xds.Cluster)
				takes(t, 5*time.Second, func() { c.Await(xds.Cluster) }) // there is memory again
			})
		})
	}
}

// The events of a large response are applied in parts.
func TestStopDuringLargeResponse(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		up := newUpstream(t)
		names := make([]string, 5000)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		up.set(xds.Cluster, names...)
		var applied atomic.Int32
		stop := make(chan func(), 1)
		w := relayWith(t, up, "", delta, nil, func(o *relay.Options) {
			o.Refs = func(*xds.Resource) []xds.Ref {
				if applied.Add(1) == 1 {
					go (<-stop)()
					time.Sleep(time.Second)
				}
				return []xds.Ref{}
			}
		})
		stop <- w.stop
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := applied.Load(); n == 0 || n > 1000 {
			t.Errorf("SAFE-14 %d resources are applied after a stop", n)
		}
	})
}
