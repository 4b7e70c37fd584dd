package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Resources that Envoy read from files come from the server afterwards. References to files that are
// not imported stay.
func TestSubscribedFiles(t *testing.T) {
	files, err := ReadDir("testdata/subscribed", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, File{Name: "more.yaml", Data: []byte(`resources: [{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: away, type: EDS, eds_cluster_config: {eds_config: {path: /away.yaml}}}]`)})
	im := do(t, options(), files...)
	const want = "clusters/away.yaml clusters/web.yaml endpoints/web_blue.yaml extensions/token.yaml listeners/web.yaml routes/web.yaml _bootstrap.yaml"
	if got := names(im); got != want {
		t.Errorf("FILE-8 got  %s\nwant %s", got, want)
	}
	for _, path := range []string{"clusters/web.yaml", "listeners/web.yaml", BootstrapFile} {
		if got := file(t, im, path); strings.Contains(got, "/etc/envoy") || strings.Contains(got, "path") {
			t.Error(got)
		}
	}
	if got := file(t, im, "clusters/away.yaml"); !strings.Contains(got, "path: /away.yaml") {
		t.Error(got)
	}
	if got := im.Resources[0].Notes; len(got) != 1 || got[0] != "still reads /away.yaml on Envoy's machine" {
		t.Error(got)
	}
	if got := im.Resources[1]; !strings.HasPrefix(string(got.Data), "# of two addresses\n") || got.Notes[0] != `reads endpoints "web/blue" from the server (ads)` {
		t.Errorf("%s\n%s", got.Notes, got.Data)
	}
	if got := strings.Join(im.Notes, "\n"); !strings.Contains(got, "docker-compose.yaml is ignored") {
		t.Error(got)
	}
}

