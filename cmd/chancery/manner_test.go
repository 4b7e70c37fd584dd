package main

import (
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

func TestServerOptionFlags(t *testing.T) {
	files := []string{
		"a.yaml", cluster("a"),
		"ttl.yaml", `"@type": type.googleapis.com/envoy.service.discovery.v3.Resource` + "\nname: rt\nttl: 60s\n" +
			`resource: {"@type": type.googleapis.com/envoy.service.runtime.v3.Runtime, name: rt}` + "\n",
	}
	for name, flags := range map[string][]string{
		"default": nil, "all": {"--legacy-v2", "--resource-errors", "--force-ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, on := slices.Clip(files), len(flags) > 0
			if on {
				files = append(files, "old.yaml", `"@type": type.googleapis.com/envoy.api.v2.Cluster`+"\nname: old\nconnect_timeout: 1s\n")
			}
			d := serve(t, flags, files...)

			t.Run("TYP-6 --legacy-v2", func(t *testing.T) {
				var r discoveryv3.DiscoveryResponse // of v2, which is the same on the wire
				err := d.conn.Invoke(d.ctx, "/envoy.api.v2.ClusterDiscoveryService/FetchClusters", &discoveryv3.DiscoveryRequest{}, &r)
				if !on {
					if status.Code(err) != codes.Unimplemented {
						t.Error(err)
					}
					return
				}
				if err != nil || len(r.Resources) != 1 || r.TypeUrl != xds.Cluster.Legacy().URL {
					t.Error(&r, err)
				}
			})
			ask := func(typ *xds.Type, names ...string) *discoveryv3.DeltaDiscoveryResponse {
				t.Helper()
				s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).DeltaAggregatedResources(d.ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL, ResourceNamesSubscribe: names}); err != nil {
					t.Fatal(err)
				}
				r, err := s.Recv()
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			t.Run("DELTA-7 --resource-errors", func(t *testing.T) {
				if r := ask(xds.Endpoint, "none"); (len(r.ResourceErrors) == 1) != on || len(r.RemovedResources) != 1 {
					t.Error(r)
				}
			})
			t.Run("TTL-6 --force-ttl", func(t *testing.T) {
				if r := ask(xds.Runtime, "rt"); (r.Resources[0].Ttl.AsDuration() == time.Minute) != on {
					t.Error(r)
				}
			})
		})
	}
	t.Run("ADS-3 --removal-grace", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--removal-grace", "2s"}, "a.yaml", cluster("a"), "b.yaml", cluster("b"), "r.yaml", routeTo("b"))
		s := d.clusters()
		s.gets("a", "b")
		write(t, d.dir, "r.yaml", routeTo("a"))
		write(t, d.dir, "b.yaml", cluster("c"))
		start := time.Now()
		s.gets("a", "b", "c")
		s.gets("a", "c")
		if waited := time.Since(start); waited < 2*time.Second {
			t.Errorf("a cluster was withdrawn after %v", waited)
		}
	})
}
