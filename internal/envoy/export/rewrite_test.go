package export

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	on_demandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/xds"
)

// paths returns the text of every ConfigSource in a file, in order. JSON shows the nesting.
func paths(t *testing.T, file string) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(file), &v); err != nil {
		t.Fatal(err)
	}
	var all []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, v := range v {
				walk(v)
			}
		case map[string]any:
			for _, kind := range []string{"ads", "self", "api_config_source"} {
				if _, ok := v[kind]; ok {
					all = append(all, kind)
				}
			}
			if p, ok := v["path_config_source"].(map[string]any); ok {
				s := p["path"].(string)
				if w, ok := p["watched_directory"].(map[string]any); ok {
					s += " in " + w["path"].(string)
				}
				if v["resource_api_version"] != "V3" {
					s += " of no version"
				}
				all = append(all, s)
			}
			for _, v := range v {
				walk(v)
			}
		}
	}
	walk(v)
	slices.Sort(all)
	return all
}

func tls(t *testing.T, configs ...*tlsv3.SdsSecretConfig) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(t,
		&tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: configs}})}}
}

func TestConfigSources(t *testing.T) {
	self := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3}
	api := func(typ corev3.ApiConfigSource_ApiType) *corev3.ConfigSource {
		return &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{ApiType: typ, ClusterNames: []string{"xds"}}},
			InitialFetchTimeout:   durationpb.New(1e9),
		}
	}
	theirs := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: "/theirs"}}, ResourceApiVersion: corev3.ApiVersion_V3}
	with := func(source *corev3.ConfigSource) *clusterv3.Cluster {
		c := eds("c")
		c.EdsClusterConfig.EdsConfig = source
		return c
	}
	filter := func(name string, source *corev3.ConfigSource) *hcmv3.HttpFilter {
		return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: source}}}
	}
	service := eds("c")
	service.EdsClusterConfig.ServiceName = "a/b"
	secure := &clusterv3.Cluster{Name: "c", TransportSocket: tls(t, &tlsv3.SdsSecretConfig{Name: "cert", SdsConfig: ads()}, &tlsv3.SdsSecretConfig{Name: "bootstrap"})}
	downstream := listener(t, "l", &hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{filter("jwt", ads()), filter("lua", theirs)}})
	downstream.FilterChains[0].TransportSocket = tls(t, &tlsv3.SdsSecretConfig{Name: "cert", SdsConfig: self})
	scoped := listener(t, "l", &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		RdsConfigSource: ads(), ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: ads()}}}}})

	for _, tt := range []struct {
		name, file string
		m          proto.Message
		want       []string
	}{
		{"EDS from ads", "cds", with(ads()), []string{"/x/current/eds/c.json in /x"}},
		{"EDS from self", "cds", with(self), []string{"/x/current/eds/c.json in /x"}},
		{"EDS from gRPC", "cds", with(api(corev3.ApiConfigSource_GRPC)), []string{"/x/current/eds/c.json in /x"}},
		{"EDS from REST", "cds", with(api(corev3.ApiConfigSource_REST)), []string{"/x/current/eds/c.json in /x"}},
		{"EDS from a file", "cds", with(theirs), []string{"/theirs"}},
		{"EDS by its service name", "cds", service, []string{"/x/current/eds/a%2fb.json in /x"}},
		{"the load reporting server is unchanged", "cds", &clusterv3.Cluster{Name: "c", LrsServer: self}, []string{"self"}},
		{"RDS", "lds", rds(t, "l", "Local"), []string{"/x/current/rds/%4cocal.json in /x"}},
		{"SDS inside a typed_config", "cds", secure, []string{"/x/current/sds/cert.json in /x"}},
		{"ECDS and SDS in a listener", "lds", downstream, []string{"/theirs", "/x/current/ecds/jwt.json in /x", "/x/current/sds/cert.json in /x"}},
		{"SRDS; scopes have their routes in them", "lds", scoped, []string{"/x/current/srds.json in /x"}},
		{"a source deep inside an extension", "ecds/e", &corev3.TypedExtensionConfig{Name: "e", TypedConfig: packed(t, packed(t, secure))}, []string{"/x/current/sds/cert.json in /x"}},
	} {
		t.Run("FILE-4 "+tt.name, func(t *testing.T) {
			was := proto.CloneOf(tt.m)
			s := open(t, t.TempDir(), Options{Format: formats[1], Prefix: "/x"})
			s.export(resourceList{tt.m})
			if got := paths(t, s.read()[tt.file+".json"]); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q in\n%s", got, tt.want, s.read()[tt.file+".json"])
			}
			if !proto.Equal(was, tt.m) {
				t.Error("the original resource was changed")
			}
			// Every referenced resource has a file.
			for _, p := range tt.want {
				if p, ours := strings.CutPrefix(p, "/x/current/"); ours && s.read()[strings.TrimSuffix(p, " in /x")] == "" {
					t.Errorf("no file %s", p)
				}
			}
			kept := open(t, t.TempDir(), Options{Format: formats[3], KeepSources: true})
			kept.export(resourceList{tt.m})
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(tt.m)
			if err != nil {
				t.Fatal(err)
			}
			if got := kept.read(); !strings.Contains(got[tt.file+".pb"], string(want)) || got["_bootstrap.json"] != "" {
				t.Error("--keep-config-sources changed something")
			}
		})
	}

	t.Run("FILE-4 other fields of a ConfigSource stay", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		s.export(resourceList{with(api(corev3.ApiConfigSource_GRPC))})
		if got := s.read()["cds.yaml"]; !strings.Contains(got, `initial_fetch_timeout: "1s"`) {
			t.Error(got)
		}
	})

	t.Run("FILE-4 warnings name the sources that cannot be files", func(t *testing.T) {
		odcds := listener(t, "l", &hcmv3.HttpConnectionManager{HttpFilters: []*hcmv3.HttpFilter{{Name: "f",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &on_demandv3.OnDemand{Odcds: &on_demandv3.OnDemandCds{Source: ads()}})}}}})
		fcds := &listenerv3.Listener{Name: "m", FcdsConfig: &listenerv3.Listener_FcdsConfig{Name: "f", ConfigSource: ads()}}
		unnamed := rds(t, "n", "")
		s := open(t, t.TempDir(), Options{})
		want := []string{
			`LDS "l": filter_chains[0].filters[0].typed_config.http_filters[0].typed_config.odcds: source is unchanged: Envoy cannot read it from a file`,
			`LDS "m": fcds_config: config_source is unchanged: Envoy cannot read it from a file`,
			`LDS "n": filter_chains[0].filters[0].typed_config.rds: config_source is unchanged: Envoy cannot read it from a file`,
		}
		if r := s.export(resourceList{odcds, fcds, unnamed}); !slices.Equal(r.Warnings, want) {
			t.Errorf("%q", r.Warnings)
		}
	})
}

