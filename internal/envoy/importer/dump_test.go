package importer

import (
	"strings"
	"testing"
)

// dumped is the config_dump of an Envoy that another server configured.
const dumped = `{"configs": [
 {"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "last_updated": "2026-01-01T00:00:00Z", "bootstrap": {
  "node": {"id": "edge", "user_agent_name": "envoy", "extensions": [{"name": "x"}]},
  "static_resources": {"clusters": [{"name": "old", "connect_timeout": "5s"}]},
  "dynamic_resources": {"ads_config": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "old"}}]}}}},
 {"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "version_info": "7",
  "static_clusters": [{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "old"}}],
  "dynamic_active_clusters": [{"version_info": "7", "cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "type": "EDS",
    "eds_cluster_config": {"eds_config": {"api_config_source": {"api_type": "GRPC", "grpc_services": [{"envoy_grpc": {"cluster_name": "old"}}]}}}}}],
  "dynamic_warming_clusters": [{"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "alt_stat_name": "next"}},
   {"cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b"}}]},
 {"@type": "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump",
  "static_endpoint_configs": [{"endpoint_config": {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "old"}}],
  "dynamic_endpoint_configs": [{"endpoint_config": {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "a",
    "endpoints": [{"load_balancing_weight": 0, "lb_endpoints": [{"health_status": "UNHEALTHY", "load_balancing_weight": 1, "endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}}}}]}]}},
   {"endpoint_config": {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "b"}}]},
 {"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [
  {"name": "both", "active_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "both", "stat_prefix": "active"}},
   "warming_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "both", "stat_prefix": "warming"}}},
  {"name": "new", "warming_state": {"listener": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "new"}}},
  {"name": "bad", "error_state": {"details": "x"}}]},
 {"@type": "type.googleapis.com/envoy.admin.v3.ScopedRoutesConfigDump", "dynamic_scoped_route_configs": [{"name": "s", "scoped_route_configs": [
  {"@type": "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration", "name": "s1", "route_configuration_name": "r"}]}]},
 {"@type": "type.googleapis.com/envoy.admin.v3.RoutesConfigDump",
  "static_route_configs": [{"route_config": {"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "inline"}}],
  "dynamic_route_configs": [{"route_config": {"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r"}}]},
 {"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [
  {"name": "s", "secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "s", "tls_certificate": {"private_key": {"inline_string": "[redacted]"}}}},
  {"name": "ca", "secret": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "ca", "validation_context": {"trusted_ca": {"filename": "/ca"}}}}]},
 {"@type": "type.googleapis.com/envoy.admin.v3.EcdsConfigDump", "ecds_filters": [{"ecds_filter": {"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "name": "f"}}]}
]}`

// Envoy 1.40 replaces the path of a key file in its config_dump, too.
func TestRedactedListener(t *testing.T) {
	f := File{Name: "dump.json", Data: []byte(`{"configs": [
 {"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"static_resources": {"clusters": [{"name": "a"}], "listeners": [{"name": "edge",
  "filter_chains": [{"transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
   "common_tls_context": {"tls_certificates": [
    {"certificate_chain": {"filename": "/c.pem"}, "private_key": {"inline_string": "[redacted]"}},
    {"certificate_chain": {"filename": "/c.pem"}, "private_key": {"filename": "[redacted]"}}]}}}}]}]}}}
]}`)}
	const at = "filter_chains[0].transport_socket.typed_config.common_tls_context.tls_certificates["
	_, problems := Do([]File{f}, options())
	want := "dump.json:5:84: " + at + `0].private_key.inline_string: listener "edge" has "[redacted]" here: Envoy's admin interface does not show secrets (` +
		`import the file that Envoy was started with, which has it; or save the config_dump, replace "[redacted]" with the secret (or "filename" and the path of the key), and import that file; ` +
		"or --without-redacted leaves the listener out)\n" +
		"dump.json:6:79: " + at + `1].private_key.filename: listener "edge" has "[redacted]" here: Envoy's admin interface does not show secrets` + "\n"
	if problemText(problems) != want {
		t.Errorf("FILE-8 got\n%swant\n%s", problemText(problems), want)
	}
	o := options()
	o.WithoutRedacted = true
	im := do(t, o, f)
	if got := names(im); got != "clusters/a.yaml _bootstrap.yaml" {
		t.Error("FILE-8", got)
	}
	if notes := strings.Join(im.Notes, "\n"); notes != `listener "edge" is left out: Envoy does not show `+at+"0].private_key.inline_string, "+at+
		`1].private_key.filename ("[redacted]"). Write its file by hand, with the key or with a secret from the server (tls_certificate_sds_secret_configs)` {
		t.Error("FILE-8", notes)
	}
}

