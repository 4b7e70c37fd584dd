package server

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// "What a client can make the server hold or do is bounded per stream, per peer and in
// all, in bytes and in time, from the first byte (requests not finished, streams not
// begun, health and reflection included)." (SAFE-9)
func TestLimitsFromFirstByte(t *testing.T) {
	within(t, "SAFE-9 a stream on which no request comes ends", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		silent, said := w.sotw(t, conn), w.sotw(t, conn)
		said.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		said.send(ack(said.want()))
		begin := time.Now()
		if err := silent.end(); status.Code(err) != codes.DeadlineExceeded || time.Since(begin) != 15*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := w.Stats(); s.Open != 1 || s.Throttled["first_request"] != 1 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "reflection lists the services that were registered through it", func(t *testing.T) {
		w := serve(t)
		all, ok := w.Limited(w.grpc).(interface {
			GetServiceInfo() map[string]grpc.ServiceInfo
		})
		if !ok || len(all.GetServiceInfo()) != len(w.grpc.GetServiceInfo()) {
			t.Error("services are hidden")
		}
	})
	within(t, "SAFE-9 watches of health have a limit of their own", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Others: 2}))
		h := healthgrpc.NewHealthClient(w.dial(t))
		ctx, cancel := context.WithCancel(t.Context())
		watch := func(ctx context.Context) error {
			s, err := h.Watch(ctx, &healthgrpc.HealthCheckRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}
		for range 2 {
			if err := watch(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := watch(t.Context()); status.Code(err) != codes.ResourceExhausted || w.Stats().Throttled["other_streams"] != 1 {
			t.Errorf("%v, %+v", err, w.Stats())
		}
		if _, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Errorf("a check, which ends: %v", err)
		}
		cancel()
		synctest.Wait()
		if err := watch(t.Context()); err != nil {
			t.Errorf("after others have ended: %v", err)
		}
	})
	within(t, "SAFE-9 a crowd of health watches does not lock out others", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Others: 4}))
		watch := func(conn *grpc.ClientConn) healthgrpc.Health_WatchClient {
			s, err := healthgrpc.NewHealthClient(conn).Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return s
		}
		last := func(s healthgrpc.Health_WatchClient) error {
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		}
		crowd, other := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.2")
		var all []healthgrpc.Health_WatchClient
		for range 4 {
			all = append(all, watch(crowd))
		}
		if n := w.Stats().Others; n != 4 {
			t.Errorf("%d are counted", n)
		}
		good := watch(other)
		if r, err := good.Recv(); err != nil || r.Status != healthgrpc.HealthCheckResponse_SERVING {
			t.Error(r, err)
		}
		if err := last(all[3]); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "most of them are of this address") {
			t.Error(err)
		}
		if err := last(watch(crowd)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "4 streams of other services are open") {
			t.Error(err)
		}
		w.SetServing(false)
		if r, err := good.Recv(); err != nil || r.Status != healthgrpc.HealthCheckResponse_NOT_SERVING {
			t.Error("the good watch gets no more changes:", r, err)
		}
		if s := w.Stats(); s.Others != 4 || s.Throttled["other_streams"] != 2 || !strings.Contains(w.log.String(), "peer=192.0.2.1:1") {
			t.Errorf("%+v\n%s", s, w.log)
		}
	})
	within(t, "SAFE-9 polls that are held leave streams their room", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Streams: 1, Polls: 3}))
		w.set(xds.Cluster, res("a", "1"))
		for range 3 {
			p, err := w.Poll(t.Context(), xds.Cluster, xds.Request{Type: xds.Cluster, Names: []string{"none"}}, Caller{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(nil)
		}
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
	})
}

func TestHeldInAll(t *testing.T) {
	ask := func(c *sotwClient, names ...string) {
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names})
		synctest.Wait()
	}
	within(t, "SAFE-9 the bytes of all streams' names are limited, and the largest stream of an address ends", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{HeldInAll: 1000}))
		conn := w.dial(t)
		a, b := w.sotw(t, conn), w.sotw(t, conn)
		ask(a, "1", "2", "3")
		ask(b, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10") // each name counts its length plus 64 bytes
		if n := w.Stats().Held; n != 13*64+14 {
			t.Errorf("%d bytes are held", n)
		}
		ask(b, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13")
		if err := b.end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "the names of all streams hold more than 1000 bytes") {
			t.Error(err)
		}
		synctest.Wait()
		if n := w.Stats().Held; n != 3*64+3 {
			t.Errorf("%d bytes are held after one stream has ended", n)
		}
		a.s.CloseSend()
		a.end()
		synctest.Wait()
		if n := w.Stats().Held; n != 0 {
			t.Errorf("%d bytes are held after all streams have ended", n)
		}
	})
	within(t, "SAFE-9 an early stream that holds most bytes does not lock out others", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{HeldInAll: 1000}))
		stranger, good := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.2")
		large, small := w.sotw(t, stranger), w.sotw(t, stranger)
		ask(large, names(9)...)
		ask(small, "1")
		for range 3 { // a good client connects again and again
			c := w.sotw(t, good)
			ask(c, "1", "2", "3", "4", "5")
			if err := large.end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "most of them are of this address") {
				t.Error(err)
			}
			w.update(xds.Endpoint, []*xds.Resource{res("5", "1")}) // the good client is still served
			c.want()
			c.s.CloseSend()
			c.end()
			w.update(xds.Endpoint, nil, "5")
			large = w.sotw(t, stranger)
			ask(large, names(9)...)
		}
		ask(w.sotw(t, good), "1", "2", "3", "4", "5")
		ask(small, "1", "2") // the small stream of the stranger is still open
		if s := w.Stats(); s.Throttled["subscription"] != 4 || s.Open != 2 || !strings.Contains(w.log.String(), "peer=192.0.2.1:1") || strings.Contains(w.log.String(), "peer=192.0.2.2:1 code=ResourceExhausted") {
			t.Errorf("%+v\n%s", s, w.log)
		}
	})
}
