package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Import requests the whole configuration of a running Envoy, at an address or a socket.
func TestImportFromAdmin(t *testing.T) {
	const dump = `{"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"static_resources": {"clusters": [{"name": "a"}]}}}]}`
	asked := make(chan string, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
		w.Write([]byte(dump))
	})
	tcp := httptest.NewServer(handler)
	defer tcp.Close()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	unix := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	unix.Start()
	defer unix.Close()
	none := httptest.NewServer(http.NotFoundHandler())
	defer none.Close()

	for _, at := range []string{tcp.Listener.Addr().String(), "unix://" + socket} {
		out := filepath.Join(t.TempDir(), "config")
		var stdout, stderr strings.Builder
		if code := run([]string{"import", "--from-admin", at, "--out", out}, &stdout, &stderr); code != cli.OK {
			t.Fatalf("FILE-8 %s: %d\n%s", at, code, &stderr)
		}
		if got := <-asked; got != "/config_dump?include_eds" {
			t.Error(got)
		}
		if _, err := os.Stat(filepath.Join(out, "clusters", "a.yaml")); err != nil {
			t.Error(err)
		}
	}
	for want, args := range map[string][]string{
		"/config_dump answers 404 Not Found": {none.Listener.Addr().String()},
		"has more than 10 bytes":             {tcp.Listener.Addr().String(), "--max-file", "10"},
	} {
		out := filepath.Join(t.TempDir(), "config")
		var stdout, stderr strings.Builder
		if code := run(append([]string{"import", "--out", out, "--from-admin"}, args...), &stdout, &stderr); code != cli.Failed || !strings.Contains(stderr.String(), want) {
			t.Errorf("%d\n%s", code, &stderr)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("something is written")
		}
	}
}

// A user who may not read the input may not read the output.
func TestImportModes(t *testing.T) {
	from := t.TempDir()
	write(t, from, "a.yaml", "resources: [{\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a}]")
	path := filepath.Join(from, "a.yaml")
	for _, mode := range []os.FileMode{0o600, 0o640, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{path, from} {
			out := t.TempDir()
			var stdout, stderr strings.Builder
			if code := run([]string{"import", what, "--out", out}, &stdout, &stderr); code != cli.OK {
				t.Fatalf("%d\n%s", code, &stderr)
			}
			if info, err := os.Stat(filepath.Join(out, "clusters", "a.yaml")); err != nil || info.Mode() != mode {
				t.Errorf("SAFE-6 %v: of mode %v, %v; what was imported has %v", what, info.Mode(), err, mode)
			}
		}
	}
}

// The warnings of an import name the files of the output directory.
func TestImportWarns(t *testing.T) {
	from := filepath.Join(t.TempDir(), "envoy.yaml")
	write(t, filepath.Dir(from), "envoy.yaml", `static_resources: {clusters: [{name: a, cluster_type: {name: x, typed_config: {"@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [nowhere]}}}]}`)
	out := filepath.Join(t.TempDir(), "config")
	for _, args := range [][]string{{"--dry-run"}, nil} {
		var stdout, stderr strings.Builder
		if code := run(append([]string{"import", from, "--out", out}, args...), &stdout, &stderr); code != cli.OK || !strings.Contains(stdout.String(), "; 1 warning\n") ||
			!strings.HasPrefix(stderr.String(), out+"/clusters/a.yaml:") || !strings.Contains(stderr.String(), "nowhere") {
			t.Errorf("FILE-8 %s: %d\n%s\n%s", args, code, &stdout, &stderr)
		}
	}
}

// Import checks new files together with existing ones.
func TestImportChecksExistingFiles(t *testing.T) {
	root := t.TempDir()
	const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n"
	write(t, root, "mine.yaml", cluster)
	from := filepath.Join(t.TempDir(), "envoy.yaml")
	write(t, filepath.Dir(from), "envoy.yaml", "static_resources: {clusters: [{name: a}, {name: b}]}")
	var stdout, stderr strings.Builder
	if code := run([]string{"import", from, "--out", root, "--force"}, &stdout, &stderr); code != cli.Failed || !strings.Contains(stderr.String(), `CDS "a"`) {
		t.Errorf("%d\n%s", code, &stderr)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
		t.Error(entries, err)
	}
}

// An import of an export has the same resources, to the byte.
func TestImportOfExport(t *testing.T) {
	const quickstart = "../../examples/quickstart"
	out, back := t.TempDir(), filepath.Join(t.TempDir(), "back")
	for _, args := range [][]string{
		{"export", quickstart, "--out", out, "--node", "n", "--format", "json"},
		{"import", filepath.Join(out, "current"), "--out", back},
	} {
		var stdout, stderr strings.Builder
		if code := run(args, &stdout, &stderr); code != cli.OK {
			t.Fatalf("%s: %d\n%s", args, code, &stderr)
		}
	}
	versions := func(root string) string {
		st := store.New()
		if _, err := dir.New(root, st, dir.Options{}).Load(); err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route} {
			all += st.Snapshot().View(store.DefaultGroup).Table(typ).Version() + " "
		}
		return all
	}
	if was, is := versions(quickstart), versions(back); was != is {
		t.Errorf("FILE-8 %s is not %s", is, was)
	}
}
