package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/xds"
)

func TestParseTypeTakesShortNamesMessagesPluralsAndURLs(t *testing.T) {
	for name, want := range map[string]*xds.Type{
		"cds": xds.Cluster, "CDS": xds.Cluster, "cluster": xds.Cluster, "Clusters": xds.Cluster,
		"type.googleapis.com/envoy.config.cluster.v3.Cluster": xds.Cluster, "envoy.config.cluster.v3.Cluster": xds.Cluster,
		"endpoints": xds.Endpoint, "ClusterLoadAssignment": xds.Endpoint, "lds": xds.Listener, "listener": xds.Listener,
		"routes": xds.Route, "scoped-routes": xds.ScopedRoute, "virtual_hosts": xds.VirtualHost, "secret": xds.Secret,
		"extension_config": xds.ExtensionConfig, "runtime": xds.Runtime, "leds": xds.LbEndpoint,
		"acme.v1.Thing": xds.TypeOf(APITypes + "acme.v1.Thing"),
	} {
		if got, err := ParseType(name); err != nil || !got.Is(want) {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	// Each name belongs to a single type.
	by := map[string]*xds.Type{}
	for _, typ := range xds.Types() {
		for _, n := range typeNames(typ) {
			if other := by[normalize(n)]; other != nil && other != typ {
				t.Errorf("%q belongs to %v and %v", n, typ, other)
			}
			by[normalize(n)] = typ
		}
	}
	for arg, want := range map[string]string{
		"cds/a/b": "CDS a/b", "route/xdstp://x/y": "RDS xdstp://x/y", "type.googleapis.com/acme.v1.Thing/a/b": "Thing a/b", "lds": "LDS ",
	} {
		typ, name, err := ParseTypeAndName(arg)
		if got := typ.String() + " " + name; err != nil || got != want {
			t.Errorf("%q: %q, %v", arg, got, err)
		}
	}
	for _, bad := range []string{"", "/a", "x", "clustre/a", "s"} {
		if typ, _, err := ParseTypeAndName(bad); err == nil {
			t.Errorf("%q: %v", bad, typ)
		}
	}
}

// For readers of YAML 1.1 and 1.2, the YAML has the same content as the JSON.
func TestWriteYAMLKeepsContentOfJSON(t *testing.T) {
	in := map[string]any{"a": "yes", "b": "1", "c": 1, "d": true, "e": "true", "f": nil, "g": []string{}, "h": "x: y\n#z", "i": 0.5, "j": "2026-01-01", "k": "on", "l": "~"}
	var out bytes.Buffer
	if err := WriteYAML(&out, in); err != nil {
		t.Fatal(err)
	}
	want := "a: \"yes\"\nb: \"1\"\nc: 1\nd: true\ne: \"true\"\nf: null\ng: []\nh: |-\n  x: y\n  #z\ni: 0.5\nj: \"2026-01-01\"\nk: \"on\"\nl: \"~\"\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

// Text from clients and files cannot move the cursor or reverse the text of a terminal, in any format. Programs
// read it unchanged.
func TestPrintDataEscapesControlCharacters(t *testing.T) {
	const said = "a\u009b2Jb\u202ec\x7f\u2028\u0085 d\ne\U0001f600"
	items := []map[string]string{{said: said}}
	for _, format := range []string{"json", "jsonl", "yaml", "name"} {
		var out bytes.Buffer
		if err := PrintData(&Output{Format: format}, &out, items, items, func(m map[string]string) string { return m[said] }); err != nil {
			t.Fatal(err)
		}
		if got := text.Lines(out.String()); got != out.String() {
			t.Errorf("%s: raw: %s", format, got)
		}
		var back []map[string]string
		var err error
		switch format {
		case "json":
			err = json.Unmarshal(out.Bytes(), &back)
		case "jsonl":
			err = json.Unmarshal([]byte("["+out.String()+"]"), &back)
		case "yaml":
			err = yaml.Unmarshal(out.Bytes(), &back)
		default:
			continue // the output for people is safe, too
		}
		if err != nil || len(back) != 1 || back[0][said] != said {
			t.Errorf("%s: %q, %v, of\n%s", format, back, err, &out)
		}
	}
}
