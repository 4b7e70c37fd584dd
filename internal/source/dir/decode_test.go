package dir

import (
	"fmt"
	"strings"
	"testing"

	_ "github.com/chancery-xds/chancery/internal/envoyprotos"
)

const clusterURL = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster`

// story prints what decode found: a line for each resource and each error.
func story(loaded []Loaded, errs []Error) string {
	var b strings.Builder
	for _, l := range loaded {
		fmt.Fprintf(&b, "%s %s at %s", l.Type, l.Name, l.Pos)
		if l.Aliases != nil {
			fmt.Fprintf(&b, " aliases %v", l.Aliases)
		}
		if l.TTL != 0 {
			fmt.Fprintf(&b, " ttl %v", l.TTL)
		}
		if l.version != "" {
			fmt.Fprintf(&b, " in %s", l.version)
		}
		for _, r := range l.Refs {
			fmt.Fprintf(&b, " → %s %s", r.Type, r.Name)
		}
		if l.Refs == nil {
			b.WriteString(" references unknown")
		}
		b.WriteByte('\n')
	}
	for _, e := range errs {
		b.WriteString(strings.ReplaceAll(e.Error(), "\u00a0", " ") + "\n")
	}
	return b.String()
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct{ name, file, in, want string }{
		{"one resource", "c.yaml", clusterURL + `
name: a
connect_timeout: 1s
`, "CDS a at c.yaml:1:1\n"},
		{"a response, as Envoy reads it", "c.yaml", `
version_info: v7
resources:
- ` + clusterURL + `
  name: a
  type: EDS
  eds_cluster_config: {service_name: s, eds_config: {ads: {}}}
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: s
`, "CDS a at c.yaml:4:3 in v7 → EDS s\nEDS s at c.yaml:8:3 in v7\n"},
		{"a response that says so", "c.yaml", `
"@type": type.googleapis.com/envoy.service.discovery.v3.DiscoveryResponse
typeUrl: type.googleapis.com/envoy.config.cluster.v3.Cluster
resources: [{` + clusterURL + `, name: a}]
`, "CDS a at c.yaml:4:13\n"},
		{"an empty response", "c.yaml", "resources: []\n---\nresources:\n", ""},
		{"the wrapper, as document and as entry", "c.yaml", `
"@type": type.googleapis.com/envoy.service.discovery.v3.Resource
name: outer
aliases: [x, y]
ttl: 30s
resource: {` + clusterURL + `, name: inner}
---
resources:
- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
  resource:
    ` + clusterURL + `
    name: own
`, "CDS outer at c.yaml:2:1 aliases [x y] ttl 30s\nCDS own at c.yaml:9:3\n"},
		{"several documents", "c.yml", "# nothing yet\n---\n" + clusterURL + "\nname: a\n---\n---\n" + clusterURL + "\nname: b\n...\n",
			"CDS a at c.yml:3:1\nCDS b at c.yml:7:1\n"},
		{"JSON with tabs, escapes and two documents", "c.json", "{\n\t\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\",\n\t\"name\": \"a\\/\\ud83d\\ude00\"}\n{\"resources\": [\n\t{" + strings.ReplaceAll(clusterURL, ": type", `: "type`) + `", "name": "b"}]}`,
			"CDS a/😀 at c.json:1:1\nCDS b at c.json:5:2\n"},
		{"a type that the table does not list", "c.yaml", `"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
name: e
typed_config: {"@type": type.googleapis.com/envoy.config.core.v3.HttpUri, uri: u, cluster: c}
---
"@type": type.googleapis.com/envoy.config.listener.v3.Filter
name: f
`, "ECDS e at c.yaml:1:1 → CDS c\nFilter f at c.yaml:5:1\n"},
		{"anchors, aliases and merge keys", "c.yaml", `
resources:
- &a
  ` + clusterURL + `
  name: a
  connect_timeout: &t 1s
- {<<: *a, name: b}
- {name: c, <<: [{connect_timeout: *t}, *a]}
- *a
`, "CDS a at c.yaml:3:3\nCDS b at c.yaml:7:3\nCDS c at c.yaml:8:3\nCDS a at c.yaml:9:3\n"},
		{"numbers as YAML writes them", "c.yaml", `
"@type": type.googleapis.com/envoy.service.runtime.v3.Runtime
name: r
layer: {a: 0x1f, b: 1_000, c: .5, d: 1e3, e: 2001-01-01, f: yes, g: True, h: ~, i: -0o17, j: "1"}
`, "RTDS r at c.yaml:2:1\n"},

		{"an unknown field", "c.yaml", clusterURL + "\nname: a\nconect_timeout: 1s\n", "c.yaml:3:1: unknown field \"conect_timeout\"\n"},
		{"an unknown field inside an Any", "l.yaml", `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: l
