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
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	ondemandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/cert_selectors/on_demand_secret/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// sourcesOf returns all sources in a message, with their paths.
func sourcesOf(m proto.Message) string {
	var got []string
	Edit(envoy.Envoy(), m, func(m protoreflect.Message, at Path) bool {
		for _, s := range Sources(m) {
			where := strings.TrimPrefix(at.String()+"."+string(s.Field), ".")
			if s.Config.Descriptor().FullName() != configSource {
				where += ", a " + string(s.Config.Descriptor().Name())
			}
			if s.Type == nil {
				got = append(got, "unknown @ "+where)
				continue
			}
			got = append(got, fmt.Sprint(s.Type, " ", s.Name, " @ ", where))
		}
		return false
	})
	return strings.Join(got, ", ")
}

func TestSources(t *testing.T) {
	scoped := func(r *hcmv3.ScopedRoutes) proto.Message {
		return &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: r}}
	}
	for _, tt := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"EDS by the cluster's name", eds("c", "", ads), "EDS c @ eds_cluster_config"},
		{"EDS by service name", eds("c", "s", ads), "EDS s @ eds_cluster_config"},
		{"EDS from a file", eds("c", "s", file), ""},
		{"EDS without a source", eds("c", "s", nil), ""},
		{"EDS settings of a cluster of another type", &clusterv3.Cluster{Name: "c", EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads}}, ""},
		{"a load reporting server", &clusterv3.Cluster{Name: "c", LrsServer: ads}, ""},
		{"RDS in a listener", hcm(t, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: ads, RouteConfigName: "r"}}}), "RDS r @ filter_chains[0].filters[0].typed_config.rds.config_source"},
		{"secrets in a transport socket", &clusterv3.Cluster{TransportSocket: tls(t,
			&tlsv3.SdsSecretConfig{Name: "served", SdsConfig: ads},
			&tlsv3.SdsSecretConfig{Name: "bootstrap"},
			&tlsv3.SdsSecretConfig{Name: "file", SdsConfig: file})},
			"SDS served @ transport_socket.typed_config.common_tls_context.tls_certificate_sds_secret_configs[0].sds_config"},
		{"a filter", &hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{
			{Name: "file", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: file}}},
			{Name: "ecds", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads}}}}},
			"ECDS ecds @ http_filters[1].config_discovery"},
		{"a filter of a route's map", &routev3.Route{TypedPerFilterConfig: map[string]*anypb.Any{"f": packed(t, &hcmv3.HttpFilter{
			Name: "ecds", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: ads}}})}},
			`ECDS ecds @ typed_per_filter_config["f"].config_discovery`},
		{"scoped RDS fetches all scopes", scoped(&hcmv3.ScopedRoutes{ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: ads}}}),
			"SRDS * @ scoped_routes.scoped_rds.scoped_rds_config_source"},
		{"the routes of scopes have many names", scoped(&hcmv3.ScopedRoutes{RdsConfigSource: ads}), "unknown @ scoped_routes.rds_config_source"},
		{"virtual hosts", &routev3.RouteConfiguration{Vhds: &routev3.Vhds{ConfigSource: ads}}, "unknown @ vhds.config_source"},
		{"locality endpoints", &endpointv3.LedsClusterLocalityConfig{LedsConfig: ads}, "unknown @ leds_config"},
		{"secrets on demand have many names", &ondemandv3.Config{ConfigSource: ads, PrefetchSecretNames: []string{"s"}}, "unknown @ config_source"},
		{"filter chains", &listenerv3.Listener_FcdsConfig{Name: "f", ConfigSource: ads}, "unknown @ config_source"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := sourcesOf(tt.m); got != tt.want {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

// copyInto copies another message, possibly of generated code, into m.
func copyInto(t *testing.T, m protoreflect.Message, other proto.Message) {
	t.Helper()
	b, err := proto.Marshal(other)
	if err == nil {
		err = proto.Unmarshal(b, m.Interface())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Only changed Anys are encoded again, at any depth.
func TestEdit(t *testing.T) {
	l := hcm(t, &hcmv3.HttpConnectionManager{StatPrefix: "x", RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
		Rds: &hcmv3.Rds{ConfigSource: proto.CloneOf(ads), RouteConfigName: "r"}}})
	l.FilterChains[0].TransportSocket = tls(t, &tlsv3.SdsSecretConfig{Name: "s", SdsConfig: ads})
	was := proto.CloneOf(l)
	if Edit(envoy.Envoy(), l, func(protoreflect.Message, Path) bool { return false }) || !proto.Equal(l, was) {
		t.Error("changed without an edit")
	}
	changed := Edit(envoy.Envoy(), l, func(m protoreflect.Message, _ Path) bool {
		for _, s := range Sources(m) {
			if s.Name == "r" {
				copyInto(t, s.Config, file)
				return true
			}
		}
		return false
	})
	if got, want := sourcesOf(l), "SDS s @ filter_chains[0].transport_socket.typed_config.common_tls_context.tls_certificate_sds_secret_configs[0].sds_config"; !changed || got != want {
		t.Errorf("changed %v, sources %q, want %q", changed, got, want)
	}
	var m hcmv3.HttpConnectionManager
	if err := l.FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(&m); err != nil {
		t.Fatal(err)
	}
	if m.GetStatPrefix() != "x" || m.GetRds().GetRouteConfigName() != "r" || !proto.Equal(m.GetRds().GetConfigSource(), file) {
		t.Errorf("encoded again as %v", &m)
	}
	if !proto.Equal(l.FilterChains[0].TransportSocket, was.FilterChains[0].TransportSocket) {
		t.Error("an unrelated message was changed")
	}
}

// Every item of a list and of a map is edited, also after a changed one.
func TestEveryItemIsEdited(t *testing.T) {
	discovered := func(name string) *hcmv3.HttpFilter {
		return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: proto.CloneOf(ads)}}}
	}
	for _, m := range []proto.Message{
		&hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{discovered("a"), discovered("b"), discovered("c")}},
		&routev3.Route{TypedPerFilterConfig: map[string]*anypb.Any{"x": packed(t, discovered("a")), "y": packed(t, discovered("b")), "z": packed(t, discovered("c"))}},
	} {
		Edit(envoy.Envoy(), m, func(m protoreflect.Message, _ Path) (changed bool) {
			for _, s := range Sources(m) {
				copyInto(t, s.Config, file)
				changed = true
			}
			return changed
		})
		if left := sourcesOf(m); left != "" {
			t.Errorf("sources %q", left)
		}
	}
}

