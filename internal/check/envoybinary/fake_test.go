package envoybinary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// fakeEnvoy makes a program that imitates Envoy. Each of refuses is a word, or several words
// joined by "+": the program rejects a bootstrap that contains all of them. It writes the mode of its input file and the last
// bootstrap to the returned directory.
func fakeEnvoy(t *testing.T, refuses ...string) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo \"envoy  version: 0/1.40.0/Clean/RELEASE/BoringSSL\"; exit 0; fi\nstat -c %a \"$4\" >>" + dir + "/modes\necho \"$4\" >" + dir + "/file\ncp \"$4\" " + dir + "/last\n"
	for _, words := range refuses {
		script += "if true"
		for w := range strings.SplitSeq(words, "+") {
			script += " && grep -qa '" + w + "' \"$4\""
		}
		script += "; then echo \"error initializing configuration '$4': " + words + " refused\" >&2; exit 1; fi\n"
	}
	path = filepath.Join(dir, "envoy")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path, dir
}

// clusters returns one cluster for each name.
func clusters(t *testing.T, names ...string) (all []Resource) {
	t.Helper()
	for _, n := range names {
		all = append(all, resource(t, xds.Cluster, n, fmt.Sprintf(`{"name":%q}`, n)))
	}
	return all
}

func ask(t *testing.T, path string, all []Resource) Answer {
	t.Helper()
	a, err := Ask(t.Context(), path, envoy.Envoy(), all)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Each rejected resource is found with its own reason.
func TestBisection(t *testing.T) {
	path, _ := fakeEnvoy(t, "bad-1", "bad-2", "left+right")
	a := ask(t, path, clusters(t, "a", "bad-1", "b", "c", "bad-2", "bad-1x", "d"))
	if got := fmt.Sprint(a.Rejected, a.Skipped); got != "map[1:bad-1 refused 4:bad-2 refused 5:bad-1 refused] []" {
		t.Error(got)
	}
	// Envoy accepts each resource alone.
	if a := ask(t, path, clusters(t, "left", "a", "right")); len(a.Rejected) != 1 {
		t.Error("two resources rejected only together:", a.Rejected)
	}
	if a := ask(t, path, clusters(t, "a", "b", "c")); len(a.Rejected) != 0 || a.Runs != 2 {
		t.Error("want two runs, one without resources and one with all of them:", a)
	}
	path, _ = fakeEnvoy(t, "chancery")
	if _, err := Ask(t.Context(), path, envoy.Envoy(), nil); err == nil || !strings.Contains(err.Error(), "rejects a bootstrap without resources: chancery refused") {
		t.Error("an Envoy that rejects everything:", err)
	}
}

// Listeners are checked together with the accepted clusters, and with empty clusters in place of the others.
func TestListenersWithAcceptedClusters(t *testing.T) {
	path, _ := fakeEnvoy(t, "bad-cluster", "bad-listener")
	all := append(clusters(t, "good-cluster"), resource(t, xds.Cluster, "c", `{"name":"c","alt_stat_name":"bad-cluster"}`),
		resource(t, xds.Listener, "l", `{"name":"good-listener"}`), resource(t, xds.Listener, "l", `{"name":"bad-listener"}`))
	if got := fmt.Sprint(ask(t, path, all).Rejected); got != "map[1:bad-cluster refused 3:bad-listener refused]" {
		t.Error(got)
	}
	path, dir := fakeEnvoy(t, "bad-listener")
	ask(t, path, append(clusters(t, "good-cluster"), all[3]))
	if last, err := os.ReadFile(filepath.Join(dir, "last")); err != nil || !bytes.Contains(last, []byte("good-cluster")) {
		t.Error("a listener is checked without clusters", err)
	}
}

// bootstrapOf returns a bootstrap from JSON.
func bootstrapOf(t *testing.T, json string) protoreflect.Message {
	t.Helper()
	m := envoy.Envoy().New(bootstrapName)
	if err := (protojson.UnmarshalOptions{Resolver: envoy.Envoy()}).Unmarshal([]byte(json), m.Interface()); err != nil {
		t.Fatal(err)
	}
	return m
}

// Envoy gets the parts of bootstraps that resources need, without the parts for one machine or server.
func TestPartsOfUserBootstraps(t *testing.T) {
	path, dir := fakeEnvoy(t)
	first := bootstrapOf(t, `{"node":{"id":"no-node"},"admin":{"address":{"pipe":{"path":"/no-admin"}}},"dynamic_resources":{"lds_config":{"path":"/no-source"}},
"static_resources":{"listeners":[{"name":"no-listener"}],"clusters":[{"name":"a-cluster"},{"name":"asked","alt_stat_name":"no-twin"}],"secrets":[{"name":"a-secret"}]},
"bootstrap_extensions":[{"name":"an-extension"}],"default_socket_interface":"an-interface","default_regex_engine":{"name":"an-engine"},
"certificate_provider_instances":{"a-provider":{"name":"p"}},
"layered_runtime":{"layers":[{"name":"a-layer","static_layer":{}},{"name":"no-layer","disk_layer":{}}]}}`)
	second := bootstrapOf(t, `{"static_resources":{"clusters":[{"name":"a-cluster","alt_stat_name":"no-second"},{"name":"another-cluster"}]},
"layered_runtime":{"layers":[{"name":"a-layer","static_layer":{"no-second":1}},{"name":"lower-layer","static_layer":{}}]}}`)
	a, err := Ask(t.Context(), path, envoy.Envoy(), clusters(t, "asked"), first, second)
	if err != nil || a.Bootstrap != "" || a.Runs != 2 {
		t.Error(a, err)
	}
	last, err := os.ReadFile(filepath.Join(dir, "last"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a-cluster", "another-cluster", "asked", "a-secret", "an-extension", "an-interface", "an-engine", "a-provider", "a-layer", "lower-layer"} {
		if !bytes.Contains(last, []byte(want)) {
			t.Errorf("Envoy does not get %s", want)
		}
	}
	if bytes.Index(last, []byte("lower-layer")) > bytes.Index(last, []byte("a-layer")) {
		t.Error("the runtime of the second bootstrap overrides that of the first")
	}
	if bytes.Contains(last, []byte("no-")) {
		t.Errorf("Envoy gets unneeded parts: %q", last)
	}
}

// If Envoy rejects a bootstrap, the answer has the reason and no resource is checked.
func TestRejectedBootstrap(t *testing.T) {
	path, _ := fakeEnvoy(t, "bad")
	a, err := Ask(t.Context(), path, envoy.Envoy(), clusters(t, "a", "b"), bootstrapOf(t, `{"static_resources":{"clusters":[{"name":"bad"}]}}`))
	if got := fmt.Sprintf("%s %v %v %v", a.Bootstrap, a.Rejected, a.Skipped, err); got != "bad refused map[] [0 1] <nil>" {
		t.Error(got)
	}
	path, _ = fakeEnvoy(t, "chancery")
	if _, err := Ask(t.Context(), path, envoy.Envoy(), nil, bootstrapOf(t, `{}`)); err == nil || !strings.Contains(err.Error(), "rejects a bootstrap without resources") {
		t.Error("an Envoy that rejects everything:", err)
	}
}

// The number of runs is limited.
func TestRunsAreLimited(t *testing.T) {
	path, _ := fakeEnvoy(t, "bad")
	a := ask(t, path, clusters(t, slices.Repeat([]string{"bad"}, maxRuns)...))
	if a.Runs > maxRuns+1 || len(a.Rejected)+len(a.Skipped) != maxRuns || len(a.Skipped) == 0 {
		t.Errorf("%d runs, %d rejected and %d skipped of %d", a.Runs, len(a.Rejected), len(a.Skipped), maxRuns)
	}
}

// Envoy's input files are private and removed afterwards.
func TestInputIsPrivateAndRemoved(t *testing.T) {
	path, dir := fakeEnvoy(t)
	all := []Resource{resource(t, xds.Secret, "s", `{"name":"s","validation_context":{"trusted_ca":{"inline_string":"hunter2"}}}`)}
	ask(t, path, all)
	output := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := output("modes"); got != "600\n600\n" {
		t.Error("SAFE-6 modes", got)
	}
	if got := output("last"); !strings.Contains(got, "hunter2") {
		t.Error("Envoy does not get the secret's value")
	}
	if _, err := os.Stat(filepath.Dir(strings.TrimSpace(output("file")))); err == nil {
		t.Error("SAFE-6 not removed:", output("file"))
	}
}

// Each case is a resource, and a text that the bootstrap then contains. An empty text: Envoy cannot check
// the resource in a bootstrap.
func TestPlacesOfResources(t *testing.T) {
	path, dir := fakeEnvoy(t)
	for _, tt := range []struct {
		typ        *xds.Type
		json, want string // "": skipped
	}{
		{xds.Route, `{"name":"r","virtual_hosts":[{"name":"the host","domains":["*"]}]}`, ":\x00"}, // an empty validate_clusters
		{xds.Listener, `{"name":"the listener"}`, "the listener"},
		{xds.Listener, `{"name":"grpc/server?x"}`, ""},
		{xds.Listener, `{"name":"l","api_listener":{}}`, ""},
		{xds.Endpoint, `{"cluster_name":"the assignment"}`, "the assignment"},
		{xds.Endpoint, `{"cluster_name":"e","endpoints":[{},{"leds_cluster_locality_config":{"leds_collection_name":"x"}}]}`, ""},
		{xds.Secret, `{"name":"s","session_ticket_keys":{"keys":[{"inline_string":"the tickets"}]}}`, "the tickets"},
		{xds.Secret, `{"name":"s","generic_secret":{"secret":{"inline_string":"x"}}}`, ""},
		{xds.Secret, `{"name":"s"}`, ""},
		{xds.ScopedRoute, `{"name":"s","route_configuration_name":"r"}`, ""},
		{xds.ExtensionConfig, `{"name":"the filter","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}}`, "the filter"},
		{xds.ExtensionConfig, `{"name":"f","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}`, ""},
	} {
		r := resource(t, tt.typ, "", tt.json)
		if tt.typ == xds.Listener && strings.Contains(tt.json, "grpc/server") {
			r.Name = "grpc/server?x"
		}
		a := ask(t, path, []Resource{r})
		last, err := os.ReadFile(filepath.Join(dir, "last"))
		if err != nil {
			t.Fatal(err)
		}
		if (len(a.Skipped) == 1) != (tt.want == "") || !bytes.Contains(last, []byte(tt.want)) {
			t.Errorf("%s %s: skipped %v", tt.typ, tt.json, a.Skipped)
		}
	}
}
