package harness

import (
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Document is a resource as the program reads it: a document of YAML, in JSON.
func Document(m proto.Message) []byte {
	b, err := protojson.Marshal(Pack(m))
	if err != nil {
		panic(err)
	}
	return append(append([]byte("---\n"), b...), '\n')
}

// EDSCluster is a cluster whose endpoints come from the assignment of the same
// name. Two with different timeouts differ in place.
func EDSCluster(name string, timeout time.Duration) *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(timeout),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ADS()},
	}
}

// Assignment has one endpoint on the loopback for each port.
func Assignment(name string, ports ...int) *endpoint.ClusterLoadAssignment {
	l := &endpoint.LocalityLbEndpoints{
		Locality:            &core.Locality{Region: "here"}, // gRPC wants one
		LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	for _, p := range ports {
		l.LbEndpoints = append(l.LbEndpoints, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
			Endpoint: &endpoint.Endpoint{Address: Loopback(p)},
		}})
	}
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{l}}
}

// Routes sends every request to the cluster, and marks the answer with the
// generation, so that traffic tells which state is in force.
func Routes(name, generation, to string) *route.RouteConfiguration {
	return &route.RouteConfiguration{
		Name: name,
		VirtualHosts: []*route.VirtualHost{{
			Name:    "all",
			Domains: []string{"*"},
			Routes: []*route.Route{{
				Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
				Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: to}}},
			}},
		}},
		ResponseHeadersToAdd: []*core.HeaderValueOption{{Header: &core.HeaderValue{Key: "x-generation", Value: generation}}},
	}
}

// HTTPListener takes its routes from RDS, and answers under the name of server.
func HTTPListener(name string, port int, routes, server string) *listener.Listener {
	m := Manager(name, routes)
	m.ServerName = server
	return &listener.Listener{
		Name:    name,
		Address: Loopback(port),
		FilterChains: []*listener.FilterChain{{
			Filters: []*listener.Filter{{
				Name:       "envoy.filters.network.http_connection_manager",
				ConfigType: &listener.Filter_TypedConfig{TypedConfig: Pack(m)},
			}},
		}},
	}
}

// Manager is the connection manager of a listener that takes its routes from RDS.
func Manager(name, routes string) *hcm.HttpConnectionManager {
	return &hcm.HttpConnectionManager{
		StatPrefix:     name,
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{RouteConfigName: routes, ConfigSource: ADS()}},
		HttpFilters: []*hcm.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: Pack(&router.Router{})},
		}},
	}
}

// ADS says that resources come by the aggregated stream.
func ADS() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

// Loopback is an address of this machine.
func Loopback(port int) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       "127.0.0.1",
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// Pack puts a message into an Any.
func Pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}