filter_chains:
- filters:
  - name: f
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
      stat_prefx: x
`, "l.yaml:8:7: unknown field \"stat_prefx\"\n"},
		{"a value of another type", "c.yaml", clusterURL + "\nname:\n  12\n", "c.yaml:3:3: invalid value for string field name: 12\n"},
		{"a duration Envoy would not read", "c.yaml", clusterURL + "\nname: a\nconnect_timeout: 5m\n", "c.yaml:3:18: invalid google.protobuf.Duration value \"5m\"\n"},
		{"in JSON", "c.json", `{"resources": [
  {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
   "name": 12}]}`, "c.json:3:12: invalid value for string field name: 12\n"},
		{"a mistake in an aliased place is told at the alias", "c.yaml", "resources:\n- {" + clusterURL + ", name: &n [x]}\n- {" + clusterURL + ",\n   name: *n}\n",
			"c.yaml:2:72: invalid value for string field name: [\nc.yaml:4:10: invalid value for string field name: [\n"},
		{"each resource's first mistake", "c.yaml", "resources:\n- {" + clusterURL + ", nam: a}\n- {" + clusterURL + ", name: b}\n- name: c\n- 7\n- {" + clusterURL + "}\n",
			"CDS b at c.yaml:3:3\n" +
				"c.yaml:2:66: unknown field \"nam\"\nc.yaml:4:3: no \"@type\"\nc.yaml:5:3: want a mapping, not a scalar\nc.yaml:6:3: CDS resource without a name\n"},
		{"a duplicate key", "c.yaml", clusterURL + "\nname: a\nmetadata:\n  filter_metadata: {x: {k: 1, k: 2}}\n", "c.yaml:4:31: key \"k\" is already on line 4\n"},
		{"a duplicate key in JSON", "c.json", "{\n \"resources\": [],\n \"resources\": []}", "c.json:3:2: key \"resources\" is already on line 2\n"},
		{"an unknown type", "c.yaml", `"@type": type.googleapis.com/envoy.Nothing`, "c.yaml:1:10: unknown type \"type.googleapis.com/envoy.Nothing\"\n"},
		{"an unknown type inside", "c.yaml", "\"@type\": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig\nname: e\ntyped_config:\n  \"@type\": type.googleapis.com/x.Y\n",
			"c.yaml:4:12: unable to resolve \"type.googleapis.com/x.Y\": \"not found\"\n"},
		{"a type without its prefix", "c.yaml", `"@type": envoy.config.cluster.v3.Cluster`, "c.yaml:1:10: type \"envoy.config.cluster.v3.Cluster\": want a URL that begins with \"type.googleapis.com/\"\n"},
		{"not a resource", "c.yaml", "name: a\n", "c.yaml:1:1: neither \"@type\" nor \"resources\": want a resource, a DiscoveryResponse or the protocol's Resource\n"},
		{"a list of resources", "c.yaml", "- {" + clusterURL + ", name: a}\n", "c.yaml:1:1: want a mapping, not a list\n"},
		{"Envoy's bootstrap", "c.yaml", "node: {id: x}\nstatic_resources: {}\n", "c.yaml:1:1: this is Envoy's bootstrap, not a resource: it belongs outside of this directory\n"},
		{"a virtual host without a wrapper", "c.yaml", "\"@type\": type.googleapis.com/envoy.config.route.v3.VirtualHost\nname: v\ndomains: [\"*\"]\n",
			"c.yaml:1:1: a VirtualHost is known to the protocol by a name that is none of its fields: put it into a Resource (\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource) with name and resource\n"},
		{"a wrapper around nothing", "c.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\nname: a\n", "c.yaml:1:1: a Resource without its resource\n"},
		{"a wrapper that says what would be lost", "c.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\ncache_control: {do_not_cache: true}\nresource: {" + clusterURL + ", name: a}\n",
			"c.yaml:1:1: cache_control of a Resource is not supported\n"},
		{"a TTL of nothing", "c.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\nttl: 0s\nresource: {" + clusterURL + ", name: a}\n",
			"c.yaml:1:1: a ttl of 0s: want more than zero\n"},
		{"names that mean something else", "c.yaml", clusterURL + "\nname: \"*\"\n---\n\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\naliases: [\"*\"]\nresource: {" + clusterURL + ", name: a}\n",
			"c.yaml:1:1: the name \"*\" is reserved: it subscribes to all resources\nc.yaml:4:1: an alias that is empty or \"*\"\n"},
		{"TYP-7 another type than the response's", "c.yaml", "type_url: type.googleapis.com/envoy.config.listener.v3.Listener\nresources:\n- {" + clusterURL + ", name: a}\n",
			"c.yaml:3:3: type.googleapis.com/envoy.config.cluster.v3.Cluster, in a response whose type_url is type.googleapis.com/envoy.config.listener.v3.Listener\n"},
		{"an unknown field of a response", "c.yaml", "version: x\nresources: []\n", "c.yaml:1:1: unknown field \"version\"\n"},
		{"resources that are no list", "c.yaml", "resources: {a: b}\n", "c.yaml:1:12: resources is not a list\n"},
		{"YAML that is none", "c.yaml", clusterURL + "\nname: a\n---\na: b: c\n", "CDS a at c.yaml:1:1\nc.yaml:4: mapping values are not allowed in this context\n"},
		{"half a JSON file", "c.json", "{\"resources\": [\n  {\"@type\": ", "c.json:2:13: unexpected EOF\n"},
		{"JSON that is none", "c.json", "{\"resources\":\n  nope}", "c.json:2:3: invalid character 'o' in literal null (expecting 'u')\n"},
		{"a tag", "c.yaml", clusterURL + "\nname: !include x\n", "c.yaml:2:7: tag !include has no meaning here\n"},
		{"a merge of itself", "c.yaml", "resources: [&a {<<: *a}]\n", "c.yaml:1:21: merged into itself\n"},
		{"an anchor that contains itself", "c.yaml", clusterURL + "\nname: a\nmetadata: &m {filter_metadata: *m}\n", "c.yaml:3:32: nested deeper than 500\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := story(decode(tt.file, []byte(tt.in))); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// A few lines of aliases of aliases must not become gigabytes.
func TestDecodeAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString(`"@type": type.googleapis.com/envoy.service.runtime.v3.Runtime` + "\nname: r\nlayer:\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := range 20 {
		fmt.Fprintf(&b, "  a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	_, errs := decode("bomb.yaml", []byte(b.String()))
	if len(errs) != 1 || !strings.Contains(errs[0].Text, "repeat too much") {
		t.Errorf("got %v", errs)
	}
}

func TestDecodeMergeBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("resources:\n- &a0 {" + clusterURL + ", name: a}\n")
	for i := range 50 {
		fmt.Fprintf(&b, "- &a%d {<<: [%s], name: b%d}\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), i)
	}
	if loaded, errs := decode("bomb.yaml", []byte(b.String())); len(loaded) != 51 || len(errs) > 0 {
		t.Errorf("%d resources, %v", len(loaded), errs)
	}
}

// The bytes decide the version, so an encoder that writes others would send
// every resource to every client again. Golden, to be changed knowingly.
func TestDecodeVersions(t *testing.T) {
	t.Run("SOTW-13 golden versions", func(t *testing.T) {
		loaded, errs := decode("x.yaml", []byte(`
