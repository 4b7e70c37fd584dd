package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// A silentCall is a unary call without a request.
func silentCall(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string) func() error {
	t.Helper()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return func() error { return s.RecvMsg(&healthgrpc.HealthCheckResponse{}) }
}

const (
	checkMethod = "/grpc.health.v1.Health/Check"
	fetchMethod = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"
)

// "What a client can make the server hold or do is bounded per stream, per peer and in
// all, in bytes and in time, from the first byte" (SAFE-9): gRPC waits for ever for the
// request of a unary call.
func TestSilentCalls(t *testing.T) {
	within(t, "SAFE-9 a unary call on which no request comes ends", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		begin := time.Now()
		check, fetch := silentCall(t.Context(), t, conn, checkMethod), silentCall(t.Context(), t, conn, fetchMethod)
		if s := w.Stats(); s.Silent != 2 {
			t.Errorf("%d are silent", s.Silent)
		}
		for _, end := range []func() error{check, fetch} {
			if err := end(); status.Code(err) != codes.DeadlineExceeded || time.Since(begin) != 15*time.Second {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		}
		synctest.Wait()
		if s := w.Stats(); s.Silent != 0 || s.Throttled["first_request"] != 2 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-9 unary calls have seats like silent streams", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{Silent: 2}))
		crowd, good := w.dialFrom(t, "192.0.2.1"), w.dialFrom(t, "192.0.2.2")
		for range 3 { // the first silent stream of a connection is free
			silentCall(t.Context(), t, crowd, checkMethod)
		}
		if err := silentCall(t.Context(), t, crowd, fetchMethod)(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		if _, err := healthgrpc.NewHealthClient(good).Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		if s := w.Stats(); s.Silent != 3 || s.Throttled["silent_streams"] != 1 {
			t.Errorf("%+v", s)
		}
	})
	within(t, "SAFE-9 a call whose request has come is not silent", func(t *testing.T) {
		w := serve(t)
		h := healthgrpc.NewHealthClient(w.dial(t))
		for range 3 {
			if _, err := h.Check(t.Context(), &healthgrpc.HealthCheckRequest{}); err != nil {
				t.Error(err)
			}
			if n := w.Stats().Silent; n != 0 {
				t.Errorf("%d are silent", n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		silentCall(ctx, t, w.dial(t), checkMethod)
		cancel()
		synctest.Wait()
		if n := w.Stats().Silent; n != 0 {
			t.Errorf("%d ended calls count as silent", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := w.Stats().Throttled["first_request"]; n != 0 {
			t.Errorf("%d were late", n)
		}
	})
}
