package server

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	reflectgrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestDrain(t *testing.T) {
	within(t, "SAFE-1 streams end one after the other", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		var all []*sotwClient
		for i := range 50 {
			c := w.sotw(t, conn)
			if i > 0 { // the first stream has not sent a request yet
				c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
				c.send(ack(c.want()))
			}
			all = append(all, c)
		}
		synctest.Wait()
		start := time.Now()
		ended := make(chan time.Duration)
		for _, c := range all {
			go func() {
				if err := c.end(); status.Code(err) != codes.Unavailable {
					t.Errorf("ended with %v", err)
				}
				ended <- time.Since(start)
			}()
		}
		done := make(chan error, 1)
		go func() { done <- w.Drain(t.Context()) }()
		synctest.Wait()

		h := healthgrpc.NewHealthClient(conn)
		if r, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil || r.Status != healthgrpc.HealthCheckResponse_NOT_SERVING {
			t.Error(r, err)
		}
		began := time.Now()
		if err := w.sotw(t, conn).end(); status.Code(err) != codes.Unavailable || time.Since(began) > 0 {
			t.Errorf("a new stream got %v after %v", err, time.Since(began))
		}
		// A stream is served until its turn to end comes.
		w.set(xds.Cluster, res("a", "1"))

		var early, late int
		for range all {
			if d := <-ended; d < 2500*time.Millisecond {
				early++
			} else if d <= 5*time.Second {
				late++
			}
		}
		if early+late != len(all) || early < 10 || late < 10 {
			t.Errorf("%d streams ended early, %d late, of %d", early, late, len(all))
		}
		err := <-done
		synctest.Wait() // a seat is free when both goroutines of its stream have ended
		if err != nil || w.Stats().Open != 0 {
			t.Error(err, w.Stats())
		}
		if err := w.Drain(t.Context()); err != nil {
			t.Errorf("drained again: %v", err)
		}
	})
	within(t, "no stream, no wait", func(t *testing.T) {
		w := serve(t)
		start := time.Now()
		if err := w.Drain(t.Context()); err != nil || time.Since(start) > 0 {
			t.Error(err, time.Since(start))
		}
	})
	within(t, "at once", func(t *testing.T) {
		w := serve(t, WithDrainTime(0))
		w.sotw(t, w.dial(t))
		synctest.Wait()
		start := time.Now()
		if err := w.Drain(t.Context()); err != nil || time.Since(start) > time.Millisecond {
			t.Error(err, time.Since(start))
		}
	})
	within(t, "patience has an end", func(t *testing.T) {
		w := serve(t, WithDrainTime(time.Hour))
		w.sotw(t, w.dial(t))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestHealth(t *testing.T) {
	w := serve(t)
	h := healthgrpc.NewHealthClient(w.dial(t))
	services := []string{"", "envoy.service.discovery.v3.AggregatedDiscoveryService"}
	for _, typ := range xds.Types() {
		services = append(services, typ.Service)
	}
	for _, s := range services {
		if r, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: s}); err != nil || r.Status != healthgrpc.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", s, r, err)
		}
	}
	for _, set := range []bool{false, true, false} {
		w.SetServing(set)
		for _, s := range services {
			r, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: s})
			if err != nil || (r.Status == healthgrpc.HealthCheckResponse_SERVING) != set {
				t.Errorf("SAFE-12 %q: %v, %v, want serving: %v", s, r, err, set)
			}
		}
	}
	if err := w.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.SetServing(true)
	if r, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil || r.Status != healthgrpc.HealthCheckResponse_NOT_SERVING {
		t.Errorf("SAFE-12 drained: %v, %v", r, err)
	}
	// The server keeps a health service that the caller has registered.
	g := grpc.NewServer(GRPCOptions()...)
	defer g.Stop()
	healthgrpc.RegisterHealthServer(g, healthgrpc.UnimplementedHealthServer{})
	if err := newTestServer().Register(g); err != nil {
		t.Error(err)
	}
}

// Tools such as grpcurl find the services and their messages.
func TestReflection(t *testing.T) {
	w := serve(t)
	c, err := reflectgrpc.NewServerReflectionClient(w.dial(t)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range xds.Types() {
		for _, r := range []*reflectgrpc.ServerReflectionRequest{
			{MessageRequest: &reflectgrpc.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: typ.Service}},
			{MessageRequest: &reflectgrpc.ServerReflectionRequest_FileByFilename{FileByFilename: w.grpc.GetServiceInfo()[typ.Service].Metadata.(string)}},
		} {
			if err := c.Send(r); err != nil {
				t.Fatal(err)
			}
			if out, err := c.Recv(); err != nil || out.GetFileDescriptorResponse() == nil {
				t.Errorf("%s: %v, %v", typ, out, err)
			}
		}
	}
}

// A gated source holds streams in the middle of a step.
type gated struct {
	*store.Store
	shut atomic.Pointer[chan struct{}] // nil: it is open
}

func (g *gated) Watch(ctx context.Context, n *xds.Node) (*gatedWatch, error) {
	w, err := g.Store.Watch(ctx, n)
	return &gatedWatch{w, g}, err
}

type gatedWatch struct {
	*store.Watch
	gate *gated
}

func (w *gatedWatch) Next() (xds.View, []xds.Names, error) {
	if shut := w.gate.shut.Load(); shut != nil {
		<-*shut
	}
	return w.Watch.Next()
}

// A notice that arrives during a step is handled after the step.
func TestDrainDuringAStep(t *testing.T) {
	within(t, "SAFE-12 a stream that works when a drain begins leaves, too", func(t *testing.T) {
		g := &gated{Store: store.New()}
		put(t, g.Store, xds.Cluster, res("a", "1"))
		w := serveFrom(t, New(g, new(logbook).at(0)))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		synctest.Wait()
		shut := make(chan struct{})
		g.shut.Store(&shut)
		put(t, g.Store, xds.Cluster, res("a", "2"))
		synctest.Wait() // the stream is in Next
		done := make(chan error, 1)
		go func() { done <- w.Drain(t.Context()) }()
		synctest.Wait()
		g.shut.Store(nil)
		close(shut)
		start := time.Now()
		c.want()
		if err := c.end(); status.Code(err) != codes.Unavailable || time.Since(start) > 10*time.Second {
			t.Errorf("ended with %v after %v", err, time.Since(start))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
