package lazy_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/lazy"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// serve serves, in a bubble, clusters and virtual hosts that it takes a second
// to find: those in found, by the name that is asked for.
func serve(t *testing.T, name string, found map[string]*xds.Resource, f func(t *testing.T, conn *grpc.ClientConn, st *store.Store)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := store.New(store.WithEmptyGroups())
			src, err := lazy.New(st, func(ctx context.Context, q lazy.Query) (*xds.Resource, error) {
				time.Sleep(time.Second)
				return found[q.Name], nil
			}, []*xds.Type{xds.Cluster, xds.VirtualHost})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{}, 2)
			go func() { src.Run(ctx); done <- struct{}{} }()
			lis := bufconn.Listen(64 << 10)
			g := grpc.NewServer(append(server.GRPCOptions(), grpc.WaitForHandlers(true))...)
			if err := server.New(src).Register(g); err != nil {
				t.Fatal(err)
			}
			go func() { g.Serve(lis); done <- struct{}{} }()
			conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
			if err != nil {
				t.Fatal(err)
			}
			f(t, conn, st)
			conn.Close()
			g.Stop()
			cancel()
			<-done
			<-done
		})
	})
}

// receive returns what a stream receives, and how long that takes.
func receive[M any](t *testing.T, recv func() (M, error)) (M, time.Duration) {
	t.Helper()
	start := time.Now()
	m, err := recv()
	if err != nil {
		t.Fatal(err)
	}
	return m, time.Since(start)
}

func delta(t *testing.T, conn *grpc.ClientConn) (grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse], func(*discovery.DeltaDiscoveryRequest)) {
	t.Helper()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, func(r *discovery.DeltaDiscoveryRequest) {
		t.Helper()
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServer(t *testing.T) {
	shop := &xds.Resource{Stamp: &xds.Stamp{Name: "route/shop"}, Type: xds.VirtualHost, Body: []byte("shop"), Aliases: []string{"route/www"}}
	shop.Seal("")
	found := map[string]*xds.Resource{"a": xds.NewResource(xds.Cluster, "a", []byte("A")), "route/www": shop}

	serve(t, "OND-1 a virtual host by an alias", found, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
		s, send := delta(t, conn)
		send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.VirtualHost.URL, ResourceNamesSubscribe: []string{"route/www"}})
		r, took := receive(t, s.Recv)
		if took != time.Second || len(r.Resources) != 1 || r.Resources[0].Name != "route/shop" || string(r.Resources[0].Resource.Value) != "shop" || len(r.RemovedResources) > 0 {
			t.Errorf("after %v: %v", took, r)
		}
	})
	for agent, bodyless := range map[string]bool{"envoy": true, "other": false} {
		serve(t, "DELTA-7 a virtual host that does not exist, to "+agent, nil, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
			s, send := delta(t, conn)
			send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.VirtualHost.URL, ResourceNamesSubscribe: []string{"route/none"}, Node: &corev3.Node{UserAgentName: agent}})
			r, took := receive(t, s.Recv)
			if took != time.Second {
				t.Errorf("after %v: %v", took, r)
			}
			if bodyless && (len(r.Resources) != 1 || r.Resources[0].Resource != nil || fmt.Sprint(r.Resources[0].Aliases) != "[route/none]" || len(r.RemovedResources) > 0) ||
				!bodyless && (len(r.Resources) > 0 || fmt.Sprint(r.RemovedResources) != "[route/none]") {
				t.Error(r)
			}
		})
	}
	serve(t, "OND-2 clusters, of which one is there", found, func(t *testing.T, conn *grpc.ClientConn, st *store.Store) {
		if _, err := st.Update(func(tx *store.Tx) error { tx.Set(xds.NewResource(xds.Cluster, "static", nil)); return nil }); err != nil {
			t.Fatal(err)
		}
		s, send := delta(t, conn)
		send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{"a", "static", "none"}})
		r, took := receive(t, s.Recv)
		if took != 0 || len(r.Resources) != 1 || r.Resources[0].Name != "static" || len(r.RemovedResources) > 0 {
			t.Errorf("after %v: %v", took, r)
		}
		send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
		var told []string
		for len(told) < 2 {
			r, took := receive(t, s.Recv)
			if took > time.Second {
				t.Errorf("after %v: %v", took, r)
			}
			for _, r := range r.Resources {
				told = append(told, r.Name+"="+string(r.Resource.Value))
			}
			for _, n := range r.RemovedResources {
				told = append(told, "no "+n)
			}
			send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
		}
		if got := fmt.Sprint(told); got != "[a=A no none]" && got != "[no none a=A]" {
			t.Error(got)
		}
	})
	serve(t, "SUB-6 the wildcard has nothing of it", found, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
		s, send := delta(t, conn)
		send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{"a"}})
		if r, _ := receive(t, s.Recv); len(r.Resources) != 1 {
			t.Error(r)
		}
		other, send := delta(t, conn)
		send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if r, _ := receive(t, other.Recv); len(r.Resources) != 0 {
			t.Error(r)
		}
	})
	// In a SotW response of clusters what is not there does not exist: so there
	// is none before it is known.
	serve(t, "SOTW-8 a world with a name that is being looked for", found, func(t *testing.T, conn *grpc.ClientConn, _ *store.Store) {
		s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		r, took := receive(t, s.Recv)
		if took != time.Second || len(r.Resources) != 1 || string(r.Resources[0].Value) != "A" {
			t.Errorf("after %v: %v", took, r)
		}
	})
}
