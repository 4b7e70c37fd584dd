package importer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/envoy/bootstrap"
)

// ours is the bootstrap made from flags alone.
func ours(t *testing.T) []byte {
	t.Helper()
	b, err := bootstrap.Envoy(bootstrap.Options{Node: "flag", Cluster: "flags", Server: "xds.example:18000", Delta: true, Admin: "127.0.0.1:9902"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// flat returns JSON without white space.
func flat(t *testing.T, b []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestComplete(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		keep   Keep
		has    []string
		hasNot []string
	}{
		"nothing": {
			"", Keep{Node: true, Cluster: true, Admin: true},
			[]string{`"cluster":"flags","id":"flag"`, `"name":"xds"`, `"cluster_name":"xds"`, `"api_type":"DELTA_GRPC"`}, []string{`"admin"`},
		},
		"values of the file": {
			"node: {id: file, metadata: {a: b}}\nadmin: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}\nflags_path: /f", Keep{Node: true, Cluster: true, Admin: true},
			[]string{`"id":"file"`, `"cluster":"flags"`, `"metadata":{"a":"b"}`, `"port_value":1}`, `"flags_path":"/f"`}, []string{"9902"},
		},
		"values of the flags": {
			"node: {id: file, cluster: files}\nadmin: {profile_path: /p, address: {socket_address: {address: 127.0.0.1, port_value: 1}}}", Keep{},
			[]string{`"cluster":"flags","id":"flag"`, `"port_value":9902`, `"profile_path":"/p"`}, []string{`"port_value":1}`},
		},
		"another server": {
			"dynamic_resources: {lds_config: {path: /lds}, ads_config: {api_type: GRPC}}", Keep{}, []string{`"lds_config":{"ads":{},`}, []string{"/lds", `"api_type":"GRPC"`},
		},
		"a cluster with the server's name": {
			"static_resources: {clusters: [{name: xds}, {name: b}]}\nstats_sinks: [{name: xds}]", Keep{},
			[]string{`"clusters":[{"name":"xds"},{"name":"b"},{"`, `"load_assignment":{"cluster_name":"xds-2"`, `"name":"xds-2"`, `"envoy_grpc":{"cluster_name":"xds-2"}`, `"stats_sinks":[{"name":"xds"}]`}, nil,
		},
	} {
		t.Run("FILE-8 "+name, func(t *testing.T) {
			b, notes, problems := Complete(File{Name: "b.yaml", Data: []byte(c.in)}, ours(t), c.keep, options())
			if b == nil || len(notes) > 0 {
				t.Fatal(notes, problems)
			}
			got := flat(t, b)
			for _, want := range c.has {
				if !strings.Contains(got, want) {
					t.Errorf("no %s in\n%s", want, got)
				}
			}
			for _, not := range c.hasNot {
				if strings.Contains(got, not) {
					t.Errorf("%s in\n%s", not, got)
				}
			}
		})
	}
	_, notes, _ := Complete(File{Name: "b.yaml", Data: []byte("static_resources: {listeners: [{name: a}]}")}, ours(t), Keep{}, options())
	if got := strings.Join(notes, ""); !strings.Contains(got, "b.yaml has 1 listener of its own") {
		t.Error(got)
	}
	for in, want := range map[string]string{
		"nod: {}":             `b.yaml:1:1: unknown field "nod" in Bootstrap (did you mean "node"?)`,
		"{":                   "b.yaml:1:2: did not find expected node content (the file ends here)",
		"static_resources: x": "b.yaml:1:19: static_resources: StaticResources is a message and needs a mapping, not a string",
	} {
		if b, _, problems := Complete(File{Name: "b.yaml", Data: []byte(in)}, ours(t), Keep{}, options()); b != nil || problemText(problems) != want+"\n" {
			t.Errorf("%s", problemText(problems))
		}
	}
}
