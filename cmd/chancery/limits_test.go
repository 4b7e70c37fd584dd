package main

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// Each flag reaches what it limits.
func TestLimitFlags(t *testing.T) {
	t.Parallel()
	d := serve(t, []string{
		"--max-streams", "2", "--max-request", "5000", "--max-node", "1000", "--max-types", "2", "--max-names", "3",
		"--max-name-length", "200", "--max-held", "500",
	}, "a.yaml", cluster("a"))
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn)
	open := func(t *testing.T, reqs ...*discoveryv3.DiscoveryRequest) error {
		t.Helper()
		s, err := ads.StreamAggregatedResources(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reqs {
			if s.Send(r) != nil {
				break
			}
		}
		for {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
	}
	of := func(typ *xds.Type, names ...string) *discoveryv3.DiscoveryRequest {
		return &discoveryv3.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: names}
	}
	for name, c := range map[string]struct {
		says string
		reqs []*discoveryv3.DiscoveryRequest
	}{
		"--max-request":     {"larger than max", []*discoveryv3.DiscoveryRequest{{TypeUrl: xds.Cluster.URL, VersionInfo: strings.Repeat("v", 5000)}}},
		"--max-node":        {"more than 1000", []*discoveryv3.DiscoveryRequest{{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Cluster: strings.Repeat("v", 1000)}}}},
		"--max-types":       {"more than 2 resource types", []*discoveryv3.DiscoveryRequest{of(xds.Cluster), of(xds.Listener), of(xds.Route, "r")}},
		"--max-names":       {"more than 3", []*discoveryv3.DiscoveryRequest{of(xds.Endpoint, "a", "b", "c", "d")}},
		"--max-name-length": {"more than 200", []*discoveryv3.DiscoveryRequest{of(xds.Endpoint, strings.Repeat("a", 201))}},
		"--max-held": {"more than 500", []*discoveryv3.DiscoveryRequest{
			of(xds.Endpoint, strings.Repeat("a", 150), strings.Repeat("b", 150)), of(xds.Route, strings.Repeat("r", 150)),
		}},
	} {
		t.Run("SAFE-1 "+name, func(t *testing.T) {
			if err := open(t, c.reqs...); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), c.says) {
				t.Errorf("told %v", err)
			}
		})
	}
	t.Run("SAFE-1 --max-streams", func(t *testing.T) {
		for range 2 {
			d.clusters().gets("a")
		}
		if err := open(t, of(xds.Cluster)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "2 streams are open") {
			t.Errorf("told %v", err)
		}
	})
	if line := d.logged("client was refused: its stream ends"); !strings.HasPrefix(fmt.Sprint(line["peer"]), "127.0.0.1:") || line["code"] != "ResourceExhausted" {
		t.Error(line)
	}
}
