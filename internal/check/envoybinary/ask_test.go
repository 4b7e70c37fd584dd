package envoybinary

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
	"github.com/chancery-xds/chancery/xds"
)

// resource returns a resource from JSON.
func resource(t *testing.T, typ *xds.Type, name, json string) Resource {
	t.Helper()
	mt, err := envoy.Envoy().FindMessageByURL(typ.URL)
	if err != nil {
		t.Fatal(err)
	}
	m := mt.New().Interface()
	if err := (protojson.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return Resource{Type: typ, Name: name, Body: b}
}

// pair returns a certificate and its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	p := tlstest.NewAuthority(t, "ca").Issue("a")
	return string(p.Cert), string(p.Key)
}

// Each kind of resource that a bootstrap can contain is checked. The invalid resources are found
// among many.
func TestAsk(t *testing.T) {
	needEnvoy(t)
	cert, key := pair(t)
	_, other := pair(t)
	secret := func(cert, key string) string {
		return fmt.Sprintf(`{"name":"s","tls_certificate":{"certificate_chain":{"inline_string":%q},"private_key":{"inline_string":%q}}}`, cert, key)
	}
	tickets := func(length int) string {
		return fmt.Sprintf(`{"name":"s","session_ticket_keys":{"keys":[{"inline_string":%q}]}}`, strings.Repeat("k", length))
	}
	all := []Resource{
		resource(t, xds.Secret, "good", secret(cert, key)),
		resource(t, xds.Secret, "another's key", secret(cert, other)),
		resource(t, xds.Secret, "a word", `{"name":"s","generic_secret":{"secret":{"inline_string":"x"}}}`),
		resource(t, xds.Secret, "good tickets", tickets(80)),
		resource(t, xds.Secret, "short tickets", tickets(79)),
		resource(t, xds.Secret, "no authorities", `{"name":"s","validation_context":{"trusted_ca":{"inline_string":"x"}}}`),
		resource(t, xds.VirtualHost, "good host", `{"name":"r/h","domains":["h"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"elsewhere"}}]}`),
		resource(t, xds.VirtualHost, "host", `{"name":"r/h","domains":["h"],"routes":[{"match":{"safe_regex":{"regex":"(("}},"route":{"cluster":"elsewhere"}}]}`),
		resource(t, xds.Route, "good route with VHDS", `{"name":"r","vhds":{"config_source":{"ads":{},"resource_api_version":"V3"}}}`),
		resource(t, xds.ExtensionConfig, "good filter", `{"name":"f","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}}`),
		resource(t, xds.ExtensionConfig, "filter", `{"name":"f","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua","default_source_code":{"inline_string":"end"}}}`),
		resource(t, xds.ExtensionConfig, "network filter", `{"name":"f","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}`),
		resource(t, xds.Listener, "good internal listener", `{"name":"i","internal_listener":{},"filter_chains":[{"filters":[{"name":"e","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}]}]}`),
		resource(t, xds.Listener, "of a gRPC client", `{"name":"l","api_listener":{"api_listener":{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"}}}`),
		resource(t, xds.Listener, "grpc/server?x", `{"name":"grpc/server?x"}`),
		resource(t, xds.ScopedRoute, "scope", `{"name":"s","route_configuration_name":"r","key":{"fragments":[{"string_key":"k"}]}}`),
		resource(t, xds.Endpoint, "collection", `{"cluster_name":"e","endpoints":[{"leds_cluster_locality_config":{"leds_config":{"ads":{}},"leds_collection_name":"xdstp://a/envoy.config.endpoint.v3.LbEndpoint/b/*"}}]}`),
	}
	for i := range 20 {
		all = append(all, resource(t, xds.Route, fmt.Sprint("route ", i), fmt.Sprintf(`{"name":"r","virtual_hosts":[{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"elsewhere","timeout":"%ds"}}]}]}`, i-3)))
	}
	answer, err := Ask(t.Context(), envoyPath, envoy.Envoy(), all)
	if err != nil {
		t.Fatal(err)
	}
	var rejected, skipped []string
	for i, why := range answer.Rejected {
		rejected = append(rejected, all[i].Name)
		t.Logf("%s: %s", all[i].Name, why)
		if strings.Contains(why, "BEGIN") || why == "" {
			t.Errorf("%s: reason %q", all[i].Name, why)
		}
	}
	for _, i := range answer.Skipped {
		skipped = append(skipped, all[i].Name)
	}
	slices.Sort(rejected)
	if want := []string{"another's key", "filter", "host", "no authorities", "route 0", "route 1", "route 2", "short tickets"}; !slices.Equal(rejected, want) {
		t.Errorf("rejected %q, want %q", rejected, want)
	}
	if want := []string{"a word", "network filter", "of a gRPC client", "grpc/server?x", "scope", "collection"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
	t.Log(answer.Runs, "runs")
}

// A listener is checked together with the clusters that it names.
func TestListenerWithItsClusters(t *testing.T) {
	needEnvoy(t)
	all := []Resource{
		resource(t, xds.Listener, "l", `{"name":"l","address":{"socket_address":{"address":"127.0.0.1","port_value":1}},"filter_chains":[{"filters":[{"name":"hcm","typed_config":{
"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager","stat_prefix":"s",
"route_config":{"virtual_hosts":[{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"backend"}}]}]},"http_filters":[{"name":"r","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}`),
		resource(t, xds.Cluster, "wrong", `{"name":"wrong","type":"EDS"}`),
		resource(t, xds.Cluster, "backend", `{"name":"backend","connect_timeout":"1s"}`),
	}
	answer, err := Ask(t.Context(), envoyPath, envoy.Envoy(), all)
	alone, err2 := Ask(t.Context(), envoyPath, envoy.Envoy(), all[:1])
	if err2 != nil || alone.Rejected[0] == "" {
		t.Errorf("without the cluster: %v, %v", alone, err2)
	}
	t.Log(alone.Rejected)
	if err != nil || len(answer.Rejected) != 1 || answer.Rejected[1] != "cannot create an EDS cluster without an EDS config" {
		t.Errorf("%v, %v", answer, err)
	}
}

// Envoy gets the parts of a bootstrap that a listener needs: an extension, a secret.
func TestListenerWithBootstrapParts(t *testing.T) {
	needEnvoy(t)
	cert, key := pair(t)
	all := []Resource{
		resource(t, xds.Listener, "tunnels", `{"name":"tunnels","address":{"socket_address":{"address":"127.0.0.1","port_value":1}},"filter_chains":[{"filters":[{"name":"t","typed_config":{
"@type":"type.googleapis.com/envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnel"}}]}]}`),
		resource(t, xds.Listener, "tls", `{"name":"tls","address":{"socket_address":{"address":"127.0.0.1","port_value":2}},"filter_chains":[{"filters":[{"name":"e","typed_config":{
"@type":"type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}],"transport_socket":{"name":"tls","typed_config":{
"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext","common_tls_context":{"tls_certificate_sds_secret_configs":[{"name":"s"}]}}}}]}`),
	}
	bootstrap := bootstrapOf(t, fmt.Sprintf(`{"bootstrap_extensions":[{"name":"u","typed_config":{"@type":"type.googleapis.com/envoy.extensions.bootstrap.reverse_tunnel.upstream_socket_interface.v3.UpstreamReverseConnectionSocketInterface"}}],
"static_resources":{"secrets":[{"name":"s","tls_certificate":{"certificate_chain":{"inline_string":%q},"private_key":{"inline_string":%q}}}]}}`, cert, key))
	for rejected, bootstraps := range map[int][]protoreflect.Message{2: nil, 0: {bootstrap}} {
		answer, err := Ask(t.Context(), envoyPath, envoy.Envoy(), all, bootstraps...)
		if err != nil || len(answer.Rejected) != rejected {
			t.Errorf("with %d bootstraps: %v, %v", len(bootstraps), answer, err)
		}
	}
}

func TestNoEnvoy(t *testing.T) {
	if _, err := Ask(t.Context(), filepath.Join(t.TempDir(), "envoy"), envoy.Envoy(), nil); err == nil {
		t.Error("no error for a missing program")
	}
	if _, err := Ask(t.Context(), "/bin/false", envoy.Envoy(), nil); err == nil || !strings.Contains(err.Error(), "/bin/false") {
		t.Errorf("for another program: %v", err)
	}
	if _, err := Ask(t.Context(), "/bin/true", envoy.Envoy(), nil); err == nil || !strings.Contains(err.Error(), "/bin/true") {
		t.Errorf("for another program that exits with 0: %v", err)
	}
}

func TestReasonWithoutQuotes(t *testing.T) {
	for _, tt := range []struct{ output, want string }{
		{"plain\n", "plain"},
		{"Invalid duration: Expected positive duration: goo.gle/debugonly   seconds: -1\n", "Invalid duration: Expected positive duration"},
		{"goo.gle/debugproto  \nname: \"secret\"\nProto constraint validation failed (ClusterValidationError.Name: value length)", "Proto constraint validation failed (ClusterValidationError.Name: value length)"},
	} {
		if got := shortReason(tt.output); got != tt.want {
			t.Errorf("essence(%q) = %q, want %q", tt.output, got, tt.want)
		}
	}
}
