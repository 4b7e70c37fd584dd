package importer

import (
	"strings"
	"testing"
)

func listenerOf(name, route, prefix string) string {
	return `{name: ` + name + `, filter_chains: [{filters: [{name: hcm, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, ` +
		`stat_prefix: x, route_config: {name: ` + route + `, virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: ` + prefix + `}, route: {cluster: c}}]}]}}}]}]}`
}

func TestSplitRoutes(t *testing.T) {
	o := options()
	o.SplitRoutes = true
	in := "static_resources: {listeners: [" + strings.Join([]string{
		listenerOf("a", "local_route", "/a"), listenerOf("b", "local_route", "/a"), listenerOf("c", "local_route", "/c"), listenerOf("d", `""`, "/d"),
	}, ", ") + "]}"
	im := do(t, o, File{Name: "e.yaml", Data: []byte(in)})
	const want = "listeners/a.yaml listeners/b.yaml listeners/c.yaml listeners/d.yaml routes/c.yaml routes/d.yaml routes/local_route.yaml _bootstrap.yaml"
	if got := names(im); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for listener, routes := range map[string]string{"a": "local_route", "b": "local_route", "c": "c", "d": "d"} {
		if got := file(t, im, "listeners/"+listener+".yaml"); !strings.Contains(got, "route_config_name: "+routes+", config_source: {ads: {}, resource_api_version: V3}") || strings.Contains(got, "virtual_hosts") {
			t.Error(got)
		}
	}
	if got := file(t, im, "routes/c.yaml"); !strings.HasPrefix(got, "\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: c\n") || !strings.Contains(got, "/c") {
		t.Error(got)
	}
}

func TestSplitEndpoints(t *testing.T) {
	o := options()
	o.EDS = true
	im := do(t, o, File{Name: "e.yaml", Data: []byte(`static_resources: {clusters: [{name: static, load_assignment: {cluster_name: x}}, {name: dns, type: STRICT_DNS, load_assignment: {cluster_name: dns}},
		{name: custom, cluster_type: {name: y}, load_assignment: {cluster_name: custom}}, {name: none}]}`)})
	if got := names(im); got != "clusters/custom.yaml clusters/dns.yaml clusters/none.yaml clusters/static.yaml endpoints/static.yaml _bootstrap.yaml" {
		t.Error(got)
	}
	if got := file(t, im, "clusters/static.yaml"); !strings.Contains(got, "type: EDS\n") || strings.Contains(got, "load_assignment") {
		t.Error(got)
	}
	if got := file(t, im, "endpoints/static.yaml"); !strings.HasSuffix(got, "\ncluster_name: static\n") {
		t.Error(got)
	}
}

// The other fields of a ConfigSource stay.
func TestRedirectKeepsTimeouts(t *testing.T) {
	const in = `resources:
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, type: EDS, eds_cluster_config: {eds_config: {path: /x, initial_fetch_timeout: 5s}}}
- {"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: a}
`
	im := do(t, options(), File{Name: "e.yaml", Data: []byte(in)})
	if got := file(t, im, "clusters/a.yaml"); !strings.Contains(got, "{ads: {}, resource_api_version: V3, initial_fetch_timeout: 5s}") {
		t.Error(got)
	}
	im = do(t, options(), File{Name: "e.yaml", Data: []byte(`static_resources:
  secrets: [{name: s, generic_secret: {}}]
  clusters: [{name: a, transport_socket: {name: t, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
    common_tls_context: {validation_context_sds_secret_config: {name: s, sds_config: {ads: {}, initial_fetch_timeout: 5s}}}}}}]`)})
	if got := file(t, im, "clusters/a.yaml"); !strings.Contains(got, "sds_config: {ads: {}, initial_fetch_timeout: 5s}") {
		t.Error(got)
	}
}

// A node that YAML readers understand differently is written anew, from the message.
func TestAmbiguousNodeIsRewritten(t *testing.T) {
	im := do(t, options(), File{Name: "e.yaml", Data: []byte("static_resources: {clusters: [{name: a, per_connection_buffer_limit_bytes: {}}]}")})
	const want = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\nper_connection_buffer_limit_bytes: 0\n"
	if got := file(t, im, "clusters/a.yaml"); got != want {
		t.Error(got)
	}
}

