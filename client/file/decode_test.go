package file

import (
	"errors"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/xds"
)

// read decodes a file with this name and content.
func read(t testing.TB, path, data string) *xds.Response {
	t.Helper()
	tr, err := New(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	return tr.(*transport).decode(xds.Cluster, []byte(data), nil)
}

// show formats a response as one line.
func show(r *xds.Response) string {
	var parts []string
	if r.Version != "" && len(r.Version) < 16 {
		parts = append(parts, r.Version)
	}
	for _, u := range r.Upserts {
		parts = append(parts, u.Name)
	}
	for _, err := range r.Malformed {
		parts = append(parts, "!"+err.Error())
	}
	return strings.Join(parts, " ")
}

func encoded(t testing.TB, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func message(t testing.TB, names ...string) *discovery.DiscoveryResponse {
	t.Helper()
	m := &discovery.DiscoveryResponse{VersionInfo: "1", TypeUrl: xds.Cluster.URL}
	for _, name := range names {
		a, err := anypb.New(&clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(1e9)})
		if err != nil {
			t.Fatal(err)
		}
		m.Resources = append(m.Resources, a)
	}
	return m
}

// A message is the same in all formats, resource by resource.
func TestFormats_FILE1(t *testing.T) {
	m := message(t, "a", "b")
	j, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text, err := prototext.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	const yaml = `version_info: "1"
resources:
- &a {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connect_timeout: 1s}
- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
  name: b
  resource: {<<: *a, name: b}
`
	want := read(t, "x.pb", encoded(t, m))
	for name, data := range map[string]string{"x.json": string(j), "x.JSON": string(j), "x.pb_text": string(text), "x.txtpb": string(text), "x.textproto": string(text), "x.yaml": yaml, "x.yml": yaml} {
		r := read(t, name, data)
		if show(r) != "1 a b" {
			t.Errorf("%s: %s", name, show(r))
			continue
		}
		for i, u := range r.Upserts {
			if string(u.Body) != string(want.Upserts[i].Body) {
				t.Errorf("%s: %s is %q, want %q", name, u.Name, u.Body, want.Upserts[i].Body)
			}
		}
	}
	if r := read(t, "x.json", `{"resources": []}`); len(r.Version) != 16 || len(r.Malformed) > 0 {
		t.Errorf("without a version: %q %s", r.Version, show(r))
	}
	for path, want := range map[string]string{"": "is empty", "x": "must end with .json, .pb,", "x.toml": "must end with"} {
		if _, err := New(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Each error has its position, and the other resources are in the response.
func TestErrorsHavePositions_FILE3(t *testing.T) {
	const a = `{"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a}`
	for _, tt := range []struct{ file, data, want string }{
		{"x.yaml", "resources:\n- " + a + "\n- {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, nam: b}\n", `a !x.yaml:3:66: resources[1]: unknown field "nam"`},
		{"x.yaml", "resources:\n- {name: a}\n- " + a, "a !x.yaml:2:3: resources[0]: "},
		{"x.yaml", "resources:\n- " + a + "\n- {\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener, name: l}\n", `a !x.yaml:3:3: resources[1]: is a type.googleapis.com/envoy.config.listener.v3.Listener called "l"`},
		{"x.yaml", "resources:\n- {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster}\n", "!x.yaml:2:3: resources[0]: "},
		{"x.yaml", "resources: " + a, "a"},
		{"x.yaml", "resources: 1", "!x.yaml:1:12: resources: a list is needed"},
		{"x.yaml", "resources: [\n", "!x.yaml:"},
		{"x.yaml", "resorces: []\n", "!x.yaml:1:1: unknown field"},
		{"x.yaml", "# nothing\n", "!x.yaml: the file has no DiscoveryResponse"},
		{"x.yaml", "{}\n---\n{}\n", "!x.yaml:3:1: a second document"},
		{"x.yaml", a, "!x.yaml:1:11: the file must hold a DiscoveryResponse"},
		{"x.yaml", "- 1", "!x.yaml:1:1: a mapping is needed"},
		{"x.yaml", "a: \xff", "!x.yaml:1:4: this is not text"},
		{"x.json", `{"resources": [{"@type"`, "!x.json:1:24: the file ends in the middle"},
		{"x.json", "\x00", "!x.json:1:1: this is not text"},
		{"x.pb_text", "version_info: \"1\"\nnonsense: 1\n", "!x.pb_text:2:1: unknown field (the file must hold a DiscoveryResponse)"},
		{"x.pb_text", "\x00", "!x.pb_text:1:1: this is not text"},
		{"x.pb", "\x0a\x7f", "!x.pb: malformed DiscoveryResponse"},
		{"x.pb", encoded(t, &discovery.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: xds.Cluster.URL, Value: []byte("\x0a\x7f")}}}), "!x.pb: resources[0]: malformed"},
	} {
		if got := show(read(t, tt.file, tt.data)); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %q: %s, want %s", tt.file, tt.data, got, tt.want)
		}
	}
	r := read(t, "x.yaml", "resources:\n"+strings.Repeat("- {}\n", 150))
	if n := len(r.Malformed); n != 101 || r.Malformed[100].Error() != "x.yaml: and 50 more" {
		t.Errorf("%d mistakes, the last %v", n, r.Malformed[n-1])
	}
}

// Any file content gives a response of the requested type.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "{}", "resources: [{}]", `{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}]}`,
		`resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "a" } }`, encoded(f, message(f, "a", "b"))} {
		for i := range extensions() {
			f.Add(uint(i), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, form uint, data []byte) {
		ends := extensions()
		r := read(t, "x"+ends[form%uint(len(ends))], string(data))
		if r.Type == nil || !r.Type.Is(xds.Cluster) || r.Changes == nil || r.Version == "" {
			t.Fatalf("%+v", r)
		}
		for _, u := range r.Upserts {
			if u.Name == "" || u.CheckType(xds.Cluster) != nil {
				t.Fatalf("%+v", u)
			}
		}
		for _, err := range r.Malformed {
			if e, ok := errors.AsType[*xds.MalformedError](err); !ok || e.Err == nil || err.Error() == "" {
				t.Fatal(err)
			}
		}
	})
}
