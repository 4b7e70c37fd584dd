package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A counted source counts how often its streams look at the newest view: once for each step.
type counted struct {
	*store.Store
	steps atomic.Int64
}

func (c *counted) Watch(ctx context.Context, n *xds.Node) (*countedWatch, error) {
	w, err := c.Store.Watch(ctx, n)
	return &countedWatch{w, c}, err
}

type countedWatch struct {
	*store.Watch
	c *counted
}

func (w *countedWatch) Next() (xds.View, []xds.Names, error) {
	w.c.steps.Add(1)
	return w.Watch.Next()
}

// costs returns how many steps 1,000 commits cost the streams.
func (c *counted) costs(t *testing.T) int64 {
	t.Helper()
	synctest.Wait()
	before := c.steps.Load()
	for i := range 1000 {
		put(t, c.Store, xds.Cluster, res("a", fmt.Sprint(i)))
		synctest.Wait()
	}
	return c.steps.Load() - before
}

// A change does not wake a stream that could not send anything.
func TestChangesDuringWaits(t *testing.T) {
	serve := func(t *testing.T, opts ...Option) (*world, *counted) {
		c := &counted{Store: store.New()}
		put(t, c.Store, xds.Cluster, res("a", "first"))
		return serveFrom(t, New(c, append([]Option{new(logbook).at(0)}, opts...)...)), c
	}
	newest := func(t *testing.T, r *discovery.DiscoveryResponse) {
		t.Helper()
		if len(r.Resources) != 1 || string(r.Resources[0].Value) != "999" {
			t.Error(r)
		}
	}
	within(t, "SAFE-2 a stream that waits for the content is served", func(t *testing.T) {
		w, c := serve(t)
		s := w.sotw(t, w.dial(t))
		s.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		s.send(ack(s.want()))
		synctest.Wait()
		before := c.steps.Load()
		put(t, c.Store, xds.Cluster, res("a", "2"))
		synctest.Wait()
		if n := c.steps.Load() - before; n != 1 {
			t.Errorf("a commit costs %d steps", n)
		}
		s.want()
	})
	within(t, "SAFE-2 behind an unanswered response", func(t *testing.T) {
		w, c := serve(t)
		s := w.sotw(t, w.dial(t))
		s.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		r := s.want()
		if n := c.costs(t); n != 0 {
			t.Errorf("the commits cost %d steps", n)
		}
		s.send(ack(r))
		newest(t, s.want())

		// The wait ends: a client that does not answer gets the change after a while.
		start := time.Now()
		if n := c.costs(t); n != 0 {
			t.Errorf("the commits cost %d steps", n)
		}
		put(t, c.Store, xds.Cluster, res("a", "last"))
		if r := s.want(); string(r.Resources[0].Value) != "last" || time.Since(start) > 5*time.Second {
			t.Errorf("after %v %v", time.Since(start), r)
		}
	})
	within(t, "SAFE-2 behind a response that is not read", func(t *testing.T) {
		w, c := serve(t)
		put(t, c.Store, xds.Listener, res("large", strings.Repeat("x", 10<<20)))
		s := w.sotw(t, w.dial(t))
		s.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		s.send(ack(s.want()))
		s.send(&discovery.DiscoveryRequest{TypeUrl: xds.Listener.URL})
		synctest.Wait()
		put(t, c.Store, xds.Cluster, res("a", "next")) // gRPC takes one response that is too large for the client's window, and blocks the next
		if n := c.costs(t); n != 0 {
			t.Errorf("the commits cost %d steps", n)
		}
		s.send(ack(s.want()))
		s.send(ack(s.want()))
		newest(t, s.want())
	})
	within(t, "SAFE-2 before its turn", func(t *testing.T) {
		w, c := serve(t, WithLimits(Limits{FirstAnswers: 1}))
		conn := w.dial(t)
		first := w.sotw(t, conn)
		put(t, c.Store, xds.Listener, res("large", strings.Repeat("x", 10<<20)))
		first.send(&discovery.DiscoveryRequest{TypeUrl: xds.Listener.URL, ResourceNames: []string{"large"}})
		synctest.Wait()
		s := w.sotw(t, conn)
		s.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		synctest.Wait()
		if w.Stats().Waiting != 1 {
			t.Fatal(w.Stats())
		}
		if n := c.costs(t); n != 0 {
			t.Errorf("the commits cost %d steps", n)
		}
		newest(t, s.want())
	})
}
