package e2e

import (
	"context"
	"net"
	"strings"
	"testing"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// A goControlPlane is go-control-plane's server with its snapshot cache.
type goControlPlane struct {
	addr  string
	cache cache.SnapshotCache
}

func newGoControlPlane(t *testing.T, ads bool) *goControlPlane {
	t.Helper()
	g := &goControlPlane{cache: cache.NewSnapshotCache(ads, cache.IDHash{}, nil)}
	s, srv := grpc.NewServer(), server.NewServer(t.Context(), g.cache, nil)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, srv)
	clusterservice.RegisterClusterDiscoveryServiceServer(s, srv)
	endpointservice.RegisterEndpointDiscoveryServiceServer(s, srv)
	listenerservice.RegisterListenerDiscoveryServiceServer(s, srv)
	routeservice.RegisterRouteDiscoveryServiceServer(s, srv)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = l.Addr().String()
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return g
}

// set gives a world to a node.
func (g *goControlPlane) set(t *testing.T, node, version string, w world) {
	t.Helper()
	all := map[string][]types.Resource{}
	for _, m := range w {
		url := "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
		all[url] = append(all[url], m)
	}
	s, err := cache.NewSnapshot(version, all)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cache.SetSnapshot(context.Background(), node, s); err != nil {
		t.Fatal(err)
	}
}

func TestFetchFromGoControlPlane(t *testing.T) {
	t.Parallel()
	for name, args := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fetchWorld("1")
			g := newGoControlPlane(t, strings.HasSuffix(name, "ads"))
			g.set(t, "edge-1", "1", w)
			url, args := "xds://"+g.addr+"?node=edge-1", args
			fetchesAll(t, w, url, args...)
			if _, errs, code := fetches(t, append([]string{"xds://" + g.addr, "--node", "nobody", "--timeout", "1s"}, args...)...); code != 124 || !strings.Contains(errs, "no answer") {
				t.Errorf("%d %s", code, errs)
			}
			out, errs, code := fetches(t, append([]string{url, "cds", "--nack", "no", "--timeout", "1s"}, args...)...)
			if !strings.Contains(out, "nack") || code != 0 {
				t.Errorf("%d %q %q", code, out, errs)
			}

			watching := watch(t, append([]string{url}, args...)...)
			watching.sees("updated RDS ingress")
			w.set(routes("ingress", "2", "other"))
			g.set(t, "edge-1", "2", w)
			watching.sees("updated RDS ingress")
			w.drop(edsCluster("backend", 0), assignment("backend"))
			g.set(t, "edge-1", "3", w)
			watching.sees("removed CDS backend")
		})
	}
}
