package bootstrap

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/client"
	written "github.com/chancery-xds/chancery/internal/envoy/bootstrap"
	"github.com/chancery-xds/chancery/xds"
)

// sources describes the sources of listeners and clusters.
func sources(c *client.Config) string {
	if c == nil {
		return "nowhere"
	}
	text := servers(c.Servers)
	if c.Timeout != 0 {
		text += " within " + c.Timeout.String()
	}
	return text
}

// Envoy reads each bootstrap that `chancery bootstrap envoy` writes, with each way to reach a server.
func TestEnvoyWithWrittenBootstrap_CLI1_CLI13(t *testing.T) {
	for name, tt := range map[string]struct {
		o              written.Options
		ads, listeners string
	}{
		"ads":      {written.Options{Server: "10.0.0.1:18000"}, "insecure passthrough:///10.0.0.1:18000", "insecure passthrough:///10.0.0.1:18000"},
		"delta":    {written.Options{Server: "xds.example:18000", Delta: true}, "delta insecure dns:///xds.example:18000", "delta insecure dns:///xds.example:18000"},
		"per type": {written.Options{Server: "unix:///run/xds.sock", PerType: true}, "nowhere", "per type insecure unix:/run/xds.sock"},
		"both":     {written.Options{Server: "[::1]:1", PerType: true, Delta: true}, "nowhere", "delta per type insecure passthrough:///[::1]:1"},
		"rest":     {written.Options{Server: "xds.example:18001", REST: true}, "nowhere", "poll http://xds.example:18001 1s 31s"},
		"unix":     {written.Options{Server: "unix:///run/xds.sock", REST: true}, "nowhere", "poll http://localhost 1s 31s /run/xds.sock"},
	} {
		tt.o.Node, tt.o.Cluster = "edge-1", "edges"
		text, err := written.Envoy(tt.o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Envoy("b.json", text, (&bench{}).options())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if sources(c.ADS) != tt.ads || sources(c.Listeners) != tt.listeners || sources(c.Clusters) != tt.listeners {
			t.Errorf("%s: %s, %s, %s", name, sources(c.ADS), sources(c.Listeners), sources(c.Clusters))
		}
		if c.Node.ID != "edge-1" || c.Node.Cluster != "edges" || c.Listeners.Node != c.Node || c.ADS != nil && (c.ADS != c.Listeners || c.ADS != c.Clusters) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	text, err := written.EnvoyFiles(written.Options{Node: "edge-1"}, "/etc/lds.yaml", "/etc/cds.yaml", "/etc")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Envoy("b.json", text, (&bench{}).options())
	if err != nil || sources(c.Listeners) != "file /etc/lds.yaml in /etc" || sources(c.Clusters) != "file /etc/cds.yaml in /etc" {
		t.Error(c, err)
	}
}

const byHand = `
node: {id: edge-1, locality: {region: r, subZone: s}, metadata: {team: a}, client_features: [own]}
admin: {no one: looks here}
static_resources:
  listeners: [{name: x, filter_chains: [{filters: [{typed_config: {"@type": type.googleapis.com/acme.Unknown}}]}]}]
  clusters:
  - name: unrelated
    load_assignment: [wrong]
  - &xds
    name: xds
    type: STRICT_DNS
    typed_extension_protocol_options: {acme: {"@type": type.googleapis.com/acme.Unknown}}
    loadAssignment:
      cluster_name: xds
      endpoints:
      - {priority: 1, lb_endpoints: [{endpoint: {address: {socket_address: {address: spare, port_value: 2}}}}]}
      - {lb_endpoints: [{endpoint: {address: {socket_address: {address: main, port_value: 1}}}}, {endpoint: {address: {pipe: {path: "@abstract"}}}}]}
dynamic_resources:
  lds_resources_locator: xdstp://a/envoy.config.listener.v3.Listener/*
  ads_config:
    api_type: delta_grpc
    transport_api_version: V3
    grpc_services:
    - envoy_grpc: {cluster_name: xds, authority: own.example}
      initial_metadata: [{key: team, value: a}]
    - google_grpc: {target_uri: "dns:///last:3", stat_prefix: x}
  lds_config: {ads: {}, resource_api_version: V3, initial_fetch_timeout: 0s}
  cds_config:
    initial_fetch_timeout: 7s
    api_config_source: {api_type: AGGREGATED_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
`

// A handwritten bootstrap in YAML with several servers. Unrelated fields are ignored, also invalid
// ones.
func TestEnvoyWithHandwrittenBootstrap_CLI1_CLI10_CLI13(t *testing.T) {
	c, err := Envoy("b.yaml", []byte(byHand), (&bench{}).options())
	if err != nil {
		t.Fatal(err)
	}
	const ads = "delta insecure dns:///main:1; delta insecure unix-abstract:abstract; delta insecure dns:///spare:2; delta insecure dns:///last:3"
	if sources(c.ADS) != ads || sources(c.Listeners) != ads+" within -1ns" {
		t.Errorf("%s, %s", sources(c.ADS), sources(c.Listeners))
	}
	if want := "insecure dns:///main:1; insecure unix-abstract:abstract; insecure dns:///spare:2 within 7s"; sources(c.Clusters) != want {
		t.Errorf("%s", sources(c.Clusters))
	}
	r := c.ADS.Servers[0].Transport.(*made).remote
	if md, err := r.perRPC[0].GetRequestMetadata(t.Context()); err != nil || md["team"] != "a" || r.authority != "own.example" || r.perRPC[0].RequireTransportSecurity() {
		t.Errorf("%v %v %+v", md, err, r)
	}
	if c.ListenersLocator != "xdstp://a/envoy.config.listener.v3.Listener/*" || c.ClustersLocator != "" {
		t.Error(c.ListenersLocator, c.ClustersLocator)
	}
	if n := c.Node; n.Region != "r" || n.SubZone != "s" || len(n.Metadata) == 0 || strings.Join(n.ClientFeatures, " ") != "own xds.config.resource-in-sotw" {
		t.Errorf("%+v", n)
	}
}

// The source of an xdstp name is the peer source, or the first of config_sources with the name's
// authority, or for a locator the default.
func TestEnvoyAuthorities_CLI11_CLI13(t *testing.T) {
	api := func(target string) string {
		return "api_config_source: {api_type: AGGREGATED_GRPC, transport_api_version: V3, grpc_services: [{google_grpc: {target_uri: \"" + target + "\", stat_prefix: x}}]}"
	}
	const with = `
config_sources:
- {authorities: [{name: b}, {name: c}], ads: {}}
- {authorities: [{name: b}, {name: own}, {name: d}], %s}
`
	text := changed("lds_config: {ads: {},", "lds_config: {ads: {}, authorities: [{name: own}],") + strings.Replace(with, "%s", api("dns:///other:1"), 1)
	boot, err := Envoy("b.yaml", []byte(text), (&bench{}).options())
	if err != nil {
		t.Fatal(err)
	}
	ads := servers(boot.ADS.Servers)
	of := func(c *client.Config, name string) string {
		a, has := c.Authorities[name]
		switch {
		case !has:
			return "unknown"
		case len(a.Servers) == 0:
			return "peer"
		}
		return servers(a.Servers)
	}
	for name, want := range map[string]string{"a": "peer", "own": "peer", "b": ads, "c": ads, "d": "insecure dns:///other:1", "e": "unknown"} {
		if got := of(boot.Listeners, name); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
	if got := of(boot.Clusters, "own"); got != "insecure dns:///other:1" {
		t.Error(got) // it is own to the listeners alone
	}
	if got := of(boot.Clusters, "a"); got != "unknown" {
		t.Error(got)
	}
	text += "default_config_source: {" + api("dns:///default:1") + "}\n"
	if boot, err = Envoy("b.yaml", []byte(text), (&bench{}).options()); err != nil || of(boot.Listeners, "a") != "insecure dns:///default:1" {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{
		"config_sources: [{self: {}}]\n":                       "b.yaml: config_sources[0].self: ",
		"config_sources: [{ads: {}}, {authorities: [{}]}]\n":   "b.yaml: config_sources[1]: no source is set",
		"default_config_source: {path: \"\"}\n":                "b.yaml: default_config_source.path: is empty",
		"config_sources: {ads: {}, authorities: [{nam: x}]}\n": "config_sources[0].authorities[0]: unknown field \"nam\"",
	} {
		b := &bench{}
		_, err := Envoy("b.yaml", []byte(byHand+text), b.options())
		b.refused(t, text, err, want)
	}
}

// changed returns the bootstrap with one change.
func changed(old, new string) string { return strings.Replace(byHand, old, new, 1) }

// Each error names the file and the field, and all transports are closed.
func TestEnvoyErrors_CLI1_CLI13(t *testing.T) {
	for text, want := range map[string]string{
		"":     "b.yaml: is empty",
		"[]":   "b.yaml: a mapping is needed",
		"{":    "b.yaml:1:2: ",
		"a: [": "b.yaml:1:",
		changed("node: {id: edge-1", "node: {id: [edge-1]"):                                        "b.yaml:2:12: node.id: ",
		changed("subZone: s", "subzone: s"):                                                        `node.locality: unknown field "subzone"`,
		changed("cluster_name: xds, auth", "cluster_name: xdx, auth"):                              `b.yaml: dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name: there is no static cluster "xdx"`,
		changed("cluster_name: xds, auth", "auth"):                                                 "envoy_grpc.cluster_name: is empty",
		changed("cluster_name: xds, auth", "cluster_name: unrelated, auth"):                        "static_resources.clusters[0].load_assignment: ",
		changed("name: unrelated", "name: xds"):                                                    "b.yaml: static_resources.clusters[1].name: another cluster has this name",
		changed("type: STRICT_DNS", "type: EDS"):                                                   "b.yaml: static_resources.clusters[1].type: EDS is not supported",
		changed("address: main, port_value: 1", "address: main, port_value: 0"):                    "static_resources.clusters[1].load_assignment.endpoints[1].lb_endpoints[0].endpoint.address.socket_address.port_value: a port from 1 to 65535 is needed",
		changed("address: main, port_value: 1", "port_value: 1"):                                   "socket_address.address: is empty",
		changed(`pipe: {path: "@abstract"}`, `pipe: {}`):                                           "lb_endpoints[1].endpoint.address.pipe.path: is empty",
		changed(`pipe: {path: "@abstract"}`, `envoy_internal_address: {}`):                         "endpoint.address: a socket_address or a pipe is needed",
		changed("address: spare", "address: impossible"):                                           "b.yaml: dynamic_resources.ads_config.grpc_services[0]: no such address",
		changed("api_type: delta_grpc", "api_type: REST"):                                          "b.yaml: dynamic_resources.ads_config.api_type: REST has no aggregated form",
		changed("    api_type: delta_grpc\n", ""):                                                  "ads_config.api_type: DEPRECATED_AND_UNAVAILABLE_DO_NOT_USE is not supported",
		changed("    transport_api_version: V3\n", ""):                                             "ads_config.transport_api_version: AUTO is not supported: use V3",
		changed("resource_api_version: V3", "resource_api_version: V2"):                            "b.yaml: dynamic_resources.lds_config.resource_api_version: V2 is not supported",
		changed("lds_config: {ads: {}", "lds_config: {self: {}"):                                   "b.yaml: dynamic_resources.lds_config: self is not allowed in a bootstrap",
		changed("lds_config: {ads: {}, ", "lds_config: {"):                                         "b.yaml: dynamic_resources.lds_config: no source is set",
		changed("lds_config: {ads: {}", "lds_config: {path: ''"):                                   "b.yaml: dynamic_resources.lds_config.path: is empty",
		changed("lds_config: {ads: {}", "lds_config: {path_config_source: {}"):                     "b.yaml: dynamic_resources.lds_config.path_config_source.path: is empty",
		changed("[{key: team", "[{key: ''"):                                                        "grpc_services[0].initial_metadata[0].key: is empty",
		changed("{target_uri: \"dns:///last:3\", ", "{"):                                           "grpc_services[1].google_grpc.target_uri: is empty",
		changed("stat_prefix: x", "channel_credentials: {google_default: {}}"):                     "google_grpc.channel_credentials.google_default: none of [\"google_default\"] is supported",
		changed("stat_prefix: x", "call_credentials: [{google_compute_engine: {}}]"):               "google_grpc.call_credentials[0]: \"google_compute_engine\" is not supported",
		changed("stat_prefix: x", "credentials_factory_name: x"):                                   "google_grpc.credentials_factory_name: is not supported",
		changed("AGGREGATED_GRPC, ", "REST, "):                                                     "cds_config.api_config_source.cluster_names: at least one is needed",
		changed("AGGREGATED_GRPC, ", "REST, cluster_names: [xds], "):                               "cds_config.api_config_source.refresh_delay: must be set and positive",
		changed("type: STRICT_DNS", "type: STRICT_DNS\n    transport_socket_matches: [{name: x}]"): "static_resources.clusters[1].transport_socket_matches: is not supported",
	} {
		b := &bench{}
		c, err := Envoy("b.yaml", []byte(text), b.options())
		if b.refused(t, text, err, want); c != nil {
			t.Errorf("%s: %+v", text, c)
		}
	}
}

// CLI-13: a ConfigSource inside a resource selects the source of the child resource.
func TestNestedSources_CLI13(t *testing.T) {
	c, err := Envoy("b.yaml", []byte(byHand), (&bench{}).options())
	if err != nil {
		t.Fatal(err)
	}
	around := c.Clusters
	api := &corev3.ApiConfigSource{ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3, GrpcServices: []*corev3.GrpcService{
		{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds"}}}}}
	for name, tt := range map[string]struct {
		source *corev3.ConfigSource
		around *client.Config
		want   string
		same   *client.Config
	}{
		"ads":           {source: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}, same: c.ADS},
		"self":          {source: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{}}, around: around, same: around},
		"self, sooner":  {source: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{}, InitialFetchTimeout: durationpb.New(time.Second)}, around: around, want: servers(around.Servers) + " within 1s"},
		"self, nowhere": {source: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{}}, want: "b.yaml: rds.config_source.self: the server of the enclosing resource is unknown"},
		"path":          {source: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Path{Path: "/x.yaml"}}, want: "file /x.yaml"},
		"api":           {source: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: api}}, want: "delta per type insecure dns:///main:1; delta per type insecure unix-abstract:abstract; delta per type insecure dns:///spare:2"},
		"none":          {source: &corev3.ConfigSource{}, want: "b.yaml: rds.config_source: no source is set: use path_config_source, api_config_source, ads or self"},
	} {
		got, err := c.Source("rds.config_source", tt.source, tt.around)
		text := sources(got)
		if err != nil {
			text = err.Error()
		}
		if tt.same != nil && got != tt.same || tt.want != "" && text != tt.want {
			t.Errorf("%s: %s", name, text)
		}
	}
	if _, err := c.Source("x", &corev3.Node{}, nil); err == nil || err.Error() != "b.yaml: x: a message envoy.config.core.v3.ConfigSource is needed" {
		t.Error(err)
	}
}

