package dir

import (
	"fmt"
	"strings"
	"testing"
)

const (
	clusterURL = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster`
	wrapperURL = `"@type": type.googleapis.com/envoy.service.discovery.v3.Resource`
)

func vhds(name string) string {
	return "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\nname: " + name + "\nresource: {\"@type\": type.googleapis.com/envoy.config.route.v3.VirtualHost, name: v}\n"
}

// decoded prints what decode found: a line for each resource and each error.
func decoded(d *decoder) string {
	var b strings.Builder
	for _, l := range d.loaded {
		fmt.Fprintf(&b, "%s %s at %s", l.Type, l.Name, l.Pos)
		if l.Aliases != nil {
			fmt.Fprintf(&b, " aliases %v", l.Aliases)
		}
		if l.TTL != 0 {
			fmt.Fprintf(&b, " ttl %v", l.TTL)
		}
		if l.OnDemand {
			b.WriteString(" on demand")
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
	for _, p := range d.Problems {
		b.WriteString(p.Error() + "\n")
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
		{"a response with its own @type", "c.yaml", `
"@type": type.googleapis.com/envoy.service.discovery.v3.DiscoveryResponse
typeUrl: type.googleapis.com/envoy.config.cluster.v3.Cluster
resources: [{` + clusterURL + `, name: a}]
`, "CDS a at c.yaml:4:13\n"},
		{"an empty response", "c.yaml", "resources: []\n---\nresources:\n", ""},
		{"the wrapper, as document and as entry", "c.yaml", `
"@type": type.googleapis.com/envoy.service.discovery.v3.Resource
name: outer
aliases: [x, z]
ttl: 30s
resource: {` + clusterURL + `, name: outer}
---
resources:
- "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
  resource:
    ` + clusterURL + `
    name: own
`, "CDS outer at c.yaml:2:1 aliases [x z] ttl 30s\nCDS own at c.yaml:9:3\n"},
		{"several documents", "c.yml", "# nothing yet\n---\n" + clusterURL + "\nname: a\n---\n---\n" + clusterURL + "\nname: b\n...\n",
			"CDS a at c.yml:3:1\nCDS b at c.yml:7:1\n"},
		{"JSON with tabs, escapes and two documents", "c.json", "{\n\t\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\",\n\t\"name\": \"a\\/\\ud83d\\ude00\"}\n",
			"CDS a/😀 at c.json:1:1\n"},
		{"two JSON documents", "c.json", "{}\n{}", "c.json:2:1: more after the end of the value\n"},
		{"a type that the table does not list", "c.yaml", `"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
name: e
typed_config: {"@type": type.googleapis.com/envoy.config.core.v3.HttpUri, uri: u, cluster: c}
---
"@type": type.googleapis.com/envoy.config.listener.v3.Filter
name: f
`, "ECDS e at c.yaml:1:1 → CDS c\nFilter f at c.yaml:5:1 → CDS *\n"},
		{"anchors, aliases and merge keys", "c.yaml", `
resources:
- &a
  ` + clusterURL + `
  name: a
  connect_timeout: &t 1s
- {<<: *a, name: b}
- {name: c, <<: [{connect_timeout: *t}, *a]}
- *a
`, "CDS a at c.yaml:3:3\nCDS b at c.yaml:7:3\nCDS c at c.yaml:8:3\nCDS a at c.yaml:9:3\nc.yaml:7:4: warning: resources[1]: merge key (Envoy's own reader refuses merge keys)\nc.yaml:8:13: warning: resources[2]: merge key (Envoy's own reader refuses merge keys)\n"},
		{"numbers as YAML writes them", "c.yaml", `
"@type": type.googleapis.com/envoy.service.runtime.v3.Runtime
name: r
layer: {a: 0x1f, b: 1_000, c: .5, d: 1e3, e: 2001-01-01, f: yes, g: True, h: ~, i: -0o17, j: "1"}
`, "RTDS r at c.yaml:2:1\n" +
			"c.yaml:4:31: warning: layer[\"c\"]: Envoy's own reader reads float .5 as text, and Chancery reads 0.5 (for text, put it in quotes; only a .json file has a number with a fraction or an exponent for every reader)\n" +
			"c.yaml:4:38: warning: layer[\"d\"]: Envoy's own reader reads float 1e3 as text, and Chancery reads 1000 (for text, put it in quotes; only a .json file has a number with a fraction or an exponent for every reader)\n" +
			"c.yaml:4:61: warning: layer[\"f\"]: Envoy's own reader reads the bare word \"yes\" as true, and Chancery reads text (write true, or put it in quotes)\n"},

		{"an unknown field", "c.yaml", clusterURL + "\nname: a\nconect_timeout: 1s\n", "c.yaml:3:1: unknown field \"conect_timeout\" in Cluster (did you mean \"connect_timeout\"?)\n"},
		{"an unknown field inside an Any", "l.yaml", `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: l
filter_chains:
- filters:
  - name: f
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
      stat_prefx: x
`, "l.yaml:8:7: filter_chains[0].filters[0].typed_config: unknown field \"stat_prefx\" in TcpProxy (did you mean \"stat_prefix\"?)\n"},
		{"a value of another type", "c.yaml", clusterURL + "\nname:\n  12\n", "CDS 12 at c.yaml:1:1\nc.yaml:3:3: warning: name: int 12 for a string (put it in quotes: Envoy's own reader refuses a bare number or word for a string)\n"},
		{"a duration Envoy would not read", "c.yaml", clusterURL + "\nname: a\nconnect_timeout: 5m\n", "CDS a at c.yaml:1:1\nc.yaml:3:18: warning: connect_timeout: the duration \"5m\" (write seconds: Envoy's own reader accepts only seconds)\n"},
		{"in JSON", "c.json", `{"resources": [
  {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
   "name": 12}]}`, "CDS 12 at c.json:2:3\nc.json:3:12: warning: resources[0].name: int 12 for a string (put it in quotes: Envoy's own reader refuses a bare number or word for a string)\n"},
		{"a mistake in an aliased value is reported at the alias", "c.yaml", "resources:\n- {" + clusterURL + ", name: &n [x]}\n- {" + clusterURL + ",\n   name: *n}\n",
			"c.yaml:2:72: resources[0].name: a string is needed, not a list\nc.yaml:2:72: resources[1].name: a string is needed, not a list\n"},
		{"mistakes of several resources", "c.yaml", "resources:\n- {" + clusterURL + ", nam: a}\n- {" + clusterURL + ", name: b}\n- name: c\n- 7\n- {" + clusterURL + "}\n",
			"CDS b at c.yaml:3:3\n" +
				"c.yaml:2:66: resources[0]: unknown field \"nam\" in Cluster (did you mean \"name\"?)\n" +
				"c.yaml:4:3: resources[2]: no \"@type\" (for example \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster)\n" +
				"c.yaml:5:3: resources[3]: a mapping is needed, not a number or a bare word\n" +
				"c.yaml:6:3: resources[4]: CDS resource without a name\n"},
		{"all mistakes of a resource", "c.yaml", clusterURL + "\nnam: a\ntype: EDDS\n",
			"c.yaml:2:1: unknown field \"nam\" in Cluster (did you mean \"name\"?)\nc.yaml:3:7: type: DiscoveryType has no value \"EDDS\" (did you mean EDS?)\n"},
		{"a duplicate key", "c.yaml", clusterURL + "\nname: a\nmetadata:\n  filter_metadata: {x: {k: 1, k: 2}}\n", "c.yaml:4:31: metadata.filter_metadata[\"x\"]: duplicate key \"k\", first on line 4\n"},
		{"a duplicate key in JSON", "c.json", "{\n \"resources\": [],\n \"resources\": []}", "c.json:3:2: duplicate key \"resources\", first on line 2\n"},
		{"an unknown type", "c.yaml", `"@type": type.googleapis.com/envoy.Nothing`, "c.yaml:1:10: no message type is known as \"envoy.Nothing\"\n"},
		{"an unknown type inside", "c.yaml", "\"@type\": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig\nname: e\ntyped_config:\n  \"@type\": type.googleapis.com/x.Y\n",
			"c.yaml:4:12: typed_config: no message type is known as \"x.Y\"\n"},
		{"a type without its prefix", "c.yaml", `"@type": envoy.config.cluster.v3.Cluster`, "c.yaml:1:10: \"@type\" must be a full type URL, which begins with type.googleapis.com/ (did you mean \"type.googleapis.com/envoy.config.cluster.v3.Cluster\"?)\n"},
		{"a type by its short name", "c.yaml", `"@type": CDS`, "c.yaml:1:10: \"@type\" must be a full type URL, which begins with type.googleapis.com/ (did you mean \"type.googleapis.com/envoy.config.cluster.v3.Cluster\"?)\n"},
		{"a text that is not a type", "c.yaml", `"@type": 7`, "c.yaml:1:10: \"@type\" must be a full type URL, which begins with type.googleapis.com/ (for example \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster)\n"},
		{"type_url for @type", "c.yaml", "name: a\ntype_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\n", "c.yaml:1:1: neither \"@type\" nor \"resources\" (did you mean \"@type\" and not \"type_url\"?)\n"},
		{"type for @type, in a response", "c.yaml", "resources:\n- name: a\n  type: type.googleapis.com/envoy.config.cluster.v3.Cluster\n", "c.yaml:2:3: resources[0]: no \"@type\" (did you mean \"@type\" and not \"type\"?)\n"},
		{"TYP-7 a response of a type that there is not", "c.json", "{\"typeUrl\": \"type.googleapis.com/envoy.config.cluster.v3.Clustr\",\n\"resources\": [{\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"name\": \"a\"}]}",
			"CDS a at c.json:2:15\nc.json:1:13: type_url: no message type is known as \"envoy.config.cluster.v3.Clustr\" (did you mean \"type.googleapis.com/envoy.config.cluster.v3.Cluster\"?)\n"},
		{"TYP-7 a response whose type has no prefix", "c.yaml", "type_url: Cluster\nresources:\n- {" + clusterURL + ", name: a}\n",
			"CDS a at c.yaml:3:3\nc.yaml:1:11: type_url: this must be a full type URL, which begins with type.googleapis.com/ (did you mean \"type.googleapis.com/envoy.config.cluster.v3.Cluster\"?)\n"},
		{"not a resource", "c.yaml", "name: a\n", "c.yaml:1:1: neither \"@type\" nor \"resources\" (it must be a resource, a DiscoveryResponse or the protocol's Resource)\n"},
		{"rules of a group under another name", "g/group.yml", "match: {id: x}\n", "g/group.yml:1:1: neither \"@type\" nor \"resources\" (rules of a group must be in a file with the name group.yaml)\n"},
		{"a list of resources", "c.yaml", "- {" + clusterURL + ", name: a}\n", "c.yaml:1:1: a mapping is needed, not a list (write several resources as documents separated by ---, or as a list below \"resources:\")\n"},
		{"Envoy's bootstrap", "c.yaml", "node: {id: x}\nstatic_resources: {}\n", "c.yaml:1:1: this is an Envoy bootstrap, not a resource (chancery import c.yaml --out DIR converts it)\n"},
		{"a config_dump", "it's.json", `{"configs": []}`, "it's.json:1:1: this is a config_dump of Envoy, not a resource (chancery import 'it'\\''s.json' --out DIR converts it)\n"},
		{"a virtual host without a wrapper", "c.yaml", "\"@type\": type.googleapis.com/envoy.config.route.v3.VirtualHost\nname: v\ndomains: [\"*\"]\n",
			"c.yaml:1:1: the name of a VHDS resource must be ROUTE/HOST (the name of the route configuration, and the host), not \"v\" (change its name, or put it into a Resource (\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource) with name and resource)\n"},
		{"a virtual host without a wrapper, whose name contains its route", "c.yaml", "\"@type\": type.googleapis.com/envoy.config.route.v3.VirtualHost\nname: r/v\ndomains: [\"*\"]\n",
			"VHDS r/v at c.yaml:1:1\n"},
		{"VHDS by its own name in a nameless wrapper", "c.yaml", strings.Replace(strings.Replace(vhds(""), "name: \n", "", 1), "name: v", "name: r/v", 1), "VHDS r/v at c.yaml:1:1\n"},
		{"VHDS by its wrapper's name", "c.yaml", vhds("r/v"), "VHDS r/v at c.yaml:1:1\n"},
		{"VHDS by a name without a route", "c.yaml", vhds("v"), "c.yaml:1:1: the name of a VHDS resource must be ROUTE/HOST (the name of the route configuration, and the host), not \"v\"\n"},
		{"LEDS without a wrapper", "c.yaml", "\"@type\": type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint\n",
			"c.yaml:1:1: an LbEndpoint has no field for its name (put it into a Resource (\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource) with name and resource)\n"},
		{"SUB-6 on demand, wrapped or not", "c.yaml", "resources:\n- {" + clusterURL + ", name: a, x-chancery: {on_demand: true}}\n- {" + clusterURL + ", name: b, x-chancery: {on_demand: false}}\n" +
			"- {" + wrapperURL + ", name: c, x-chancery: {on_demand: True}, resource: {" + clusterURL + ", name: c}}\n- {" + wrapperURL + ", name: d, resource: {" + clusterURL + ", name: d, x-chancery: {on_demand: true}}}\n",
			"CDS a at c.yaml:2:3 on demand\nCDS b at c.yaml:3:3\nCDS c at c.yaml:4:3 on demand\nCDS d at c.yaml:5:3 on demand\n"},
		{"the extension key, with mistakes", "c.yaml", "resources:\n- {" + clusterURL + ", name: a,\n   x-chancery: {ondemand: true}}\n- {" + clusterURL + ", name: b,\n   x-chancery: {on_demand: 1}}\n- {" + clusterURL + ", name: c,\n   x-chancery: 1}\n",
			"c.yaml:3:17: resources[0].x-chancery: unknown key \"ondemand\" (the keys are groups and on_demand)\nc.yaml:5:28: resources[1].x-chancery.on_demand: true or false is needed\nc.yaml:7:16: resources[2].x-chancery: a mapping is needed, not a number or a bare word\n"},
		{"NAME-2 canonical names, aliases and references", "c.yaml", wrapperURL + "\nname: xdstp://a/t/x?b=1&a=2\naliases: [\"xdstp://a/t/y?b=1&a=2\", \"plain?b&a\"]\nresource: {" + clusterURL + ", name: \"xdstp://a/t/x?a=2&b=1\", type: EDS, eds_cluster_config: {service_name: \"xdstp://a/t/e?b=1&a=2\"}}\n",
			"CDS xdstp://a/t/x?a=2&b=1 at c.yaml:1:1 aliases [xdstp://a/t/y?a=2&b=1 plain?b&a] → EDS xdstp://a/t/e?a=2&b=1\n"},
		{"binary in YAML", "c.yaml", "a: b\nc: \x00\x01", "c.yaml:2:4: this is not text: byte 0x00\n"},
		{"binary in JSON", "c.json", "{\"\xff", "c.json:1:3: this is not text: byte 0xff\n"},
		{"truncated YAML", "c.yaml", clusterURL + "\nname: \"a\n", "c.yaml:2:9: found unexpected end of stream (in the text whose quotes begin at 2:7)\n"},
		{"truncated YAML in a list", "c.yaml", "resources: [\n {" + clusterURL + ",", "c.yaml:2:64: did not find expected node content (the file ends here)\n"},
		{"an empty file", "c.yaml", "", "c.yaml: warning: the file is empty; a running server rejects a file that has become empty\n"},
		{"an empty file in binary", "c.pb", "", "c.pb: warning: the file is empty; a running server rejects a file that has become empty\n"},
		{"a wrapper around nothing", "c.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\nname: a\n", "c.yaml:1:1: the Resource has no field \"resource\"\n"},
		{"CLI-15 a wrapper with another name", "c.yaml", wrapperURL + "\nname: outer\nresource: {" + clusterURL + ", name: inner}\n---\nresources:\n- " + wrapperURL + "\n  name: xdstp://a/t/n?b=1&a=2\n  resource: {" + clusterURL + ", name: \"xdstp://a/t/n?a=2&b=1\"}\n",
			"CDS xdstp://a/t/n?a=2&b=1 at c.yaml:6:3\nc.yaml:2:7: CDS resource \"outer\": the name in the message is \"inner\": use that name, and aliases for other names\n"},
		{"CLI-15 a wrapper with a name, and none in the message", "c.yaml", wrapperURL + "\nname: outer\nresource: {" + clusterURL + "}\n",
			"c.yaml:2:7: CDS resource \"outer\": has no name in its message\n"},
		{"a wrapper with another name, of an unlisted type", "c.yaml", wrapperURL + "\nname: outer\nresource: {\"@type\": type.googleapis.com/envoy.config.listener.v3.Filter, name: inner}\n", "Filter outer at c.yaml:1:1 → CDS *\n"},
		{"a wrapper with a field that the store cannot keep", "c.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\ncache_control: {do_not_cache: true}\nresource: {" + clusterURL + ", name: a}\n",
			"c.yaml:1:1: cache_control of a Resource is not supported\n"},
		{"TTL-1 kept", "c.yaml", wrapperURL + "\nttl: 1.5s\nresource: {" + clusterURL + ", name: a}\n", "CDS a at c.yaml:1:1 ttl 1.5s\n"},
		{"TTL-1 of nothing", "c.yaml", wrapperURL + "\nttl: 0s\nresource: {" + clusterURL + ", name: a}\n", "c.yaml:2:6: ttl must be more than 0s, not 0s\n"},
		{"TTL-1 of less, in a response", "c.yaml", "resources:\n- " + wrapperURL + "\n  resource: {" + clusterURL + ", name: a}\n  ttl: -3s\n",
			"c.yaml:4:8: resources[0]: ttl must be more than 0s, not -3s\n"},
		{"TTL-1 a TTL of zero, in text", "c.txtpb", "# proto-message: envoy.service.discovery.v3.Resource\nttl {}\nresource { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: 'a' } }", "c.txtpb: ttl must be more than 0s, not 0s\n"},
		{"names that mean something else", "c.yaml", clusterURL + "\nname: \"*\"\n---\n\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\naliases: [\"*\"]\nresource: {" + clusterURL + ", name: a}\n",
			"c.yaml:1:1: CDS resource \"*\": the name \"*\" is reserved: it subscribes to all resources\nc.yaml:4:1: an alias must not be empty or \"*\"\n"},
		{"TYP-7 another type than the response's", "c.yaml", "type_url: type.googleapis.com/envoy.config.listener.v3.Listener\nresources:\n- {" + clusterURL + ", name: a}\n",
			"c.yaml:3:3: resources[0]: type.googleapis.com/envoy.config.cluster.v3.Cluster, in a response whose type_url is type.googleapis.com/envoy.config.listener.v3.Listener\n"},
		{"an unknown field of a response", "c.yaml", "version: x\nresources: []\n", "c.yaml:1:1: unknown field \"version\" in DiscoveryResponse\n"},
		{"resources that are no list", "c.yaml", "resources: a\n", "c.yaml:1:12: resources: a list is needed\n"},
		{"a mapping for a list of resources, as Envoy takes it", "c.yaml", "resources: {" + clusterURL + ", name: a}\n", "CDS a at c.yaml:1:12\nc.yaml:1:12: warning: resources: a mapping for a list (put \"- \" before it: readers other than Envoy's need a list)\n"},
		{"invalid YAML", "c.yaml", clusterURL + "\nname: a\n---\na: b: c\n", "c.yaml:4:5: mapping values are not allowed in this context (text that contains \": \" needs quotes; all keys of a mapping must begin in the same column)\n"},
		{"half a JSON file", "c.json", "{\"resources\": [\n  {\"@type\": ", "c.json:2:13: the file ends in the middle of a value\n"},
		{"invalid JSON", "c.json", "{\"resources\":\n  nope}", "c.json:2:3: invalid character 'o' in literal null (expecting 'u')\n"},
		{"a tag", "c.yaml", clusterURL + "\nname: !include x\n", "c.yaml:2:7: a tag has no meaning here (text that begins with \"!\" needs quotes)\n"},
		{"FILE-7 a mark in JSON", "c.json", "\ufeff{\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"name\": \"c\"}", "CDS c at c.json:1:1\nc.json:1:1: warning: a byte order mark (save the file without it: Envoy's own reader accepts it only in a YAML file)\n"},
		{"FILE-7 a mark in text", "c.txtpb", "\ufeff# proto-message: envoy.config.cluster.v3.Cluster\nname: \"c\"", "CDS c at c.txtpb\nc.txtpb:1:1: warning: a byte order mark (save the file without it: Envoy's own reader accepts it only in a YAML file)\n"},
		{"FILE-7 a line break of YAML 1.1", "c.yaml", clusterURL + "\nname: 'a\u2028b'", "CDS a\u2028b at c.yaml:1:1\nc.yaml:2:9: warning: Chancery reads the character U+2028 as a line break, and Envoy's own reader does not (write \\u2028 in double quotes)\n"},
		{"FILE-7 a mark in YAML", "c.yaml", "\ufeff" + clusterURL + "\nname: c", "CDS c at c.yaml:1:1\n"},
		{"a merge of itself", "c.yaml", "resources: [&a {<<: *a}]\n", "c.yaml:1:17: warning: resources[0]: merge key (Envoy's own reader refuses merge keys)\nc.yaml:1:13: resources[0]: nested more than 200 deep\nc.yaml:1:13: resources[0]: no \"@type\" (for example \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster)\n"},
		{"an anchor that contains itself", "c.yaml", clusterURL + "\nname: a\nmetadata: &m {filter_metadata: *m}\n", "c.yaml:3:11: metadata.filter_metadata[\"filter_metadata\"][\"filter_metadata…: more than 100 messages inside each other, which clients cannot decode (in a Struct, a mapping adds 3 messages, and a list adds 2)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decoded(envoy.decode(tt.file, []byte(tt.in))); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// A few lines with aliases of aliases must not become gigabytes.
func TestDecodeAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString(`"@type": type.googleapis.com/envoy.service.runtime.v3.Runtime` + "\nname: r\nlayer:\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := range 20 {
		fmt.Fprintf(&b, "  a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	d := envoy.decode("bomb.yaml", []byte(b.String()))
	if d.Errors() != 1 || !strings.Contains(d.Problems[0].Message, "aliases expanded") {
		t.Errorf("got %v", d.Problems)
	}
}

func TestDecodeMergeBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("resources:\n- &a0 {" + clusterURL + ", name: a}\n")
	for i := range 50 {
		fmt.Fprintf(&b, "- &a%d {<<: [%s], name: b%d}\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), i)
	}
	d := envoy.decode("bomb.yaml", []byte(b.String()))
	if d.Errors() == 0 || !strings.Contains(fmt.Sprint(d.Problems), "aliases expanded") {
		t.Errorf("%d resources, %v", len(d.loaded), d.Problems)
	}
}

// The encoded bytes determine the version. If the encoder wrote other bytes, every client would get
// every resource again. So a change of these values must be intended.
func TestDecodeVersions(t *testing.T) {
	t.Run("SOTW-13 golden versions", func(t *testing.T) {
		d := envoy.decode("x.yaml", []byte(`
resources:
- {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connect_timeout: 0.25s, metadata: {filter_metadata: {x: {b: 1, a: 2}, w: {}}}}
- {"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig, name: e, typed_config: {"@type": type.googleapis.com/google.protobuf.Struct, value: {z: 1, y: [true, null]}}}
`))
		if d.Errors() > 0 {
			t.Fatal(d.Problems)
		}
		for i, want := range []string{"6925a7c5a4e439c4", "ef63a3ba358da974"} {
			if got := d.loaded[i].Version; got != want {
				t.Errorf("%s: version %s, want %s", d.loaded[i].Name, got, want)
			}
		}
	})
}

// The fields of a wrapper are part of the resource: its version is sent, and a change of a field
// changes the hash.
func TestDecodeWrapped(t *testing.T) {
	decoded := func(says string) Loaded {
		t.Helper()
		d := envoy.decode("x.yaml", []byte("\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\n"+says+"\nresource: {"+clusterURL+", name: a}\n"))
		if d.Errors() > 0 {
			t.Fatal(d.Problems)
		}
		return d.loaded[0]
	}
	plain, versioned := decoded(""), decoded("version: v9")
	if versioned.Version != "v9" || versioned.Sum != plain.Sum {
		t.Errorf("version %q", versioned.Version)
	}
	for _, says := range []string{"ttl: 1s", "aliases: [b]"} {
		if l := decoded(says); l.Sum == plain.Sum || l.Version == plain.Version {
			t.Errorf("%s: the same version %s", says, l.Version)
		}
	}
}

// For any file, decode returns, places are inside of the file, and a panic of the decoder is a bug.
func FuzzDecode(f *testing.F) {
	f.Add(".yaml", []byte(clusterURL+"\nname: a\n---\nresources: [&a {"+clusterURL+", name: b}, {<<: *a}]\n"))
	f.Add(".json", []byte(`{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": 12}]}`))
	f.Add(".yaml", []byte(`"@type": type.googleapis.com/envoy.service.discovery.v3.Resource`+"\nname: a\nttl: 1s\nresource: {"+clusterURL+", x-chancery: {on_demand: no}}\n"))
	f.Add(".yaml", []byte("static_resources:\n  x: [1, &a 2, *a]\n"))
	f.Add(".txtpb", []byte(textResponse))
	f.Add(".textproto", []byte("# proto-message: envoy.config.cluster.v3.Cluster\nname: \"a\"\n"))
	f.Add(".pb_text", []byte("# proto-message: envoy.service.discovery.v3.Resource\nname: 'r/v' resource { [type.googleapis.com/envoy.config.route.v3.VirtualHost] { name: 'v' } }"))
	f.Add(".pb", encoded(f, textResponse))
	f.Add(".pb", []byte("\x12\x03\x0a\x01x"))
	f.Fuzz(func(t *testing.T, ext string, data []byte) {
		if form(ext) == nil {
			t.Skip()
		}
		d := envoy.decode("f"+ext, data)
		s := string(data)
		lines := strings.Count(s, "\n") + strings.Count(s, "\r") + strings.Count(s, "\u0085") + strings.Count(s, "\u2028") + strings.Count(s, "\u2029") + 2
		for _, l := range d.loaded {
			if l.Name == "" || l.Refs == nil || l.Line < 0 || l.Line > lines {
				t.Errorf("loaded %q at %v of %d lines, references %v", l.Name, l.Pos, lines, l.Refs)
			}
		}
		failed := false
		for _, p := range d.Problems {
			failed = failed || !p.Warning
			if p.Pos.Line > lines || p.Message == "" || strings.HasPrefix(p.Message, readerFailed) || p.Text() == "" {
				t.Errorf("%v: of %d lines", p, lines)
			}
		}
		if failed != (d.Errors() > 0) {
			t.Errorf("failed is %v, problems %v", d.Errors() > 0, d.Problems)
		}
	})
}
