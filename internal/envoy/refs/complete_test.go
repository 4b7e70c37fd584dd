package refs

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	corexdsv3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	xdstypev3 "github.com/cncf/xds/go/xds/type/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	accessgrpcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/composite/v3"
	dfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	clustermodulev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_modules/v3"
	filtercompositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	modulev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	authzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	oauthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/oauth2/v3"
	demandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	genericv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/generic_proxy/action/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	redisv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/redis_proxy/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	sniv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_cluster/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	thriftv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/thrift_proxy/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/dns_filter/v3"
	udpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/udp/udp_proxy/v3"
	specifierluav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/router/cluster_specifiers/lua/v3"
	specifierv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/router/cluster_specifiers/matcher/v3"
	ondemandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/cert_selectors/on_demand_secret/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

var (
	other = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
		GrpcServices: []*corev3.GrpcService{grpc}}}}
	self  = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}}
	words = &structpb.Struct{Fields: map[string]*structpb.Value{"cluster": structpb.NewStringValue("c")}}
)

// The cases cover each extension point of Envoy's API, and each reference without a name.
func TestReferencesAreComplete(t *testing.T) {
	filter := func(m proto.Message) proto.Message {
		return hcm(t, &hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{{Name: "f", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, m)}}}})
	}
	network := func(m proto.Message) proto.Message {
		return &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}}}}}
	}
	custom := func(m proto.Message) *clusterv3.Cluster {
		return &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "t", TypedConfig: packed(t, m)}}}
	}
	action := func(a *routev3.RouteAction) proto.Message {
		return routes(&routev3.Route{Action: &routev3.Route_Route{Route: a}})
	}
	plugin := func(m proto.Message) proto.Message {
		return action(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_InlineClusterSpecifierPlugin{InlineClusterSpecifierPlugin: &routev3.ClusterSpecifierPlugin{
			Extension: &corev3.TypedExtensionConfig{Name: "p", TypedConfig: packed(t, m)}}}})
	}
	extension := func(a *anypb.Any) proto.Message { return &corev3.TypedExtensionConfig{Name: "e", TypedConfig: a} }
	metadata := &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"n": words}}
	opaque := &anypb.Any{TypeUrl: "type.googleapis.com/not.linked"}
	deep := packed(t, to("c"))
	for range 100 {
		deep = packed(t, deep)
	}
	many := &hcmv3.HttpConnectionManager{}
	for range 2 * maxAnyDepth {
		many.HttpFilters = append(many.HttpFilters, &hcmv3.HttpFilter{Name: "f", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})}})
	}
	younger := &routev3.RouteAction{}
	younger.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 9999, protowire.BytesType), []byte("c")))

	for _, tt := range []struct {
		name string
		m    proto.Message
		want string
	}{
		// Names in requests and connections.
		{"a route by cluster_header may refer to any cluster", action(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "h"}}), "CDS *"},
		{"a weighted cluster by header", action(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{
			Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "a"}, {ClusterHeader: "h"}}}}}), "CDS *, CDS a"},
		{"a mirror by header", action(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "a"},
			RequestMirrorPolicies: []*routev3.RouteAction_RequestMirrorPolicy{{ClusterHeader: "h"}}}), "CDS *, CDS a"},
		{"a Thrift route by header", &thriftv3.RouteAction{ClusterSpecifier: &thriftv3.RouteAction_ClusterHeader{ClusterHeader: "h"}}, "CDS *"},
		{"the name in TLS's SNI", network(&sniv3.SniCluster{}), "CDS *"},
		{"clusters on demand", filter(&demandv3.OnDemand{Odcds: &demandv3.OnDemandCds{Source: ads}}), "CDS *"},
		{"clusters on demand for a route", &routev3.Route{TypedPerFilterConfig: map[string]*anypb.Any{"d": packed(t, &demandv3.PerRouteConfig{Odcds: &demandv3.OnDemandCds{Source: ads}})}}, "CDS *"},
		{"clusters on demand of a TCP proxy", network(&tcpv3.TcpProxy{OnDemand: &tcpv3.TcpProxy_OnDemand{OdcdsConfig: ads}}), "CDS *"},
		{"secrets on demand", &ondemandv3.Config{ConfigSource: ads, PrefetchSecretNames: []string{"s"}}, "SDS *, SDS s"},
		{"filter state, from which a TCP proxy takes its cluster", network(&filterstatev3.Config{}), "CDS *"},
		{"headers that a filter sets", filter(&mutationv3.HeaderMutation{}), "CDS *"},

		// Collections.
		{"virtual hosts of a route configuration", &routev3.RouteConfiguration{Name: "r", Vhds: &routev3.Vhds{ConfigSource: ads}}, "VHDS *"},
		{"all scopes", &hcmv3.ScopedRds{ScopedRdsConfigSource: ads}, "SRDS *"},
		{"a collection of endpoints", localities(ads), "LEDS *, LEDS xdstp://a/t/x/*?a=1&b=2"},

		// Plug-ins, modules and scripts.
		{"a cluster specifier of the route configuration", action(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}}), "CDS *"},
		{"a cluster specifier in Lua", plugin(&specifierluav3.LuaConfig{DefaultCluster: "a"}), "CDS *, CDS a"},
		{"a cluster specifier that matches", plugin(&specifierv3.MatcherClusterSpecifier{ClusterMatcher: &matcherv3.Matcher{OnNoMatch: &matcherv3.Matcher_OnMatch{
			OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: &corexdsv3.TypedExtensionConfig{Name: "a", TypedConfig: packed(t, &specifierv3.ClusterAction{Cluster: "a"})}}}}}), "CDS a"},
		{"a Lua script", filter(&luav3.Lua{}), "CDS *"},
		{"a Wasm module", filter(&wasmv3.Wasm{}), "CDS *"},
		{"a dynamic module", filter(&modulev3.DynamicModuleFilter{}), "CDS *"},
		{"a dynamic module with its own configuration", filter(&modulev3.DynamicModuleFilter{FilterConfig: packed(t, wrapperspb.String("c"))}), anything},
		{"a script for a route", &routev3.Route{TypedPerFilterConfig: map[string]*anypb.Any{"lua": packed(t, &luav3.LuaPerRoute{})}}, "CDS *"},
		{"metadata of a route, which scripts read", &routev3.Route{Metadata: metadata}, "CDS *"},
		{"metadata of a virtual host", &routev3.VirtualHost{Metadata: metadata}, "CDS *"},
		{"metadata of a listener", &listenerv3.Listener{Metadata: metadata}, "CDS *"},
		{"metadata that endpoints are compared with", action(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "a"}, MetadataMatch: metadata}), "CDS a"},
		{"metadata of an endpoint", &endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{Metadata: metadata}}}}}, ""},
		{"a table of names in a file", &dnsv3.DnsFilterConfig{}, "CDS *"},
		{"an extension that is chosen by its name", &listenerv3.Filter{Name: "envoy.filters.network.sni_cluster"}, "CDS *"},

		// Content that cannot be decoded.
		{"an Any of an unknown type", extension(opaque), anything},
		{"an Any that cannot be decoded", extension(&anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.route.v3.Route", Value: []byte{255}}), anything},
		{"an Any without a type", extension(&anypb.Any{}), anything},
		{"an Any of v2", extension(&anypb.Any{TypeUrl: "type.googleapis.com/envoy.api.v2.Cluster"}), anything},
		{"deeply nested Anys", extension(deep), anything},
		{"a TypedStruct", extension(packed(t, &xdstypev3.TypedStruct{TypeUrl: "x", Value: words})), anything},
		{"a Struct", extension(packed(t, words)), anything},
		{"a StringValue", extension(packed(t, wrapperspb.String("c"))), anything},
		{"a field newer than this program", action(younger), anything},
		{"an unknown extension next to a known route", &routev3.Route{Action: to("a").Action, TypedPerFilterConfig: map[string]*anypb.Any{"x": opaque}},
			strings.Replace(anything, "CDS *", "CDS *, CDS a", 1)},

		// Resources from another server or a file, which this server does not know.
		{"routes from a file", &hcmv3.Rds{ConfigSource: file, RouteConfigName: "r"}, anything},
		{"routes from another server", &hcmv3.Rds{ConfigSource: other, RouteConfigName: "r"},
			"CDS *, CDS grpc, SDS *, ECDS *, SRDS *, RDS *, RDS r, VHDS *"},
		{"routes from the server itself", &hcmv3.Rds{ConfigSource: self, RouteConfigName: "r"}, "RDS r"},
		{"a filter from a file", &hcmv3.HttpFilter{Name: "e", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: file}}}, anything},
		{"endpoints from a file", eds("c", "s", file), "LEDS *"},
		{"endpoints from another server", eds("c", "s", other), "CDS grpc, EDS s, LEDS *"},
		{"a secret from a file", &tlsv3.SdsSecretConfig{Name: "s", SdsConfig: file}, ""},
		{"a secret from another server", &tlsv3.SdsSecretConfig{Name: "s", SdsConfig: other}, "CDS grpc, SDS s"},
		{"filter chains, a type that xds does not list", &listenerv3.Listener_FcdsConfig{Name: "f", ConfigSource: ads}, anything},
		{"Thrift routes, a type that xds does not list", &thriftv3.Trds{ConfigSource: ads, RouteConfigName: "r"}, anything},
		{"aggregate clusters, a type that xds does not list", &aggregatev3.AggregateClusterResource{ConfigSource: ads}, anything},

		// Clusters that refer to clusters.
		{"an aggregate cluster", custom(&aggregatev3.ClusterConfig{Clusters: []string{"a", "b"}}), "CDS a, CDS b"},
		{"a composite cluster", custom(&compositev3.ClusterConfig{Clusters: []*compositev3.ClusterConfig_ClusterEntry{{Name: "a"}}}), "CDS a"},
		{"a dynamic forward proxy", custom(&dfpv3.ClusterConfig{}), ""},
		{"a cluster of a module", custom(&clustermodulev3.ClusterConfig{}), "CDS *, EDS *"},
		{"a cluster of an unknown type", &clusterv3.Cluster{ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "t", TypedConfig: opaque}}},
			strings.Replace(anything, "CDS *", "CDS *, EDS *", 1)},
		{"EDS chosen as an extension", &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "envoy.cluster.eds"}},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: "s"}}, "CDS *, EDS *, EDS s"},
		{"an upstream filter of a cluster", &clusterv3.Cluster{TypedExtensionProtocolOptions: map[string]*anypb.Any{"o": packed(t, &upstreamv3.HttpProtocolOptions{HttpFilters: []*hcmv3.HttpFilter{
			{Name: "e", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads}}},
			{Name: "f", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &authzv3.ExtAuthz{Services: &authzv3.ExtAuthz_GrpcService{GrpcService: grpc}})}}}})}}, "CDS grpc, ECDS e"},
		{"a load reporting server", &clusterv3.Cluster{LrsServer: self}, ""},

		// Filters that name a cluster or a secret: exactly these references.
		{"external authorization", filter(&authzv3.ExtAuthz{Services: &authzv3.ExtAuthz_GrpcService{GrpcService: grpc}}), "CDS grpc"},
		{"rate limits", filter(&ratelimitv3.RateLimit{}), ""},
		{"OAuth", filter(&oauthv3.OAuth2{Config: &oauthv3.OAuth2Config{TokenEndpoint: &corev3.HttpUri{HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "a"}},
			Credentials: &oauthv3.OAuth2Credentials{TokenSecret: &tlsv3.SdsSecretConfig{Name: "s", SdsConfig: ads}}}}), "CDS a, SDS s"},
		{"a health check by cluster health", filter(&healthv3.HealthCheck{ClusterMinHealthyPercentages: map[string]*typev3.Percent{"a": {Value: 1}, "b": {}}}), "CDS a, CDS b"},
		{"a filter that is discovered for a request", &filtercompositev3.ExecuteFilterAction{DynamicConfig: &filtercompositev3.DynamicConfig{Name: "e",
			ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads}}}, "ECDS e"},
		{"an access log", &listenerv3.Listener{AccessLog: []*accesslogv3.AccessLog{{ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: packed(t,
			&accessgrpcv3.TcpGrpcAccessLogConfig{CommonConfig: &accessgrpcv3.CommonGrpcAccessLogConfig{GrpcService: grpc}})}}}}, "CDS grpc"},
		{"a tracer", hcm(t, &hcmv3.HttpConnectionManager{Tracing: &hcmv3.HttpConnectionManager_Tracing{Provider: &tracev3.Tracing_Http{
			ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: packed(t, &tracev3.ZipkinConfig{CollectorCluster: "a"})}}}}), "CDS a"},
		{"the router", filter(&routerv3.Router{}), ""},
		{"more filters than the nesting limit of Anys", many, ""},
		{"a route to a cluster without a name", action(&routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{}}), ""},
		{"Redis", network(&redisv3.RedisProxy{PrefixRoutes: &redisv3.RedisProxy_PrefixRoutes{CatchAllRoute: &redisv3.RedisProxy_PrefixRoutes_Route{Cluster: "a"}}}), "CDS a"},
		{"a generic proxy", &genericv3.RouteAction{ClusterSpecifier: &genericv3.RouteAction_Cluster{Cluster: "a"}}, "CDS a"},
		{"a UDP proxy that matches", network(&udpv3.UdpProxyConfig{RouteSpecifier: &udpv3.UdpProxyConfig_Matcher{Matcher: &matcherv3.Matcher{OnNoMatch: &matcherv3.Matcher_OnMatch{
			OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: &corexdsv3.TypedExtensionConfig{Name: "a", TypedConfig: packed(t, &udpv3.Route{Cluster: "a"})}}}}}}), "CDS a"},
		{"flags", &runtimev3.Runtime{Name: "r", Layer: words}, ""},
	} {
		t.Run("ADS-8 "+tt.name, func(t *testing.T) {
			refs := Of(envoy.Envoy(), tt.m)
			if got := show(refs); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			if refs == nil {
				t.Error("nil")
			}
			if got := show(Of(envoy.Envoy(), apitest.Dynamic(t, tt.m))); got != tt.want {
				t.Errorf("by descriptors only: got %q\nwant %q", got, tt.want)
			}
			compareWithWire(t, tt.m, refs)
		})
	}
}

// compareWithWire compares the references found without descriptors with those found with them. The former may
// have more, never fewer.
func compareWithWire(t *testing.T, m proto.Message, refs []xds.Ref) {
	typ, name, types := xds.Cluster, "name", []*xds.Type{xds.Cluster, xds.Secret, xds.ExtensionConfig, xds.Endpoint}
	switch m := m.(type) {
	case *clusterv3.Cluster:
		m.Name = cmp.Or(m.Name, name)
	case *endpointv3.ClusterLoadAssignment:
		m.ClusterName = cmp.Or(m.ClusterName, name)
		typ, types = xds.Endpoint, []*xds.Type{xds.LbEndpoint}
	default:
		return
	}
	r, err := wire.NewResource(typ, "", m)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		if slices.ContainsFunc(types, ref.Type.Is) && !r.MayRefer(ref.Type, ref.Name) {
			t.Errorf("wire misses %s %s: %s", ref.Type, ref.Name, show(r.Refs))
		}
	}
}
