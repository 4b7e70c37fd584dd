package refs

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
	"github.com/chancery-xds/chancery/xds"
)

var (
	ads  = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
	file = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: "x.yaml"}}}
	grpc = &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "grpc"}}}
)

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// anything is the references of a resource of unknown content.
const anything = "CDS *, SDS *, ECDS *, SRDS *, RDS *, VHDS *"

// hcm returns a listener with an HTTP connection manager.
func hcm(t *testing.T, m *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}},
	}}}
}

func eds(name, service string, source *corev3.ConfigSource) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{ServiceName: service, EdsConfig: source},
	}
}

func localities(source *corev3.ConfigSource) *endpointv3.ClusterLoadAssignment {
	leds := &endpointv3.LedsClusterLocalityConfig{LedsConfig: source, LedsCollectionName: "xdstp://a/t/x/*?b=2&a=1"}
	return &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbConfig: &endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig{LedsClusterLocalityConfig: leds},
	}}}
}

func tls(t *testing.T, configs ...*tlsv3.SdsSecretConfig) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t,
		&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: configs}})}}
}

// listening returns a listener with a second address.
func listening(address string) *listenerv3.Listener {
	return &listenerv3.Listener{Name: "l", AdditionalAddresses: []*listenerv3.AdditionalAddress{{Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: address, ResolverName: "envoy.resolvers.reverse_connection"}}}}}}
}

func to(cluster string) *routev3.Route {
	return &routev3.Route{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
	}}}
}

func routes(routes ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v", Routes: routes}}}
}

