package server

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/xds"
)

func TestFetch(t *testing.T) {
	fetch := func(ctx context.Context, conn *grpc.ClientConn, typ *xds.Type, req *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, time.Duration, error) {
		var r discovery.DiscoveryResponse
		start := time.Now()
		err := conn.Invoke(ctx, "/"+typ.Service+"/"+typ.Fetch, req, &r)
		return &r, time.Since(start), err
	}
	gets := func(t *testing.T, conn *grpc.ClientConn, typ *xds.Type, req *discovery.DiscoveryRequest) *discovery.DiscoveryResponse {
		t.Helper()
		r, took, err := fetch(t.Context(), conn, typ, req)
		if err != nil || took > time.Second {
			t.Fatal(err, took)
		}
		return r
	}
	within(t, "REST-6 all resources, then the changes", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		w.set(xds.Cluster, res("a", "1"), res("b", "2"))
		r := gets(t, conn, xds.Cluster, &discovery.DiscoveryRequest{})
		if len(r.Resources) != 2 || r.VersionInfo == "" || r.TypeUrl != xds.Cluster.URL {
			t.Error(r)
		}
		req := &discovery.DiscoveryRequest{VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce, Node: &corev3.Node{Id: "n"}}
		// The call is held, and then gets the same answer again.
		again, took, err := fetch(t.Context(), conn, xds.Cluster, req)
		if err != nil || took != MaxHold || !proto.Equal(again, r) {
			t.Errorf("%v, %v after %v", again, err, took)
		}
		time.AfterFunc(10*time.Second, func() { w.set(xds.Cluster, res("c", "1")) })
		r, took, err = fetch(t.Context(), conn, xds.Cluster, req)
		if err != nil || took != 10*time.Second || len(r.Resources) != 3 {
			t.Errorf("%v, %v after %v", r, err, took)
		}
	})
	within(t, "REST-6 the client states its timeout", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		w.set(xds.Cluster, res("a", "1"))
		req := &discovery.DiscoveryRequest{VersionInfo: gets(t, conn, xds.Cluster, &discovery.DiscoveryRequest{}).VersionInfo}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if r, took, err := fetch(ctx, conn, xds.Cluster, req); err != nil || len(r.Resources) != 1 || took != 1900*time.Millisecond {
			t.Errorf("%v, %v after %v", r, err, took)
		}
		ctx = metadata.AppendToOutgoingContext(t.Context(), ExpectedTimeout, "1000")
		if r, took, err := fetch(ctx, conn, xds.Cluster, req); err != nil || len(r.Resources) != 1 || took != 900*time.Millisecond {
			t.Errorf("%v, %v after %v", r, err, took)
		}
		ctx = metadata.AppendToOutgoingContext(t.Context(), ExpectedTimeout, "soon")
		if _, _, err := fetch(ctx, conn, xds.Cluster, req); status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
	})
	within(t, "REST-6 REST-4 the client disconnects", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		w.set(xds.Cluster, res("a", "1"))
		req := &discovery.DiscoveryRequest{VersionInfo: gets(t, conn, xds.Cluster, &discovery.DiscoveryRequest{}).VersionInfo}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, func() {
			if w.Stats().Polls != 1 {
				t.Error("no poll is held")
			}
			cancel()
		})
		if _, took, err := fetch(ctx, conn, xds.Cluster, req); status.Code(err) != codes.Canceled || took != time.Second {
			t.Error(err, took)
		}
		synctest.Wait()
		if w.Stats().Polls != 0 || len(w.watches) != 0 {
			t.Errorf("open: %v, watches: %v", w.Stats(), w.watches)
		}
	})
	within(t, "REST-3 REST-6 a NACK is recorded and does not get the refused version again", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		w.set(xds.Cluster, res("bad", "1"))
		r := gets(t, conn, xds.Cluster, &discovery.DiscoveryRequest{Node: &corev3.Node{Id: "n"}})
		req := nack(r, "no good")
		req.Node = &corev3.Node{Id: "n"}
		time.AfterFunc(10*time.Second, func() { w.set(xds.Cluster, res("good", "1")) })
		if r, took, err := fetch(t.Context(), conn, xds.Cluster, req); err != nil || took != 10*time.Second || len(r.Resources) != 2 {
			t.Error(r, took, err)
		}
		if log := w.log.String(); !strings.Contains(log, "client refused a response (NACK)") || !strings.Contains(log, "no good") || !strings.Contains(log, "version="+r.VersionInfo) {
			t.Error(log)
		}
	})
	within(t, "REST-6 a server that ends answers at once", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		w.set(xds.Cluster, res("a", "1"))
		req := &discovery.DiscoveryRequest{VersionInfo: gets(t, conn, xds.Cluster, &discovery.DiscoveryRequest{}).VersionInfo}
		time.AfterFunc(time.Second, func() {
			if err := w.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if r, took, err := fetch(t.Context(), conn, xds.Cluster, req); err != nil || len(r.Resources) != 1 || took != time.Second {
			t.Error(r, err, took)
		}
		if _, _, err := fetch(t.Context(), conn, xds.Cluster, req); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
	within(t, "REST-6 REST-7 by name", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t)
		w.set(xds.Route, res("r", "1"), res("s", "1"))
		if r := gets(t, conn, xds.Route, &discovery.DiscoveryRequest{ResourceNames: []string{"r", "none"}}); len(r.Resources) != 1 {
			t.Error(r)
		}
		if r := gets(t, conn, xds.Route, &discovery.DiscoveryRequest{ResourceNames: []string{"none"}}); len(r.Resources) != 0 || r.TypeUrl != xds.Route.URL || r.VersionInfo == "" {
			t.Error(r)
		}
		big := strings.Repeat("x", 2<<20)
		w.set(xds.Endpoint, res("a", big), res("b", big))
		if r := gets(t, conn, xds.Endpoint, &discovery.DiscoveryRequest{ResourceNames: []string{"a", "b"}}); len(r.Resources) != 2 {
			t.Errorf("%d resources in the only answer", len(r.Resources))
		}
	})
	t.Run("SAFE-1 REST-6 malformed", func(t *testing.T) {
		w := serve(t)
		err := w.dial(t).Invoke(t.Context(), "/"+xds.Route.Service+"/"+xds.Route.Fetch, raw("\x0a\xff"), &discovery.DiscoveryResponse{}, rawCodec)
		if status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
	})
	t.Run("REST-6 interceptors are called", func(t *testing.T) {
		var called string
		for _, d := range newTestServer().services() {
			for _, m := range d.Methods {
				if d.ServiceName == xds.Cluster.Service {
					m.Handler(nil, t.Context(), func(m any) error { m.(*message).coded = true; return nil }, func(_ context.Context, _ any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
						called = info.FullMethod
						return nil, nil
					})
				}
			}
		}
		if want := "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"; called != want {
			t.Errorf("got %q", called)
		}
	})
}
