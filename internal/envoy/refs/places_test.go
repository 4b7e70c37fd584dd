package refs

import (
	"maps"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
)

func TestPlaces(t *testing.T) {
	aggregate, err := anypb.New(&aggregatev3.ClusterConfig{Clusters: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	to := func(cluster string) *routev3.Route {
		return &routev3.Route{Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}}
	}
	for _, tt := range []struct {
		name string
		m    proto.Message
		want []string
	}{
		{"the first place of each reference", &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v", Routes: []*routev3.Route{to("a"), to("b"), to("a")}}}},
			[]string{"CDS a virtual_hosts[0].routes[0].route.cluster", "CDS b virtual_hosts[0].routes[1].route.cluster"}},
		{"an assignment", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}},
			[]string{"EDS c eds_cluster_config"}},
		{"items of a list, in an Any", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "x", TypedConfig: aggregate}}},
			[]string{"CDS a cluster_type.typed_config.clusters[0]", "CDS b cluster_type.typed_config.clusters[1]"}},
		{"a reverse tunnel", listening("rc://n:c:t@remote:1"), []string{"CDS remote additional_addresses[0].address.socket_address.address"}},
		{"references to all resources", &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v", Routes: []*routev3.Route{{Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "x"}}}}}}}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for ref, path := range maps.All(Places(envoy.Envoy(), apitest.Dynamic(t, tt.m))) {
				got = append(got, ref.Type.String()+" "+ref.Name+" "+path)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
