package protoyaml

import (
	"fmt"
	"testing"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// Place finds a field in any spelling.
func TestPlace(t *testing.T) {
	const src = `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: l
address: &a {socketAddress: {address: 127.0.0.1, port_value: 1}}
additional_addresses:
- address: *a
metadata: {filter_metadata: {"a.b": {c: 1}}}
filter_chains:
- &chain
  name: one
  filters:
  - name: hcm
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: s
- <<: *chain
  transport_socket:
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
      common_tls_context:
        tls_certificates:
        - private_key: {inline_string: x}
`
	docs, err := ParseYAML("l.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	n, d := docs[0], &Decoder{File: "l.yaml", Source: []byte(src), Types: envoy.Envoy()}
	md := envoy.Envoy().New("envoy.config.listener.v3.Listener").Descriptor()
	for _, tt := range []struct {
		path, want string
	}{
		{"", "1:1"},
		{"name", "2:7"},
		{"address.socket_address.port_value", "3:62"},
		{"additional_addresses[0].address.socket_address", "3:29"},
		{`metadata.filter_metadata["a.b"]`, "6:37"},
		{"filter_chains[0].filters[0].typed_config.stat_prefix", "14:20"},
		{"filter_chains[1].name", "9:9"}, // through a merge key
		{"filter_chains[1].transport_socket.typed_config.common_tls_context.tls_certificates[0].private_key", "21:24 secret"},
		{"filter_chains[1].transport_socket.typed_config.common_tls_context.tls_certificates[0].private_key.filename", "21:24 secret"},
		{"filter_chains[1].transport_socket.typed_config.common_tls_context.tls_certificates[0].certificate_chain", "21:11"}, // missing
		{"filter_chains[7].name", "1:1"},
		{"filter_chains[0].filters[0].typed_config.nothing", "13:7"},
		{"nothing.at.all", "1:1"},
		{".", "1:1"},
		{"name[", "2:7"},
	} {
		at := d.Place(n, md, tt.path)
		got := fmt.Sprintf("%d:%d", at.Node.Line, at.Node.Column)
		if at.Secret {
			got += " secret"
		}
		if got != tt.want {
			t.Errorf("%s at %s, want %s", tt.path, got, tt.want)
		}
	}
}
