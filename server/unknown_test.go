package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// "A start on nothing […] tells no client that anything is gone: the last good is
// served, or nothing is answered." (SAFE-10)
func TestUnknownContent(t *testing.T) {
	begin := func(t *testing.T) (*world, *store.Store, *logbook) {
		st, log := store.New(), &logbook{}
		return serveFrom(t, New(st, log.at(0))), st, log
	}
	write := func(t *testing.T, st *store.Store) {
		t.Helper()
		if _, err := st.Update(func(tx *store.Tx) error {
			tx.Set(of(xds.Cluster, res("a", "1"))...)
			tx.Set(of(xds.Endpoint, res("e", "1"))...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "SAFE-10 a stream waits, and all its requests count", func(t *testing.T) {
		w, st, log := begin(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: "of before"})
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.Stats().Open != 1 || strings.Count(log.String(), "client waits: nothing is configured for its node yet") != 1 {
			t.Errorf("%+v, log %s", w.Stats(), log)
		}
		write(t, st)
		r := c.want()
		if r.TypeUrl != xds.Cluster.URL || len(r.Resources) != 1 {
			t.Errorf("got %v", r)
		}
		c.send(ack(r))
		if r := c.want(); r.TypeUrl != xds.Endpoint.URL || len(r.Resources) != 1 {
			t.Errorf("got %v", r)
		}
	})
	within(t, "SAFE-10 the client of a delta stream keeps its resources", func(t *testing.T) {
		w, st, _ := begin(t)
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, InitialResourceVersions: map[string]string{"a": res("a", "1").Version, "b": "7"}})
		synctest.Wait()
		write(t, st)
		if r := c.want(); len(r.Resources) != 0 || len(r.RemovedResources) != 1 {
			t.Errorf("got %v", r)
		}
	})
	within(t, "a client that leaves meanwhile is not counted any more", func(t *testing.T) {
		w, _, _ := begin(t)
		ctx, cancel := context.WithCancel(t.Context())
		s, err := discovery.NewAggregatedDiscoveryServiceClient(w.dial(t)).StreamAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.Stats().Open; n != 1 {
			t.Errorf("%d streams", n)
		}
		cancel()
		synctest.Wait()
		if n := w.Stats().Open; n != 0 {
			t.Errorf("%d streams", n)
		}
	})
	within(t, "SAFE-12 a drain also ends a waiting stream", func(t *testing.T) {
		w, _, _ := begin(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		synctest.Wait()
		if err := w.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.end(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
	within(t, "SAFE-10 a poll gets an error and comes again", func(t *testing.T) {
		w, st, _ := begin(t)
		req := xds.Request{Type: xds.Cluster, Names: []string{xds.Wildcard}}
		if p, err := w.Poll(t.Context(), xds.Cluster, req, Caller{}); !errors.Is(err, errNotKnown) {
			t.Fatal(p, err)
		}
		write(t, st)
		p, err := w.Poll(t.Context(), xds.Cluster, req, Caller{})
		if err != nil || !p.Ready() {
			t.Fatal(p, err)
		}
		p.Close(nil)
	})
}