func TestConfigDump(t *testing.T) {
	f := File{Name: "dump.json", Data: []byte(dumped)}
	if _, problems := Do([]File{f}, options()); len(problems) != 1 || !strings.Contains(problemText(problems), `tls_certificate.private_key.inline_string: secret "s" has "[redacted]" here`) || !strings.Contains(problemText(problems), "--without-redacted") {
		t.Error("FILE-8", problemText(problems))
	}
	// Cluster b does not use EDS, though the dump lists its endpoints.
	o := options()
	o.WithoutRedacted = true
	im := do(t, o, f)
	const want = "clusters/a.yaml clusters/b.yaml endpoints/a.yaml extensions/f.yaml listeners/both.yaml listeners/new.yaml routes/r.yaml scopes/s1.yaml secrets/ca.yaml _bootstrap.yaml"
	if got := names(im); got != want {
		t.Errorf("FILE-8 got  %s\nwant %s", got, want)
	}
	for path, want := range map[string]string{
		"clusters/a.yaml":     "name: a\ntype: EDS\neds_cluster_config:\n  eds_config:\n    ads: {}\n    resource_api_version: V3\n",
		"endpoints/a.yaml":    "cluster_name: a\nendpoints:\n- lb_endpoints:\n  - load_balancing_weight: 1\n    endpoint:\n      address:\n        socket_address:\n          address: 127.0.0.1\n          port_value: 80\n",
		"listeners/both.yaml": "name: both\nstat_prefix: active\n",
		BootstrapFile:         "node:\n  id: edge\n",
	} {
		if got := file(t, im, path); !strings.HasSuffix(got, want) {
			t.Errorf("%s\n%s", path, got)
		}
	}
	notes := strings.Join(im.Notes, "\n")
	for _, want := range []string{`secret "s" is left out`, "the health of endpoints is left out", `cluster "old" is left out`} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, notes)
		}
	}
	im = do(t, options(), File{Name: "dump.json", Data: []byte(`{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {
		"node": {"user_agent_name": "envoy", "user_agent_build_version": {}, "extensions": []}, "static_resources": {"clusters": [{"name": "a"}]}}}]}`)})
	if got := strings.Join(im.Stays, " "); got != "" {
		t.Error("a node with only the fields that Envoy adds stays:", got)
	}
	if strings.Contains(notes, "from another server") {
		t.Errorf("a note about resources from another server: %s", notes)
	}
	im = do(t, options(), File{Name: "b.yaml", Data: []byte("static_resources: {clusters: [{name: a, connect_timeout: 1s}]}\ndynamic_resources: {ads_config: {api_type: GRPC}, cds_config: {ads: {}}}")})
	if notes := strings.Join(im.Notes, "\n"); !strings.Contains(notes, "resources that Envoy gets from another server are not in a file") {
		t.Errorf("no note about resources that are missing: %s", notes)
	}
	for in, want := range map[string]string{
		`{"configs": []}`:  "the config_dump has no bootstrap",
		`{"configs": "x"}`: "the config_dump has no list \"configs\"",
	} {
		if _, problems := Do([]File{{Name: "d.json", Data: []byte(in)}}, options()); !strings.Contains(problemText(problems), want) {
			t.Error(problemText(problems))
		}
	}
}

