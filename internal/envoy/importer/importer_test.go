package importer

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
)

func options() Options { return Options{Types: envoy.Envoy()} }

func bootstraps(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/bootstraps/*")
	if err != nil || len(all) < 6 {
		t.Fatal(all, err)
	}
	return all
}

func read(t *testing.T, path string) File {
	t.Helper()
	f, err := ReadFile(path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func do(t *testing.T, o Options, files ...File) *Import {
	t.Helper()
	im, problems := Do(files, o)
	if im == nil {
		t.Fatal(problems)
	}
	return im
}

// names returns the paths of the written files.
func names(im *Import) string {
	var all []string
	for _, o := range im.Files() {
		all = append(all, o.Path)
	}
	return strings.Join(all, " ")
}

// file returns the content of a written file.
func file(t *testing.T, im *Import, path string) string {
	t.Helper()
	for _, o := range im.Files() {
		if o.Path == path {
			return string(o.Data)
		}
	}
	t.Fatalf("no %s among %s", path, names(im))
	return ""
}

// Importing the result again gives the same resources.
func TestReimportIsStable(t *testing.T) {
	for _, path := range bootstraps(t) {
		im := do(t, options(), read(t, path))
		out := t.TempDir()
		if err := im.To(Write{Dir: out}); err != nil {
			t.Fatal(err)
		}
		files, err := ReadDir(out, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		again := do(t, options(), files...)
		for _, r := range im.Resources {
			i := slices.IndexFunc(again.Resources, func(a Resource) bool { return a.Type == r.Type && a.Name == r.Name })
			if i < 0 || !bytes.Equal(again.Resources[i].Data, r.Data) {
				t.Errorf("%s: %s differs after a second import", path, r.Path)
			}
		}
	}
}

func TestFileNames(t *testing.T) {
	im := do(t, options(), read(t, "testdata/bootstraps/tcp.yaml"))
	const want = "clusters/Mail-2.yaml clusters/mail.yaml listeners/listener_0.yaml listeners/listener_0_udp.yaml _bootstrap.yaml"
	if got := names(im); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	im = do(t, options(), read(t, "testdata/bootstraps/contrib.yaml"))
	const ports = "clusters/kafka.yaml listeners/listener_8501.yaml listeners/listener_8502.yaml listeners/listener_8502_127.0.0.2.yaml _bootstrap.yaml"
	if got := names(im); got != ports {
		t.Errorf("got  %s\nwant %s", got, ports)
	}
	for in, want := range map[string]string{
		"a": "a", "in/out|80": "in_out_80", "_x": "x_x", ".x": "x.x", "日本": "_", "": "", strings.Repeat("a", 200): strings.Repeat("a", 120),
	} {
		if in != "" && want[0] == '_' {
			want = "x" + want
		}
		if got := (files{usedNames{}}).assign(im.Resources[0].Type, in); got != "clusters/"+want+".yaml" {
			t.Errorf("%q: %s", in, got)
		}
	}
	im = do(t, options(), File{Name: "e.yaml", Data: []byte("static_resources: {clusters: [{name: A}, {name: a}]}")})
	if got := names(im); got != "clusters/A.yaml clusters/a-2.yaml _bootstrap.yaml" {
		t.Error("names that differ only in case:", got)
	}
	// A generated name does not replace an existing one.
	im = do(t, options(), File{Name: "e.yaml", Data: []byte(`static_resources: {listeners: [
		{address: {socket_address: {address: 0.0.0.0, port_value: 80}}}, {name: listener_80, address: {pipe: {path: /run/x}}},
		{address: {pipe: {path: "@abstract/x y"}}}, {internal_listener: {}}, {address: {socket_address: {address: 0.0.0.0, port_value: 80}}}]}`)})
	const taken = "listeners/listener.yaml listeners/listener_80.yaml listeners/listener_80_0.0.0.0-2.yaml listeners/listener_80_0.0.0.0.yaml listeners/listener_x_y.yaml _bootstrap.yaml"
	if got := names(im); got != taken {
		t.Errorf("got  %s\nwant %s", got, taken)
	}
}

func TestRemainingBootstrap(t *testing.T) {
	for name, want := range map[string]string{
		"kept.yaml": `node, cluster_manager, bootstrap_extensions, overload_manager, ` +
			`cluster "finder" (a config source of cluster "found" needs it), cluster "reports" (cluster_manager needs it)`,
		"storefront.yaml": `node, stats_sinks, layered_runtime, cluster "statsd" (stats_sinks needs it)`,
		"filters.yaml":    "admin",
		"tcp.yaml":        "",
		"forward.json":    "node",
	} {
		if got := strings.Join(do(t, options(), read(t, "testdata/bootstraps/"+name)).Stays, ", "); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for in, want := range map[string]string{
		`{cluster_manager: {local_cluster_name: me}, static_resources: {clusters: [{name: me}, {name: other}]}}`: `cluster_manager, cluster "me" (it is cluster_manager.local_cluster_name)`,
		`{static_resources: {listeners: [{name: a, api_listener: {}}]}}`:                                         `listener "a" (Envoy accepts an api_listener only there)`,
		// Words of the runtime are not cluster names.
		`{layered_runtime: {layers: [{name: me, static_layer: {me: me}}]}, static_resources: {clusters: [{name: me}]}}`: "layered_runtime",
		// Keys are not cluster names.
		`{stats_sinks: [{name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.stat_sinks.wasm.v3.Wasm, config: {name: you}}}], static_resources: {clusters: [{name: name}]}}`: "stats_sinks",
		// A node's cluster is not an Envoy cluster.
		`{node: {cluster: me}, static_resources: {clusters: [{name: me}]}}`: "node",
		// Any word in an extension of unknown type may be a cluster name.
		`{bootstrap_extensions: [{name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.wasm.v3.WasmService, config: {name: me}}}], static_resources: {clusters: [{name: me}]}}`: `bootstrap_extensions, cluster "me" (bootstrap_extensions may need it)`,
	} {
		if got := strings.Join(do(t, options(), File{Name: "e.yaml", Data: []byte(in)}).Stays, ", "); got != want {
			t.Errorf("%s:\n%s", in, got)
		}
	}
}

// The cluster of the previous server is left out, unless something else needs it.
func TestDynamicResources(t *testing.T) {
	const in = `dynamic_resources: {ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}, cds_config: {ads: {}}}
static_resources: {clusters: [{name: xds}, {name: other}]}
`
	im := do(t, options(), File{Name: "e.yaml", Data: []byte(in)})
	if got := names(im); got != "clusters/other.yaml _bootstrap.yaml" {
		t.Error(got)
	}
	if got := strings.Join(im.Notes, "\n"); !strings.Contains(got, `cluster "xds" is left out`) || !strings.Contains(got, "dynamic_resources are left out") {
		t.Error(got)
	}
	im = do(t, options(), File{Name: "e.yaml", Data: []byte("dynamic_resources: {lds_config: {path: /lds}, cds_config: {path_config_source: {path: /cds}}}\nstatic_resources: {clusters: [{name: a}]}")})
	for _, want := range []string{"lds_config reads /lds: to import that", "cds_config reads /cds: to import that"} {
		if got := strings.Join(im.Notes, "\n"); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	im = do(t, options(), File{Name: "e.yaml", Data: []byte(strings.Replace(in, "{name: other}", `{name: other, cluster_type: {name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [xds]}}}`, 1))})
	if got := names(im); got != "clusters/other.yaml clusters/xds.yaml _bootstrap.yaml" {
		t.Error(got)
	}
	im = do(t, options(), File{Name: "e.yaml", Data: []byte(in + "cluster_manager: {load_stats_config: {grpc_services: [{envoy_grpc: {cluster_name: xds}}]}}")})
	if got := im.Stays; !slices.Contains(got, `cluster "xds" (cluster_manager needs it)`) {
		t.Error(got)
	}
}

// A remaining bootstrap may contain v2 messages, for an old Envoy.
func TestV2InRemainingBootstrap(t *testing.T) {
	im := do(t, options(), File{Name: "e.yaml", Data: []byte(`static_resources: {clusters: [{name: a}]}
stats_sinks: [{name: s, typed_config: {"@type": type.googleapis.com/envoy.config.metrics.v2.StatsdSink}}]`)})
	const want = `stats_sinks[0].typed_config in _bootstrap.yaml is of the v2 API, which Envoy has not accepted since 1.18: write "@type": type.googleapis.com/envoy.config.metrics.v3.StatsdSink; then import again: it reports the fields that v3 does not have`
	if got := strings.Join(im.Notes, "\n"); got != want {
		t.Error("FILE-8", got)
	}
}

func TestRejectedInputs(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing":                           {"{}", "e.yaml:1:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource"},
		"a misspelled key":                  {"static_resource: {}", `e.yaml:1:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource (did you mean "static_resources" and not "static_resource"?)`},
		"a Kubernetes object":               {"apiVersion: v1\nkind: ConfigMap\ndata: {}", "e.yaml:1:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource (this is a Kubernetes object: write the Envoy configuration that is in it to a file of its own)"},
		"emptiness":                         {"---\n", "e.yaml: there is nothing to import (it must contain a bootstrap, a config_dump or a DiscoveryResponse)"},
		"another format":                    {"services: {web: {image: x}}", "e.yaml:1:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource"},
		"no resources":                      {"resources: []", "e.yaml: there is nothing to import (it must contain a bootstrap, a config_dump or a DiscoveryResponse)"},
		"invalid YAML":                      {"static_resources: {", "e.yaml:1:20: did not find expected node content (the file ends here)"},
		"an unknown field":                  {"static_resources: {clusters: [{nam: a}]}", `e.yaml:1:32: static_resources.clusters[0]: unknown field "nam" in Cluster (did you mean "name"?)`},
		"a misspelled field of a bootstrap": {"static_resource: {}\nnode: {}", `e.yaml:1:1: unknown field "static_resource" in Bootstrap (did you mean "static_resources"?)`},
		"a cluster without a name":          {"static_resources: {clusters: [{type: EDS}]}", "e.yaml:1:31: cluster without a name"},
		"duplicate names":                   {"static_resources:\n  clusters:\n  - name: a\n  - name: a", `e.yaml:4:5: duplicate cluster "a", first at e.yaml:3 (Envoy accepts only one of them)`},
		"an unknown message type":           {`static_resources: {listeners: [{name: a, metadata: {typed_filter_metadata: {x: {"@type": type.googleapis.com/acme.X}}}}]}`, `no message type is known as "acme.X" (--proto-set FILE adds messages that Envoy's API does not have)`},
		"an empty file":                     {"# nothing\n", "e.yaml: there is nothing to import"},
		"an empty wrapper":                  {`resources: [{"@type": type.googleapis.com/envoy.service.discovery.v3.Resource, name: a}]`, "e.yaml:1:13: the Resource has no field \"resource\""},
		"a list of paths":                   {"resources: [a.yaml]", "e.yaml:1:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource"},
		"v2":                                {`resources: [{"@type": type.googleapis.com/envoy.api.v2.Cluster, name: a}]`, `e.yaml:1:23: envoy.api.v2.Cluster is of the v2 API, which Envoy no longer supports (write "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster; then import again: it reports the fields that v3 does not have)`},
		"v2 in a bootstrap": {`static_resources: {clusters: [{name: a, transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.api.v2.auth.UpstreamTlsContext}}}]}`,
			`e.yaml:1:85: transport_socket.typed_config: envoy.api.v2.auth.UpstreamTlsContext is of the v2 API, which Envoy no longer supports (write "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext; then import again: it reports the fields that v3 does not have)`},
		"redacted":                            {`static_resources: {secrets: [{name: a, generic_secret: {secret: {inline_string: "[redacted]"}}}]}`, `e.yaml:1:81: generic_secret.secret.inline_string: secret "a" has "[redacted]" here: Envoy's admin interface does not show secrets (import the file that Envoy was started with, which has it; or --without-redacted leaves the secret out)`},
		"redacted bytes":                      {`static_resources: {secrets: [{name: a, generic_secret: {secret: {inline_bytes: W3JlZGFjdGVkXQ==}}}]}`, `generic_secret.secret.inline_bytes: secret "a" has "[redacted]" here`},
		"redacted in the remaining bootstrap": {`admin: {address: {pipe: {path: "[redacted]"}}}`, `admin.address.pipe.path: the bootstrap has "[redacted]" here`},
	} {
		t.Run("FILE-8 "+name, func(t *testing.T) {
			im, problems := Do([]File{{Name: "e.yaml", Data: []byte(c.in)}}, options())
			if im != nil || !strings.Contains(problemText(problems), c.want) {
				t.Errorf("%v\n%s\nwant\n%s", im, problemText(problems), c.want)
			}
		})
	}
	_, problems := Do([]File{{Name: "e.yaml", Data: []byte("\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n---\nwhat: else\n")}}, options())
	if got := problemText(problems); got != "e.yaml:4:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource\n" {
		t.Error(got)
	}
	_, problems = Do([]File{{Name: "a.yaml", Data: []byte("node: {}")}, {Name: "b.yaml", Data: []byte("node: {}")}}, options())
	if got := problemText(problems); !strings.Contains(got, "b.yaml:1:1: another bootstrap, besides a.yaml") {
		t.Error(got)
	}
}

func problemText(problems []findings.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.Error() + "\n")
	}
	return b.String()
}

// No problem quotes a secret.
func TestProblemsQuoteNoSecrets(t *testing.T) {
	for _, in := range []string{
		"static_resources: {secrets: [{name: a, generic_secret: {secret: {inline_string: [hunter2]}}}]}",
		"static_resources: {secrets: [{name: a, generic_secret: {secret: hunter2}}]}",
		"static_resources: {secrets: [{name: a, generic_secret: {secret: {inline_string: hunter2}}}, {name: a}]}",
		"static_resources: {secrets: [{generic_secret: {secret: {inline_string: hunter2}}}]}",
	} {
		_, problems := Do([]File{{Name: "e.yaml", Data: []byte(in)}}, options())
		if len(problems) == 0 {
			t.Error("no problem in", in)
		}
		for _, p := range problems {
			if strings.Contains(p.Text(), "hunter2") {
				t.Error(p.Text())
			}
		}
	}
}

func TestSecrets(t *testing.T) {
	const in = `
static_resources:
  secrets:
  - name: inline
    generic_secret: {secret: {inline_string: hunter2}}
  - name: file
    tls_certificate: {private_key: {filename: /k}}
  - name: stays
    generic_secret: {secret: {inline_string: hunter3}}
  clusters:
  - name: a
    transport_socket: &tls
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: {tls_certificate_sds_secret_configs: [{name: file}, {name: other}], validation_context_sds_secret_config: {name: inline, sds_config: {path: /x}}}
  - name: sink
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context: {tls_certificate_sds_secret_configs: [{name: stays}, {name: file}]}
cluster_manager: {local_cluster_name: sink}
`
	im := do(t, options(), File{Name: "e.yaml", Data: []byte(in)})
	var secret []string
	for _, o := range im.Files() {
		if o.Secret {
			secret = append(secret, o.Path)
		}
	}
	if got := strings.Join(secret, " "); got != "secrets/inline.yaml _bootstrap.yaml" {
		t.Error("secrets in", got)
	}
	if got := names(im); got != "clusters/a.yaml secrets/file.yaml secrets/inline.yaml _bootstrap.yaml" {
		t.Error(got)
	}
	a := file(t, im, "clusters/a.yaml")
	for _, want := range []string{"{name: file, sds_config: {ads: {}, resource_api_version: V3}}", "{name: other}", "{name: inline, sds_config: {ads: {}, resource_api_version: V3}}"} {
		if !strings.Contains(a, want) {
			t.Errorf("no %s in\n%s", want, a)
		}
	}
	// A bootstrap keeps the secrets that it needs, because Envoy needs them before it asks a server.
	b := file(t, im, BootstrapFile)
	if strings.Contains(b, "ads") || !strings.Contains(b, "hunter3") || !strings.Contains(b, `filename: "/k"`) || strings.Contains(b, "hunter2") {
		t.Error(b)
	}
	out := filepath.Join(t.TempDir(), "config")
	if err := im.To(Write{Dir: out}); err != nil {
		t.Fatal(err)
	}
	for _, o := range im.Files() {
		info, err := os.Stat(filepath.Join(out, o.Path))
		if err != nil || (info.Mode() == 0o600) != o.Secret {
			t.Errorf("%s: %v, %v", o.Path, info.Mode(), err)
		}
	}
}