// unlisted are the sources without an entry, each with the reason.
var unlisted = map[protoreflect.FullName]string{
	"envoy.config.endpoint.v3.LedsClusterLocalityConfig.leds_config":                                 "a collection",
	"envoy.config.route.v3.Vhds.config_source":                                                       "many names",
	"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes.rds_config_source":     "many names",
	"envoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.Config.config_source": "many names",
	"envoy.extensions.filters.http.on_demand.v3.OnDemandCds.source":                                  "names that requests bring",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.OnDemand.odcds_config":                   "names that connections bring",
	"envoy.config.listener.v3.Listener.FcdsConfig.config_source":                                     "a type that xds does not list",
	"envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket.config_source":  "a type that xds does not list",
	"envoy.extensions.clusters.aggregate.v3.AggregateClusterResource.config_source":                  "a type that xds does not list",
	"envoy.extensions.filters.network.dubbo_proxy.v3.Drds.config_source":                             "a type that xds does not list",
	"envoy.extensions.filters.network.generic_proxy.v3.GenericRds.config_source":                     "a type that xds does not list",
	"envoy.extensions.filters.network.thrift_proxy.v3.Trds.config_source":                            "a type that xds does not list",
	"istio.workload.BootstrapExtension.config_source":                                                "a type that xds does not list",
}

// Every ConfigSource that a resource may contain is listed in sources or above.
func TestSourcesAreComplete(t *testing.T) {
	n := 0
	envoy.Envoy().RangeMessages(func(mt protoreflect.MessageType) bool {
		for i := range mt.Descriptor().Fields().Len() {
			f := mt.Descriptor().Fields().Get(i)
			if f.Message() == nil || !isSource(f.Message()) || strings.HasPrefix(string(f.FullName()), "envoy.config.bootstrap.") {
				continue
			}
			n++
			_, named := nameField[f.FullName()]
			_, known := sources[f.FullName()]
			_, not := unlisted[f.FullName()]
			if !named && !known && !not {
				t.Errorf("%s: which type does this source fetch?", f.FullName())
			}
			if f.IsList() || f.IsMap() {
				t.Errorf("%s: Sources looks into single fields only", f.FullName())
			}
			if not && known {
				t.Errorf("%s: listed twice", f.FullName())
			}
			delete(unlisted, f.FullName())
		}
		return true
	})
	for name := range unlisted {
		t.Errorf("%s: no such source", name)
	}
	if n < 20 {
		t.Errorf("%d sources: is the API linked?", n)
	}
}