// A secret that is both served and kept in the bootstrap is written anew only in its resource file.
func TestServedAndKeptSecret(t *testing.T) {
	const tls = `{name: t, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {validation_context_sds_secret_config: {name: ca}}}}`
	im := do(t, options(), File{Name: "e.yaml", Data: []byte(`static_resources:
  secrets: [{name: ca, validation_context: {max_verify_depth: {}, trusted_ca: {filename: /ca}}}]
  clusters: [{name: a, transport_socket: ` + tls + `}, {name: me, transport_socket: ` + tls + `}]
cluster_manager: {local_cluster_name: me}`)})
	if got := file(t, im, "secrets/ca.yaml"); !strings.Contains(got, "  max_verify_depth: 0\n") {
		t.Error(got)
	}
	if got := file(t, im, BootstrapFile); !strings.Contains(got, "name: ca") {
		t.Error(got)
	}
}

// A word that some readers take for true or false is quoted.
func TestBooleanWordsAreQuoted(t *testing.T) {
	o := options()
	o.SplitRoutes = true
	im := do(t, o, File{Name: "e.yaml", Data: []byte("static_resources: {listeners: [" + listenerOf(`"no"`, `""`, "/") + "]}")})
	if got := file(t, im, "listeners/no.yaml"); !strings.Contains(got, `route_config_name: "no",`) {
		t.Error(got)
	}
}

// The written files have the values that the Envoy runs with.
func TestFILE8ImportHasEnvoysValues(t *testing.T) {
	im := do(t, options(), File{Name: "e.yaml", Data: []byte(`!ignore shared:
- &timeout 2s
static_resources:
  clusters:
  - name: a
    connect_timeout: *timeout
    circuit_breakers: {thresholds: [{max_connections: 0100, track_remaining: yes}]}
    metadata: {filter_metadata: {m: {word: yes, oct: 010, ver: 1.10, day: 2024_11_29, id: 9007199254740993, bin: 0b11, exp: 1e3, o: 0o17, n: 5}}}
`)})
	const want = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: a
connect_timeout: 2s
circuit_breakers: {thresholds: [{max_connections: 64, track_remaining: true}]}
metadata: {filter_metadata: {m: {word: true, oct: 8, ver: "1.10", day: "2024_11_29", id: "9007199254740993", bin: "0b11", exp: "1e3", o: "0o17", n: 5}}}
`
	if got := file(t, im, "clusters/a.yaml"); got != want {
		t.Error(got)
	}
	// Envoy reads a .json file without its YAML reader: a fraction is a number.
	im = do(t, options(), File{Name: "e.json", Data: []byte(`{"static_resources": {"clusters": [{"name": "a", "metadata": {"filter_metadata": {"m": {"f": 0.5, "big": 4294967296}}}}]}}`)})
	if got := file(t, im, "clusters/a.yaml"); !strings.Contains(got, "f: 0.5\n") || !strings.Contains(got, "big: 4294967296\n") {
		t.Error(got)
	}
}

// A null field is not set.
func TestNullFieldIsUnset(t *testing.T) {
	o := options()
	o.EDS = true
	im := do(t, o, File{Name: "e.yaml", Data: []byte("static_resources: {clusters: [{name: a, load_assignment: null}]}")})
	if got := names(im); got != "clusters/a.yaml _bootstrap.yaml" {
		t.Error(got)
	}
}

// JSON strings of several lines become YAML blocks.
func TestMultilineStringsAsBlocks(t *testing.T) {
	im := do(t, options(), File{Name: "e.json", Data: []byte(`{"static_resources": {"secrets": [{"name": "ca", "validation_context": {"trusted_ca": {"inline_string": "BEGIN\nEND\n"}}}, {"name": "odd", "generic_secret": {"secret": {"inline_string": " a\nb\n\n"}}}]}}`)})
	if got := file(t, im, "secrets/ca.yaml"); !strings.HasSuffix(got, "    inline_string: |\n      BEGIN\n      END\n") {
		t.Error(got)
	}
	if got := file(t, im, "secrets/odd.yaml"); !strings.HasSuffix(got, `inline_string: " a\nb\n\n"`+"\n") {
		t.Error(got)
	}
}

// References to secrets are found in maps too.
func TestSecretReferenceInMap(t *testing.T) {
	im := do(t, options(), File{Name: "e.yaml", Data: []byte(`static_resources:
  secrets: [{name: s, generic_secret: {}}]
  clusters:
  - name: a
    metadata: {typed_filter_metadata: {x: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {validation_context_sds_secret_config: {name: s}}}}}
`)})
	if got := file(t, im, "clusters/a.yaml"); !strings.Contains(got, "{name: s, sds_config: {ads: {}, resource_api_version: V3}}") {
		t.Error(got)
	}
}