resources:
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connect_timeout: 0.25s, metadata: {filter_metadata: {x: {b: 1, a: 2}, w: {}}}}
- {"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig, name: e, typed_config: {"@type": type.googleapis.com/google.protobuf.Struct, value: {z: 1, y: [true, null]}}}
`))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for i, want := range []string{"6925a7c5a4e439c4", "ef63a3ba358da974"} {
			if got := loaded[i].Version; got != want {
				t.Errorf("%s: version %s, want %s", loaded[i].Name, got, want)
			}
		}
	})
}

// Whatever the file, decode returns, and places are inside of it.
func FuzzDecode(f *testing.F) {
	f.Add("c.yaml", clusterURL+"\nname: a\n---\nresources: [&a {"+clusterURL+", name: b}, {<<: *a}]\n")
	f.Add("c.json", `{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": 12}]}`)
	f.Add("c.yaml", `"@type": type.googleapis.com/envoy.service.discovery.v3.Resource`+"\nname: a\nttl: 1s\nresource: {"+clusterURL+"}\n")
	f.Fuzz(func(t *testing.T, file, data string) {
		loaded, errs := decode(file, []byte(data))
		lines := strings.Count(data, "\n") + strings.Count(data, "\r") + strings.Count(data, "\u0085") + strings.Count(data, "\u2028") + strings.Count(data, "\u2029") + 2
		for _, l := range loaded {
			if l.Name == "" || l.Refs == nil || l.Line < 1 || l.Line > lines {
				t.Errorf("loaded %q at %v of %d lines, references %v", l.Name, l.Pos, lines, l.Refs)
			}
		}
		for _, e := range errs {
			if e.Line > lines {
				t.Errorf("%v: of %d lines", e, lines)
			}
		}
	})
}