// Envoy writes the keys of maps and Structs in another order after each start.
func TestConfigDumpOrderOfKeys(t *testing.T) {
	dump := func(metadata, layer, filters string) File {
		return File{Name: "dump.json", Data: []byte(`{"configs": [
 {"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {
  "node": {"id": "edge", "metadata": ` + metadata + `}, "layered_runtime": {"layers": [{"name": "s", "static_layer": ` + layer + `}]},
  "static_resources": {"clusters": [{"name": "a", "metadata": {"filter_metadata": ` + metadata + `}}]}}},
 {"@type": "type.googleapis.com/envoy.admin.v3.RoutesConfigDump", "dynamic_route_configs": [{"route_config": {
  "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", "name": "r", "typed_per_filter_config": ` + filters + `}}]}]}`)}
	}
	const cors = `{"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy", "max_age": "1"}`
	one := do(t, options(), dump(`{"x": {"p": [{"c": 1, "d": 2}], "q": {}}, "y": {}}`, `{"a.b": 1, "a.c": 2}`, `{"f": `+cors+`, "g": `+cors+`}`))
	two := do(t, options(), dump(`{"y": {}, "x": {"q": {}, "p": [{"d": 2, "c": 1}]}}`, `{"a.c": 2, "a.b": 1}`, `{"g": `+cors+`, "f": `+cors+`}`))
	for _, path := range []string{"clusters/a.yaml", "routes/r.yaml", BootstrapFile} {
		t.Run("FILE-8 "+path, func(t *testing.T) {
			if one, two := file(t, one, path), file(t, two, path); one != two {
				t.Errorf("got\n%s\nand\n%s", one, two)
			}
		})
	}
	if got := file(t, one, "clusters/a.yaml"); !strings.Contains(got, "\nname: a\nmetadata:\n") {
		t.Errorf("the order of fields has changed:\n%s", got)
	}
}

// A redacted value of a part that is left out anyway does not stop the import.
func TestRedactedPartsThatAreLeftOut(t *testing.T) {
	const tls = `"transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": `
	const key = `{"tls_certificates": [{"certificate_chain": {"filename": "/c.pem"}, "private_key": {"inline_string": "[redacted]"}}]}`
	const sds = `{"tls_certificate_sds_secret_configs": [{"name": "own"}]}`
	dump := func(static, dynamic, more string) string {
		return `{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {` + more + `"static_resources": {"clusters": [{"name": "a"}` + static + `},
			"dynamic_resources": {"ads_config": {"api_type": "GRPC", "grpc_services": [` + dynamic + `]}}}}]}`
	}
	const named = `{"envoy_grpc": {"cluster_name": "cp"}}`
	const own = `], "secrets": [{"name": "own", "tls_certificate": {"private_key": {"inline_string": "[redacted]"}}}]`
	for name, test := range map[string]struct{ dump, want string }{
		"the key of the server's cluster":         {dump(`, {"name": "cp", `+tls+key+`}}}]`, named, ""), "clusters/a.yaml"},
		"one of two servers":                      {dump(`, {"name": "cp", `+tls+key+`}}}, {"name": "cp2", `+tls+key+`}}}]`, named+`, {"envoy_grpc": {"cluster_name": "cp2"}}`, ""), "clusters/a.yaml"},
		"a secret that only that cluster uses":    {dump(`, {"name": "cp", `+tls+sds+`}}}`+own, named, ""), "clusters/a.yaml"},
		"a credential in dynamic_resources":       {dump(`]`, `{"google_grpc": {"target_uri": "cp:1", "stat_prefix": "cp", "call_credentials": [{"access_token": "[redacted]"}]}}`, ""), "clusters/a.yaml"},
		"a secret that another cluster uses, too": {dump(`, {"name": "b", `+tls+sds+`}}}, {"name": "cp", `+tls+sds+`}}}`+own, named, ""), `secret "own" has "[redacted]" here`},
		"the server's cluster that Envoy still needs": {dump(`, {"name": "cp", `+tls+key+`}}}]`, named,
			`"stats_sinks": [{"name": "m", "typed_config": {"@type": "type.googleapis.com/envoy.config.metrics.v3.MetricsServiceConfig", "transport_api_version": "V3", "grpc_service": `+named+`}}], `), `cluster "cp" has "[redacted]" here`},
		"a cluster that is served": {dump(`, {"name": "b", `+tls+key+`}}}, {"name": "cp"}]`, named, ""), `cluster "b" has "[redacted]" here`},
	} {
		im, problems := Do([]File{{Name: "dump.json", Data: []byte(test.dump)}}, options())
		got := problemText(problems)
		if im != nil {
			got = names(im)
		}
		if !strings.Contains(got, test.want) || strings.Contains(got, "redacted") != strings.Contains(test.want, "redacted") {
			t.Errorf("FILE-8 %s: got %s, want %s", name, got, test.want)
		}
	}
}