func show(refs []xds.Ref) string {
	var s []string
	for _, r := range refs {
		s = append(s, fmt.Sprint(r.Type, " ", r.Name))
	}
	return strings.Join(s, ", ")
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"static cluster", &clusterv3.Cluster{Name: "c"}, ""},
		{"a static cluster's own assignment is part of it", &clusterv3.Cluster{
			Name: "c", LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "c"}}, ""},
		{"a collection of endpoints", localities(ads), "LEDS *, LEDS xdstp://a/t/x/*?a=1&b=2"},
		{"a collection of endpoints from a file", localities(file), ""},
		{"EDS by the cluster's name", eds("c", "", ads), "EDS c"},
		{"EDS by service name", eds("c", "s", ads), "EDS s"},
		{"EDS from a file", eds("c", "s", file), "LEDS *"},
		{"EDS from a file by its path", eds("c", "s", &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Path{Path: "x.yaml"}}), "LEDS *"},
		{"EDS without a source", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}, "EDS c"},
		{"EDS by service name, without a source", eds("c", "s", nil), "EDS s"},
		{"EDS settings of a cluster of another type", &clusterv3.Cluster{Name: "c", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "s", EdsConfig: ads}}, ""},
		{"aggregate cluster", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			TypedConfig: packed(t, &aggregatev3.ClusterConfig{Clusters: []string{"b", "a"}})}}}, "CDS a, CDS b"},
		{"secrets in a transport socket", &clusterv3.Cluster{Name: "c", TransportSocket: tls(t,
			&tlsv3.SdsSecretConfig{Name: "served", SdsConfig: ads},
			&tlsv3.SdsSecretConfig{Name: "bootstrap"},
			&tlsv3.SdsSecretConfig{Name: "file", SdsConfig: file})}, "SDS served"},
		{"assignment", &endpointv3.ClusterLoadAssignment{ClusterName: "c"}, ""},
		{"RDS", hcm(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: ads, RouteConfigName: "r"}}}), "RDS r"},
		{"RDS from a file", hcm(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: file, RouteConfigName: "r"}}}), anything},
		{"inline routes", hcm(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{
			RouteConfig: routes(to("b"), to("a"), to("b"))}}), "CDS a, CDS b"},
		{"inline scoped routes", hcm(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
			RdsConfigSource: ads,
			ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRouteConfigurationsList{ScopedRouteConfigurationsList: &hcmv3.ScopedRouteConfigurationsList{
				ScopedRouteConfigurations: []*routev3.ScopedRouteConfiguration{{Name: "s", RouteConfigurationName: "r"}}}}}}}), "RDS r"},
		{"scoped RDS", hcm(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
			ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: ads}}}}}), "SRDS *"},
		{"scoped route", &routev3.ScopedRouteConfiguration{Name: "s", RouteConfigurationName: "r"}, "RDS r"},
		{"filters: discovered, from a file, in place", hcm(t, &hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{
			{Name: "ecds", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads}}},
			{Name: "file", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: file}}},
			{Name: "jwt", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &jwtv3.JwtAuthentication{Providers: map[string]*jwtv3.JwtProvider{
				"p": {JwksSourceSpecifier: &jwtv3.JwtProvider_RemoteJwks{RemoteJwks: &jwtv3.RemoteJwks{HttpUri: &corev3.HttpUri{
					HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "jwks"}}}}}}})}},
		}}), "CDS *, CDS jwks, SDS *, ECDS *, ECDS ecds, SRDS *, RDS *, VHDS *"},
		{"TCP proxy", &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{
			TypedConfig: packed(t, &tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "c"}})}}}}}}, "CDS c"},
		{"weighted TCP proxy", &tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: &tcpv3.TcpProxy_WeightedCluster{
			Clusters: []*tcpv3.TcpProxy_WeightedCluster_ClusterWeight{{Name: "b"}, {Name: "a"}}}}}, "CDS a, CDS b"},
		{"weighted clusters and mirrors", routes(&routev3.Route{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier:      &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "w"}}}},
			RequestMirrorPolicies: []*routev3.RouteAction_RequestMirrorPolicy{{Cluster: "m"}}}}}), "CDS m, CDS w"},
		{"a cluster from a header", routes(&routev3.Route{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "x-cluster"}}}}), "CDS *"},
		{"a reverse tunnel", listening("rc://node:its-cluster:tenant@remote:1"), "CDS remote"},
		{"a reverse tunnel in an unknown form", listening("rc://node:its-cluster:tenant@a:1,b:2"), "CDS *"},
		{"a reverse tunnel to a name with an @", listening("rc://node:its-cluster:tenant@a@b:1"), "CDS *"},
		{"a reverse tunnel without a cluster", listening("rc://node:its-cluster:tenant"), "CDS *"},
		{"a reverse tunnel with an empty name", listening("rc://node:its-cluster:tenant@:1"), "CDS *"},
		{"a reverse tunnel without a count", listening("rc://node:its-cluster:tenant@remote"), "CDS *"},
		{"an address", listening("127.0.0.1"), ""},
		{"virtual host", &routev3.VirtualHost{Name: "v", Routes: []*routev3.Route{to("c")}}, "CDS c"},
		{"gRPC service", &corev3.ApiConfigSource{GrpcServices: []*corev3.GrpcService{grpc}, ClusterNames: []string{"old"}}, "CDS grpc, CDS old"},
		{"an Any in an Any", &corev3.TypedExtensionConfig{Name: "e", TypedConfig: packed(t, packed(t, grpc))}, "CDS grpc"},
		{"an Any of an unknown type", &corev3.TypedExtensionConfig{Name: "e", TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/not.known", Value: []byte{1, 2}}}, anything},
		{"types in push order", &hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads, RouteConfigName: "a"}},
			HttpFilters: []*hcmv3.HttpFilter{
				{Name: "b", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads}}},
				{Name: "c", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, grpc)}}},
		}, "CDS grpc, ECDS b, RDS a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := show(Of(envoy.Envoy(), tt.m)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := show(Of(envoy.Envoy(), apitest.Dynamic(t, tt.m))); got != tt.want {
				t.Errorf("by descriptors only: got %q\nwant %q", got, tt.want)
			}
			if Of(envoy.Envoy(), tt.m) == nil {
				t.Error("nil references, which would mean unknown")
			}
		})
	}
}

func BenchmarkOf(b *testing.B) {
	var list []*routev3.Route
	for i := range 1000 {
		list = append(list, to(fmt.Sprint("c", i)))
	}
	m := routes(list...)
	b.ReportAllocs()
	for b.Loop() {
		if len(Of(envoy.Envoy(), m)) != 1000 {
			b.Fatal("missing references")
		}
	}
}