// A loose file is either skipped or imported as a whole. A file in which one document is a resource
// must not lose another.
func TestLooseFiles(t *testing.T) {
	const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: "
	first := File{Name: "a.yaml", Data: []byte(cluster + "a"), Loose: true}
	for name, c := range map[string]struct{ in, want string }{
		"a Kustomization":                  {"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- a.yaml\n", "clusters/a.yaml x.yaml is ignored: it is not an Envoy configuration"},
		"a list of paths":                  {"resources: [a.yaml]", "clusters/a.yaml x.yaml is ignored: it is not an Envoy configuration"},
		"values of a chart":                {"replicas: 1\nimage: x\nresources: {limits: {cpu: 1}}", "clusters/a.yaml x.yaml is ignored: it is not an Envoy configuration"},
		"two other documents":              {"a: b\n---\nc: d\n", "clusters/a.yaml x.yaml is ignored: it is not an Envoy configuration"},
		"an unreadable file":               {"{{ template }}: {", "clusters/a.yaml x.yaml is ignored: it is not an Envoy configuration"},
		"an unreadable Envoy file":         {"static_resources: {", "x.yaml:1:20: did not find expected node content (the file ends here)\n"},
		"an empty file":                    {"# nothing\n", "clusters/a.yaml "},
		"a resource and other documents":   {cluster + "b\n---\na: b\n---\n" + cluster + "c\n", "x.yaml:4:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource\n"},
		"other documents and a resource":   {"a: b\n---\n" + cluster + "c\n", "x.yaml:1:1: neither an Envoy bootstrap, nor a config_dump, nor a DiscoveryResponse, nor a resource\n"},
		"a response with an unknown field": {"resources: []\nversion_inf: 1", `x.yaml:2:1: unknown field "version_inf" in DiscoveryResponse (did you mean "version_info"?)` + "\n"},
	} {
		t.Run("FILE-8 "+name, func(t *testing.T) {
			im, problems := Do([]File{first, {Name: "x.yaml", Data: []byte(c.in), Loose: true}}, options())
			got := problemText(problems)
			if im != nil {
				got = names(im) + " " + strings.Join(im.Notes, "")
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A mounted ConfigMap has links to files through a hidden directory.
func TestReadDir(t *testing.T) {
	root := t.TempDir()
	put := func(path, content string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("..1/lds.yaml", "resources: []")
	put("sub/cds.json", "{}")
	put("README.md", "")
	put(".hidden.yaml", "")
	for link, to := range map[string]string{"lds.yaml": "..data/lds.yaml", "..data": "..1", "of": "."} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{root, filepath.Join(root, "of")} {
		files, err := ReadDir(at, 1<<20)
		if err != nil || len(files) != 2 || filepath.Base(files[0].Name) != "lds.yaml" || filepath.Base(files[1].Name) != "cds.json" {
			t.Error(files, err)
		}
	}
	if _, err := ReadDir(root, 5); err == nil || !strings.Contains(err.Error(), "--max-file") {
		t.Error(err)
	}
}

// A user who cannot read one of the inputs cannot read the result.
func TestModeOfInputs(t *testing.T) {
	root := t.TempDir()
	mode := func() os.FileMode {
		files, err := ReadDir(root, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return ModeOf(files)
	}
	if got := mode(); got != 0o644 {
		t.Error("SAFE-6 without files:", got)
	}
	for _, f := range []struct {
		name       string
		mode, want os.FileMode
	}{{"a.yaml", 0o664, 0o644}, {"b.yaml", 0o640, 0o640}, {"README.md", 0o600, 0o640}, {"c.yaml", 0o600, 0o600}, {"d.yaml", 0o644, 0o600}} {
		path := filepath.Join(root, f.name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, f.mode); err != nil {
			t.Fatal(err)
		}
		if got := mode(); got != f.want {
			t.Errorf("SAFE-6 with %s of mode %o: %o, want %o", f.name, f.mode, got, f.want)
		}
	}
	if got := ModeOf([]File{{Name: "stdin"}}); got != 0o644 {
		t.Error("mode of an input that is not a file:", got)
	}
}

func TestWrappedResource(t *testing.T) {
	const in = `"@type": type.googleapis.com/envoy.service.discovery.v3.Resource
name: local/shop.example
ttl: 60s
x-chancery: {on_demand: true}
resource:
  "@type": type.googleapis.com/envoy.config.route.v3.VirtualHost
  name: local/shop.example
  domains: [shop.example]
`
	im := do(t, options(), File{Name: "w.yaml", Data: []byte(in)})
	if got := file(t, im, "virtual_hosts/local_shop.example.yaml"); got != in {
		t.Error(got)
	}
}

// The text and binary formats give the same result as YAML.
func TestTextBinaryAndJSON(t *testing.T) {
	const text = `static_resources { clusters { name: "a" connect_timeout { seconds: 1 } } } node { id: "n" }`
	im := do(t, options(), File{Name: "b.pb_text", Data: []byte(text)})
	const want = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\nconnect_timeout: 1s\n"
	if got := file(t, im, "clusters/a.yaml"); got != want {
		t.Error(got)
	}
	im = do(t, options(), File{Name: "b.json", Data: []byte(`{"staticResources": {"clusters": [{"name": "a", "connectTimeout": "1s"}]}}`)})
	if got := file(t, im, "clusters/a.yaml"); got != strings.Replace(want, "connect_timeout", "connectTimeout", 1) {
		t.Error(got)
	}
	if im.Bootstrap == nil || !strings.HasSuffix(string(im.Bootstrap.Data), "\n{}\n") {
		t.Errorf("%s", im.Bootstrap.Data)
	}
	binary := func(name protoreflect.FullName, json string) []byte {
		m := options().Types.New(name).Interface()
		if err := (protojson.UnmarshalOptions{Resolver: options().Types}).Unmarshal([]byte(json), m); err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, json := range map[protoreflect.FullName]string{
		bootstrapName: `{"static_resources": {"listeners": [{"name": "l"}], "clusters": [{"name": "a", "connect_timeout": "1s"}]}, "node": {"id": "n"}}`,
		responseName:  `{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "connect_timeout": "1s"}]}`,
	} {
		im = do(t, options(), File{Name: "b.pb", Data: binary(name, json)})
		if got := file(t, im, "clusters/a.yaml"); got != want {
			t.Error(got)
		}
	}
	// These bytes also decode as a DiscoveryResponse, but with an unknown field.
	im = do(t, options(), File{Name: "b.pb", Data: binary(bootstrapName, `{"node": {"id": "n"}, "admin": {}}`)}, File{Name: "c.yaml", Data: []byte(want)})
	if got := strings.Join(im.Stays, " "); got != "node admin" {
		t.Error(got)
	}
	if _, problems := Do([]File{{Name: "b.pb", Data: []byte("hunter2")}}, options()); problemText(problems) != "b.pb: neither a DiscoveryResponse nor a bootstrap\n" {
		t.Error(problemText(problems))
	}
}
