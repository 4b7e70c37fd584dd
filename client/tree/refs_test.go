package tree

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var ads = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}

// messages are a configuration for gRPC: an API listener, a route with weighted clusters, an aggregate
// cluster, and endpoints.
func messages(t *testing.T) map[*xds.Type][]proto.Message {
	eds := func(name string) proto.Message {
		return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: "of-" + name}}
	}
	manager := &managerv3.HttpConnectionManager{
		RouteSpecifier: &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{RouteConfigName: "r", ConfigSource: ads}},
		HttpFilters:    []*managerv3.HttpFilter{{Name: "router", ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}}},
	}
	weighted := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{
		{Name: "a", Weight: wrapperspb.UInt32(1)}, {Name: "both", Weight: wrapperspb.UInt32(2)}}}}}
	return map[*xds.Type][]proto.Message{
		xds.Listener: {&listenerv3.Listener{Name: "l", ApiListener: &listenerv3.ApiListener{ApiListener: packed(t, manager)}}},
		xds.Route: {&routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"},
			Routes: []*routev3.Route{{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}}, Action: &routev3.Route_Route{Route: weighted}}}}}}},
		xds.Cluster: {eds("a"), eds("b"), &clusterv3.Cluster{Name: "both", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: packed(t, &aggregatev3.ClusterConfig{Clusters: []string{"b", "a"}})}}}},
		xds.Endpoint: {&endpointv3.ClusterLoadAssignment{ClusterName: "of-a"}, &endpointv3.ClusterLoadAssignment{ClusterName: "of-b"}},
	}
}

// References are found in messages whose types are linked into the program.
func TestReferencesOfMessages_CLI9(t *testing.T) {
	all := messages(t)
	world(t, func(s *story) {
		for typ, list := range all {
			for _, m := range list {
				r, err := wire.NewResource(typ, "", m)
				if err != nil {
					s.t.Fatal(err)
				}
				r.Refs = nil
				s.say(typ.Short+" "+r.Name, client.Event{Kind: client.Updated, Resource: r})
			}
		}
		s.names("LDS l, RDS r, CDS a, CDS both, EDS of-a, CDS b, EDS of-b")
	})
}