// CLI-13: "gRPC mode refuses all but ads and self".
func TestNestedSourcesOfGRPC_CLI13(t *testing.T) {
	c, err := GRPC("b.json", []byte(whole), (&bench{}).options())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*corev3.ConfigSource{
		{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}, {ConfigSourceSpecifier: &corev3.ConfigSource_Self{}, InitialFetchTimeout: durationpb.New(3 * time.Second)},
	} {
		got, err := c.Source("rds", s)
		if err != nil || servers(got.Servers) != servers(c.Servers) || got.Timeout != s.GetInitialFetchTimeout().AsDuration() {
			t.Errorf("%v: %v %v", s, got, err)
		}
	}
	for _, s := range []*corev3.ConfigSource{
		{}, {ConfigSourceSpecifier: &corev3.ConfigSource_Path{Path: "/x"}}, {ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{}},
		{ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: "/x"}}},
	} {
		if _, err := c.Source("rds", s); err == nil || !strings.HasPrefix(err.Error(), "gRPC: rds: the source is ") {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// A ConfigSource alone, as text and as a message, with each api_type.
func TestSource_CLI1_CLI13(t *testing.T) {
	node := &xds.Node{ID: "edge-1"}
	const google = `, transport_api_version: V3, grpc_services: [{google_grpc: {target_uri: one, stat_prefix: x}}]}}`
	for text, want := range map[string]string{
		`{path: /a.json}`: "file /a.json",
		`{path_config_source: {path: /d/a.yaml, watched_directory: {path: /d}}, initial_fetch_timeout: 1s}`: "file /d/a.yaml in /d within 1s",
		`{api_config_source: {api_type: GRPC` + google:                                                      "per type insecure one",
		`{api_config_source: {api_type: DELTA_GRPC` + google:                                                "delta per type insecure one",
		`{api_config_source: {api_type: AGGREGATED_GRPC` + google:                                           "insecure one",
		`{api_config_source: {api_type: AGGREGATED_DELTA_GRPC` + google:                                     "delta insecure one",
		`{"apiConfigSource": {"apiType": "GRPC", "transportApiVersion": "V3", "setNodeOnFirstMessageOnly": true, "grpcServices": [{"googleGrpc": {"targetUri": "one", "channelCredentials": {"localCredentials": {}}}}]}}`: "per type local one",
		`{ads: {}}`:          "error: s.yaml: ads: the bootstrap has no ads_config",
		`{self: {}}`:         "error: s.yaml: self: the server of the enclosing resource is unknown",
		`{path: /a, ads: 1}`: "error: s.yaml:1:",
		`{api_config_source: {api_type: REST, transport_api_version: V3, cluster_names: [x], refresh_delay: 1s}}`: `error: s.yaml: api_config_source.cluster_names[0]: there is no static cluster "x"`,
	} {
		b := &bench{}
		o := b.options()
		o.Log = slog.New(slog.DiscardHandler)
		c, err := ParseSource("s.yaml", []byte(text), node, o)
		got := sources(c)
		if c != nil && c.Servers[0].Transport.(*made).disk.path != "" && c.Servers[0].Transport.(*made).disk.log != o.Log {
			t.Errorf("%s: a file has no log", text)
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) || err != nil && b.made != b.closed {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if c != nil && (c.Node.ID != "edge-1" || len(c.Node.ClientFeatures) != 1) || len(node.ClientFeatures) != 0 {
			t.Errorf("%+v", c.Node)
		}
	}
}

func FuzzEnvoy(f *testing.F) {
	f.Add([]byte(byHand))
	text, err := written.Envoy(written.Options{Node: "n", Server: "xds.example:1", REST: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &bench{}
		c, err := Envoy("f", data, b.options())
		if (err == nil) == (c == nil) || err != nil && (b.made != b.closed || !strings.HasPrefix(err.Error(), "f:")) {
			t.Errorf("%v, %v, %+v", c, err, b)
		}
	})
}

func FuzzSource(f *testing.F) {
	f.Add([]byte(`{path: /a.json}`))
	f.Add([]byte(`{"api_config_source": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [{"google_grpc": {"target_uri": "one"}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &bench{}
		c, err := ParseSource("f", data, nil, b.options())
		if (err == nil) == (c == nil) || err != nil && (b.made != b.closed || !strings.HasPrefix(err.Error(), "f:")) {
			t.Errorf("%v, %v, %+v", c, err, b)
		}
	})
}
