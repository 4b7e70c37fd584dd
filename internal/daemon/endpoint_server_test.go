package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/store"
)

// The endpoints registered for a group also count for nodes of the group's lane in a rollout.
func TestRolloutLaneHasRegisteredEndpointsOfItsGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine, err := endpoints.Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		r := &endpointServer{registry: endpoints.New(engine, store.New(store.WithOverlays()), endpoints.Options{})}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go r.registry.Run(ctx)
		<-r.registry.Loaded()
		one := endpoints.Registered{ID: "a", Endpoint: endpoints.Endpoint{Address: "10.0.0.1", Port: 80}}
		if _, err := r.registry.Put(ctx, endpoints.Cluster{Group: store.DefaultGroup, Name: "backend"}, []endpoints.Registered{one}, time.Minute); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, group := range []string{store.DefaultGroup, store.DefaultGroup + groups.LaneSuffix} {
			if text, n, ok := r.registered()(group, "backend"); !ok || n != 1 || text != "registered by the admin API: 1, 1 of them with a lease" {
				t.Error(group, text, ok)
			}
		}
		if _, err := r.registry.Remove(ctx, endpoints.Cluster{Group: store.DefaultGroup, Name: "backend"}, "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if text, n, ok := r.registered()(store.DefaultGroup, "backend"); !ok || n != 0 || text != "registered by the admin API: none" {
			t.Error(text, n, ok)
		}
	})
}