// Resources that Envoy cannot read from files become part of the resource that refers to them.
func TestFoldedResources(t *testing.T) {
	vhds := func(name string) *routev3.RouteConfiguration {
		r := routes(name)
		r.Vhds = &routev3.Vhds{ConfigSource: ads()}
		return r
	}
	t.Run("FILE-4 virtual hosts", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		view := resourceList{vhds("r"), named{host("b"), "r/b.example"}, named{host("a"), "r/a.example"}, named{host("c"), "other/c.example"}, named{host("d"), "r/x/d.example"}}.view(t)
		if _, err := s.Export(t.Context(), view); err != nil {
			t.Fatal(err)
		}
		got := s.read()["rds/r.yaml"]
		if want := []string{"all", "a", "b"}; !slices.Equal(after(got, "  - name: "), want) || strings.Contains(got, "vhds") {
			t.Errorf("want virtual hosts %q:\n%s", want, got)
		}
		// The route configuration itself is unchanged.
		view[xds.VirtualHost.URL] = resourceList{named{host("e"), "r/e.example"}}.view(t).Table(xds.VirtualHost)
		if r, err := s.Export(t.Context(), view); r.Written != 1 || err != nil {
			t.Errorf("export after virtual hosts changed: %+v %v", r, err)
		}
		if now := s.read()["rds/r.yaml"]; !strings.Contains(now, "name: e\n") || after(now, "version_info: ")[0] == after(got, "version_info: ")[0] {
			t.Errorf("before:\n%s\nafter:\n%s", got, now)
		}
	})

	t.Run("FILE-4 resources on demand, and resources with a TTL", func(t *testing.T) {
		view := resourceList{vhds("r"), named{host("b"), "r/b.example"}, eds("c"), assignment("c", 1)}.view(t)
		for url, table := range view.All() {
			for r := range table.All() {
				lazy := xds.NewResource(r.Type, r.Name, r.Body)
				lazy.OnDemand, lazy.TTL = true, time.Minute
				lazy.Seal("")
				view[url] = with(table, []*xds.Resource{lazy})
			}
		}
		s := open(t, t.TempDir(), Options{})
		r, err := s.Export(t.Context(), view)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.read(); len(after(got["rds/r.yaml"], "  - name: b")) != 1 || len(after(got["cds.yaml"], "  name: c")) != 1 || len(after(got["eds/c.yaml"], "  cluster_name: c")) != 1 {
			t.Errorf("%q", got)
		}
		if want := `CDS "c" has a TTL, which files do not support: in the export it never expires`; !slices.Contains(r.Warnings, want) || len(r.Warnings) != 3 {
			t.Errorf("%q", r.Warnings)
		}
	})

	t.Run("FILE-4 routes of scopes, with their virtual hosts", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		r := s.export(resourceList{
			&routev3.ScopedRouteConfiguration{Name: "1", RouteConfigurationName: "r"},
			&routev3.ScopedRouteConfiguration{Name: "2", RouteConfigurationName: "none"},
			&routev3.ScopedRouteConfiguration{Name: "3", RouteConfiguration: routes("inside")},
			vhds("r"), named{host("b"), "r/b.example"},
		})
		got := s.read()["srds.yaml"]
		if want := []string{"r", "none", "inside"}; !slices.Equal(after(got, "    name: "), want) || strings.Contains(got, "route_configuration_name") {
			t.Errorf("want routes %q:\n%s", want, got)
		}
		if want := []string{"all", "b", "all"}; !slices.Equal(after(got, "    - name: "), want) {
			t.Errorf("want virtual hosts %q:\n%s", want, got)
		}
		if want := []string{`SRDS "2": refers to RDS "none", which does not exist`}; !slices.Equal(r.Warnings, want) {
			t.Errorf("%q", r.Warnings)
		}
	})

	t.Run("FILE-4 endpoints of localities", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		a := &endpointv3.ClusterLoadAssignment{ClusterName: "c", Endpoints: []*endpointv3.LocalityLbEndpoints{{LbConfig: &endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig{
			LedsClusterLocalityConfig: &endpointv3.LedsClusterLocalityConfig{LedsConfig: ads(), LedsCollectionName: "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/c/*"}}}}}
		s.export(resourceList{a, named{endpoint(2), "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/c/2"}, named{endpoint(1), "xdstp://a/envoy.config.endpoint.v3.LbEndpoint/c/1"}})
		got := s.read()["eds/c.yaml"]
		if want := []string{"1", "2"}; !slices.Equal(after(got, "            port_value: "), want) || strings.Contains(got, "leds") {
			t.Errorf("want endpoints %q:\n%s", want, got)
		}
	})
}

// after returns the rest of each line that begins with a prefix.
func after(file, prefix string) (all []string) {
	for line := range strings.Lines(file) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			all = append(all, strings.TrimSpace(rest))
		}
	}
	return all
}
