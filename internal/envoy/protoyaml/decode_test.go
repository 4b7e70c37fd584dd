package protoyaml

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
)

func decode(t testing.TB, file, src string) (proto.Message, *Decoder) {
	t.Helper()
	d := &Decoder{File: file, Source: []byte(src), Types: envoy.Envoy()}
	var n *yaml.Node
	var err error
	if strings.HasSuffix(file, ".json") {
		n, err = ParseJSON(file, d.Source)
	} else {
		var docs []*yaml.Node
		if docs, err = ParseYAML(file, d.Source); len(docs) > 0 {
			n = docs[0]
		}
	}
	if err != nil {
		p, ok := errors.AsType[findings.Problem](err)
		if !ok {
			t.Fatal(err)
		}
		d.Problems, d.errors = append(d.Problems, p), 1
		return nil, d
	}
	if n == nil {
		return nil, d
	}
	return d.Any(n, ""), d
}

const listener = `
"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: edge
address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
per_connection_buffer_limit_bytes: 32768
metadata: {filter_metadata: {a: {b: [1, x, null, true, {c: 15}]}}}
filter_chains:
- filters:
  - name: hcm
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      statPrefix: ingress
      codec_type: HTTP2
      stream_idle_timeout: 300s
      request_timeout: 0.25s
      route_config:
        name: r
        virtual_hosts:
        - name: v
          domains: ["*"]
          routes:
          - match: {prefix: /}
            route: {cluster: c, max_grpc_timeout: 1s}
`

// The decoder agrees with protobuf's own JSON reader.
func TestAgreesWithProtojson(t *testing.T) {
	m, d := decode(t, "l.yaml", listener)
	if len(d.Problems) > 0 {
		t.Fatal(d.Problems)
	}
	js, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(mustAny(t, m))
	if err != nil {
		t.Fatal(err)
	}
	want := &anypb.Any{}
	if err := protojson.Unmarshal(js, want); err != nil {
		t.Fatal(err)
	}
	again, d := decode(t, "l.json", string(js))
	if len(d.Problems) > 0 {
		t.Fatal(d.Problems)
	}
	if diff := cmp.Diff(mustAny(t, m), mustAny(t, again), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, mustAny(t, again), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(js), `"stream_idle_timeout":"300s"`) && !strings.Contains(string(js), `"stream_idle_timeout": "300s"`) {
		t.Error("a field is missing:", string(js))
	}
}

func mustAny(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDecodeProblems(t *testing.T) {
	const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\n"
	for _, c := range []struct{ name, file, src, want string }{
		{"unknown field", "c.yaml", cluster + "conect_timeout: 1s", `c.yaml:3:1: unknown field "conect_timeout" in Cluster (did you mean "connect_timeout"?)`},
		{"a field of v2", "c.yaml", cluster + "hosts: []", `c.yaml:3:1: unknown field "hosts" in Cluster (Envoy's API no longer has it: write "load_assignment")`},
		{"a field of v2 without a successor", "c.yaml", cluster + "extension_protocol_options: {}", `c.yaml:3:1: unknown field "extension_protocol_options" in Cluster (Envoy's API no longer has it)`},
		{"several mistakes", "c.yaml", cluster + "connect_timeout: x\ntype: STATC\nlb_policy: [1]",
			"c.yaml:3:18: connect_timeout: a duration is needed, not the string \"x\" (write seconds: \"0.25s\", \"300s\")\n" +
				"c.yaml:4:7: type: DiscoveryType has no value \"STATC\" (did you mean STATIC?)\n" +
				"c.yaml:5:12: lb_policy: an LbPolicy is needed, not a list"},
		{"inside an Any", "l.yaml", strings.Replace(listener, "statPrefix", "stat_prefx", 1),
			`l.yaml:12:7: filter_chains[0].filters[0].typed_config: unknown field "stat_prefx" in HttpConnectionManager (did you mean "stat_prefix"?)`},
		{"duplicate key", "c.yaml", cluster + "name: d", `c.yaml:3:1: duplicate key "name", first on line 2`},
		{"a field in two spellings", "c.yaml", cluster + "connect_timeout: 1s\nconnectTimeout: 2s", `c.yaml:4:1: duplicate field "connectTimeout", first as "connect_timeout"`},
		{"a key next to the value of a special message", "d.yaml", "\"@type\": type.googleapis.com/google.protobuf.Duration\nvalue: 1s\nseconds: 1", `d.yaml:3:1: a Duration allows only "value" next to "@type"`},
		{"oneof", "c.yaml", cluster + "type: STATIC\ncluster_type: {name: x}", `c.yaml:4:1: "type" and "cluster_type" exclude each other`},
		{"no type", "c.yaml", "name: c", `c.yaml:1:1: "@type" is missing (for example "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster)`},
		{"unknown type", "c.yaml", `"@type": type.googleapis.com/envoy.config.cluster.v3.Clustr`, `c.yaml:1:10: no message type is known as "envoy.config.cluster.v3.Clustr" (did you mean "type.googleapis.com/envoy.config.cluster.v3.Cluster"?)`},
		{"a type of an unknown package", "c.yaml", `"@type": type.googleapis.com/envoy.filters.http.router.Router`, `c.yaml:1:10: no message type is known as "envoy.filters.http.router.Router" (did you mean "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"?)`},
		{"a long type is quoted completely", "l.yaml", strings.Replace(listener, "HttpConnectionManager", "HttpConectionManager", 1),
			`l.yaml:11:16: filter_chains[0].filters[0].typed_config: no message type is known as "envoy.extensions.filters.network.http_connection_manager.v3.HttpConectionManager" (did you mean "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"?)`},
		{"a type without a similar one", "c.yaml", `"@type": type.googleapis.com/acme.Frobnicator`, `c.yaml:1:10: no message type is known as "acme.Frobnicator"`},
		{"type_url for @type", "c.yaml", "type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c", `c.yaml:1:1: "@type" is missing (did you mean "@type" and not "type_url"?)`},
		{"a slip in @type", "c.yaml", "\"@typ\": x\nname: c", `c.yaml:1:1: "@type" is missing (did you mean "@type" and not "@typ"?)`},
		{"a type in a secret is not quoted", "s.yaml", `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
tls_certificate: {private_key_provider: {provider_name: p, typed_config: {"@type": type.googleapis.com/envoy.config.cluster.v3.Clustr}}}`,
			`s.yaml:2:84: tls_certificate.private_key_provider.typed_config: no message type is known as "…"`},
		{"nested type key", "c.yaml", cluster + "eds_cluster_config: {\"@type\": a/b}", `c.yaml:3:22: eds_cluster_config: "@type" is only allowed in a google.protobuf.Any, and this is an EdsClusterConfig`},
		{"syntax", "c.yaml", cluster + "a: [1", `c.yaml:3:6: did not find expected ',' or ']' (in the list whose [ is at 3:4)`},
		{"tabs", "c.yaml", cluster + "a:\n\tb: 1", `c.yaml:4:1: found character that cannot start any token (YAML does not allow tabs for indentation: use spaces)`},
		{"a type without quotes", "c.yaml", "@type: x\nname: c\n", `c.yaml:1:1: found character that cannot start any token (text that begins with '@' needs quotes)`},
		{"a value without quotes", "c.yaml", cluster + "a:  %b", `c.yaml:3:5: found character that cannot start any token (text that begins with '%' needs quotes)`},
		{"a mistake in the first line", "c.yaml", "a: b: c", `c.yaml:1:5: mapping values are not allowed in this context (text that contains ": " needs quotes; all keys of a mapping must begin in the same column)`},
		{"a key without a colon", "c.yaml", cluster + "type EDS\nlb_policy: RANDOM\n", `c.yaml:3:1: could not find expected ':'`},
		{"a key in another column", "c.yaml", cluster + "metadata:\n   filter_metadata: {}\n  typed_filter_metadata: {}\n", `c.yaml:5:3: did not find expected key (in the mapping that begins at 1:1: each of its keys must begin in column 1)`},
		{"an item in another column", "c.yaml", "- é: 1\n  -b: [\n", `c.yaml:2:8: did not find expected node content (the file ends here)`},
		{"a missing item", "c.yaml", "a:\n- b\n-c\n", `c.yaml:3:1: could not find expected ':'`},
		{"a list that becomes a mapping", "c.yaml", "- a\nb: c\n", `c.yaml:2:1: did not find expected '-' indicator (in the list that begins at 1:1: each of its - must be in column 1)`},
		{"an unclosed brace", "c.yaml", cluster + "metadata: {é: {}\ntype: EDS\n", `c.yaml:4:1: did not find expected ',' or '}' (in the mapping whose { is at 3:11)`},
		{"an unclosed quote", "c.yaml", cluster + "alt_stat_name: 'é\n\n", `c.yaml:3:18: found unexpected end of stream (in the text whose quotes begin at 3:16)`},
		{"an unknown anchor", "c.yaml", cluster + "é: *x\n", `c.yaml:3:4: this alias has no anchor (text that begins with "*" needs quotes)`},
		{"a password that is a tag", "c.yaml", cluster + "alt_stat_name: !hunter2", `c.yaml:3:16: a tag has no meaning here (text that begins with "!" needs quotes)`},
		{"a control character", "c.yaml", "a: b\nc: \x01\n", `c.yaml:2:4: control characters are not allowed (value: 1)`},
		{"a line that ends too early", "c.yaml", "a: [", `c.yaml:1:5: did not find expected node content (the file ends here)`},
		{"json syntax", "c.json", "{\n \"name\" \"c\"}", `c.json:2:9: invalid character '"' after object key`},
		{"json after wide text", "c.json", `{"é": 1, "b" 2}`, `c.json:1:14: invalid character '2' after object key`},
		{"json with more text", "c.json", `{"@type": "type.googleapis.com/google.protobuf.Empty"} {}`, `c.json:1:56: more after the end of the value`},
		{"a merge conflict", "c.yaml", cluster + "connect_timeout: 1s\n<<<<<<< HEAD\ntype: EDS\n=======\ntype: STATIC\n>>>>>>> other\n", `c.yaml:4:1: could not find expected ':' (a merge conflict: keep one of the two sides, and remove the marker lines)`},
		{"a merge conflict in JSON", "c.json", "{\n<<<<<<< HEAD\n\"name\": 1\n", `c.json:2:1: invalid character '<' (a merge conflict: keep one of the two sides, and remove the marker lines)`},
		{"a template", "c.yaml", "{{- if .x }}\n" + cluster + "{{- end }}\n", `c.yaml:1:3: did not find expected node content (this is a template: check its output instead, as in: helm template . | chancery check -)`},
		{"a template's value", "c.yaml", cluster + "alt_stat_name: {{ .Values.hunter2 }}\nconnect_timeout: {{ .x }}\n", "c.yaml:3:16: alt_stat_name: a string is needed, not a mapping (this is a template: check its output instead, as in: helm template . | chancery check -)\nc.yaml:4:19: connect_timeout: a key must be a word (this is a template: check its output instead, as in: helm template . | chancery check -)"},
		{"a template of JSON", "c.json", `{"@type": {{ x }}}`, `c.json:1:12: invalid character '{' (this is a template: check its output instead, as in: helm template . | chancery check -)`},
		{"an unquoted *", "c.yaml", cluster + "alt_stat_name: *\n", `c.yaml:3:17: did not find expected alphabetic or numeric character ("*" needs quotes)`},
		{"a no-break space", "c.yaml", cluster + "type:\u00a0EDS\n", `c.yaml:3:1: could not find expected ':' (this line contains a no-break space: replace it by a normal space)`},
		{"a byte order mark", "c.json", "\ufeff{\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"name\": 1}", `c.json:1:74: warning: name: int 1 for a string (put it in quotes: Envoy's own reader refuses a bare number or word for a string)`},
		{"half of a surrogate pair", "c.json", "{\"é\": [\"x\\ufffd\\\\ud800\\ud83d\\ude00\",\n \"y\\ud800z\"]}", `c.json:2:4: half of a surrogate pair (a character beyond \uffff needs two escapes, such as \ud83d\ude00)`},
		{"a surrogate pair in the wrong order", "c.json", `{"\ude00\ud83d": 1}`, `c.json:1:3: half of a surrogate pair (a character beyond \uffff needs two escapes, such as \ud83d\ude00)`},
		{"json comma", "c.json", `{"name": [1, ]}`, `c.json:1:14: invalid character ']' looking for beginning of value (remove the comma before ])`},
		{"json comment", "c.json", "{ // x\n}", `c.json:1:3: invalid character '/' (JSON has no comments: use a .yaml file, with # comments)`},
		{"json quotes", "c.json", "{'name': 1}", `c.json:1:2: invalid character '\'' (JSON allows only " as quotes)`},
		{"json cut", "c.json", `{"name": "c"`, `c.json:1:13: the file ends in the middle of a value`},
		{"json duplicate", "c.json", "{\"@type\":\"type.googleapis.com/envoy.config.cluster.v3.Cluster\",\n\"name\":\"a\",\"name\":\"b\"}", `c.json:2:12: duplicate key "name", first on line 2`},
		{"merge key", "c.yaml", cluster + "<<: {connect_timeout: 1s}", `c.yaml:3:1: warning: merge key (Envoy's own reader refuses merge keys)`},
		{"minutes", "c.yaml", cluster + "connect_timeout: 5m", `c.yaml:3:18: warning: connect_timeout: the duration "5m" (write seconds: Envoy's own reader accepts only seconds)`},
		{"bare number", "c.yaml", cluster + "alt_stat_name: 5", `c.yaml:3:16: warning: alt_stat_name: int 5 for a string (put it in quotes: Envoy's own reader refuses a bare number or word for a string)`},
		{"bare word", "c.yaml", cluster + "alt_stat_name: no", `c.yaml:3:16: warning: alt_stat_name: the bare word "no" for a string (put it in quotes: Envoy's own reader reads it as true or false, and refuses it)`},
		{"word in quotes", "c.yaml", cluster + "alt_stat_name: \"no\"", ""},
		{"range", "c.yaml", cluster + "per_connection_buffer_limit_bytes: -1", `c.yaml:3:36: per_connection_buffer_limit_bytes: a whole number from 0 (uint32) is needed, not int -1`},
		{"fraction", "c.yaml", cluster + "per_connection_buffer_limit_bytes: 1.5", `c.yaml:3:36: per_connection_buffer_limit_bytes: a whole number from 0 (uint32) is needed, not float 1.5`},
		{"list of null", "c.yaml", cluster + "health_checks: [null]", `c.yaml:3:17: health_checks[0]: a list cannot hold null`},
		{"scalar for message", "c.yaml", cluster + "eds_cluster_config: x", `c.yaml:3:21: eds_cluster_config: EdsClusterConfig is a message and needs a mapping, not a string`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, d := decode(t, c.file, c.src)
			var got []string
			for _, p := range d.Problems {
				got = append(got, p.Error())
			}
			if s := strings.Join(got, "\n"); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

// Spellings that only Envoy's reader accepts get a warning.
func TestEnvoyOnlySpellings(t *testing.T) {
	const before = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\n"
	for _, c := range []struct{ name, src, same, want string }{
		{"FILE-7 a mapping for a list", "load_assignment: {cluster_name: c, endpoints: {priority: 1}}", "load_assignment: {cluster_name: c, endpoints: [{priority: 1}]}",
			`c.yaml:3:47: warning: load_assignment.endpoints: a mapping for a list (put "- " before it: readers other than Envoy's need a list)`},
		{"FILE-7 a word for a list", "lrs_report_endpoint_metrics: cpu", "lrs_report_endpoint_metrics: [cpu]",
			`c.yaml:3:30: warning: lrs_report_endpoint_metrics: a string for a list (put "- " before it: readers other than Envoy's need a list)`},
		{"FILE-7 lower case", "type: strict_dns", "type: STRICT_DNS",
			`c.yaml:3:7: warning: type: "strict_dns" for a value of DiscoveryType (write STRICT_DNS: readers other than Envoy's need it as it is declared)`},
		{"FILE-7 mixed case", "lb_policy: Round_Robin", "lb_policy: ROUND_ROBIN",
			`c.yaml:3:12: warning: lb_policy: "Round_Robin" for a value of LbPolicy (write ROUND_ROBIN: readers other than Envoy's need it as it is declared)`},
		{"FILE-7 a number of a value in quotes", `type: "3"`, "type: 3",
			`c.yaml:3:7: warning: type: the string "3" for a value of DiscoveryType (write it without quotes: readers other than Envoy's need that)`},
		{"FILE-7 a duration as a message", "connect_timeout: {seconds: 2, nanos: 500000000}", "connect_timeout: 2.5s",
			`c.yaml:3:18: warning: connect_timeout: a mapping for a Duration (write "2.5s": readers other than Envoy's need that)`},
		{"FILE-7 a number as a message", "per_connection_buffer_limit_bytes: {value: 5}", "per_connection_buffer_limit_bytes: 5",
			`c.yaml:3:36: warning: per_connection_buffer_limit_bytes: a mapping for a UInt32Value (write the value alone: readers other than Envoy's need that)`},
		{"FILE-7 zero as a message", "per_connection_buffer_limit_bytes: {}", "per_connection_buffer_limit_bytes: 0",
			`c.yaml:3:36: warning: per_connection_buffer_limit_bytes: a mapping for a UInt32Value (write the value alone: readers other than Envoy's need that)`},
		{"FILE-7 a number with a sign", "per_connection_buffer_limit_bytes: +5", "per_connection_buffer_limit_bytes: 5", ""},
		{"FILE-7 a word for true", "respect_dns_ttl: Yes", "respect_dns_ttl: true",
			`c.yaml:3:18: warning: respect_dns_ttl: the string "Yes" for true or false (write true: readers other than Envoy's need that)`},
		{"FILE-7 true in quotes", `respect_dns_ttl: "true"`, "respect_dns_ttl: true",
			`c.yaml:3:18: warning: respect_dns_ttl: the string "true" for true or false (write true: readers other than Envoy's need that)`},
		{"FILE-7 off without quotes", "respect_dns_ttl: off", "respect_dns_ttl: false",
			`c.yaml:3:18: warning: respect_dns_ttl: the string "off" for true or false (write false: readers other than Envoy's need that)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, d := decode(t, "c.yaml", before+c.src)
			if got := all(d); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			same, _ := decode(t, "c.yaml", before+c.same)
			if diff := cmp.Diff(mustAny(t, same), mustAny(t, m), protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, src := range []string{"type: strict-dns", "load_assignment: {cluster_name: c, endpoints: hunter2}", "connect_timeout: [1s]", "connect_timeout: {second: 1}", `respect_dns_ttl: "on"`, "respect_dns_ttl: 1", "type: 0.0", "metadata: {filter_metadata: [a]}"} {
		if _, d := decode(t, "c.yaml", before+src); d.Errors() == 0 {
			t.Error("accepted, but Envoy rejects it:", src)
		}
	}
}

func TestFormatSeconds(t *testing.T) {
	for want, in := range map[string][2]int64{"0s": {}, "90s": {90, 0}, "2.5s": {2, 5e8}, "0.000000001s": {0, 1}, "-1.5s": {-1, -5e8}, "315576000000s": {315576000000, 0}} {
		if got := formatSeconds(in[0], in[1]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func all(d *Decoder) string {
	var lines []string
	for _, p := range d.Problems {
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// Every reader understands a rewritten node.
func TestRewrittenNodesArePortable(t *testing.T) {
	const src = `base: &base {connect_timeout: 5m, dns_refresh_rate: 1m30s}
cluster:
  "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  <<: *base
  name: 12
  type: static
  respect_dns_ttl: Y
  dns_failure_refresh_rate: {base_interval: {seconds: 1}}
  per_connection_buffer_limit_bytes: {value: 5}
  load_assignment: &load
    cluster_name: c
    endpoints: {priority: 1}
`
	docs, err := ParseYAML("c.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	d := &Decoder{File: "c.yaml", Source: []byte(src), Types: envoy.Envoy(), Rewrite: true}
	n := d.Plain(Get(docs[0], "cluster"))
	if d.Any(n, "") == nil || len(d.Problems) > 0 {
		t.Fatal(d.Problems)
	}
	got, err := yaml.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	const want = `"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: "12"
type: STATIC
respect_dns_ttl: true
dns_failure_refresh_rate: {base_interval: 1s}
per_connection_buffer_limit_bytes: 5
load_assignment:
    cluster_name: c
    endpoints: [{priority: 1}]
connect_timeout: 300s
dns_refresh_rate: 90s
`
	if string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestAnchorsAndMergeKeys(t *testing.T) {
	m, d := decode(t, "c.yaml", `
"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: &n c
alt_stat_name: *n
<<: [{connect_timeout: 1s, type: EDS}, {type: STATIC}]
`)
	c := &clusterv3.Cluster{}
	if err := mustAny(t, m).UnmarshalTo(c); d.Errors() > 0 || err != nil || c.AltStatName != "c" || c.GetType() != clusterv3.Cluster_EDS || c.ConnectTimeout.AsDuration().String() != "1s" {
		t.Fatal(d.Problems, c)
	}
}

// Anchors of anchors are limited.
func TestNestedAnchorsAreLimited(t *testing.T) {
	var b strings.Builder
	b.WriteString("\"@type\": type.googleapis.com/google.protobuf.Struct\nvalue:\n  a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		prev := "*a" + string(rune('a'+i-2))
		if i == 1 {
			prev = "*a0"
		}
		name := string(rune('a' + i - 1))
		b.WriteString("  a" + name + ": &a" + name + " [" + strings.TrimSuffix(strings.Repeat(prev+",", 10), ",") + "]\n")
	}
	_, d := decode(t, "bomb.yaml", b.String())
	if d.Errors() == 0 {
		t.Fatal("accepted")
	}
	if len(d.Problems) > 10 {
		t.Fatalf("%d problems", len(d.Problems))
	}
}

func TestExcerpt(t *testing.T) {
	_, d := decode(t, "c.yaml", "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\nconnect_timeout: x\n")
	want := "c.yaml:3:18: connect_timeout: a duration is needed, not the string \"x\" (write seconds: \"0.25s\", \"300s\")\n" +
		"    3 | connect_timeout: x\n" +
		"                         ^"
	if got := d.Problems[0].Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Duplicate keys are found in large mappings too.
func TestDuplicateKeyInLargeMapping(t *testing.T) {
	src := "\"@type\": type.googleapis.com/google.protobuf.Struct\nvalue:\n"
	for i := range 50 {
		src += fmt.Sprintf("  k%d: 1\n", i)
	}
	if _, d := decode(t, "s.yaml", src+"  k3: 1\n  k49: 1\n  k50: 1"); all(d) != "s.yaml:53:3: value: duplicate key \"k3\", first on line 6\ns.yaml:54:3: value: duplicate key \"k49\", first on line 52" {
		t.Error(all(d))
	}
}

// The nesting is limited, so the stack does not overflow.
func TestNestingIsLimited(t *testing.T) {
	for _, n := range []int{10, maxNesting + 10} {
		open, shut := strings.Repeat("[", n), strings.Repeat("]", n)
		_, err := ParseJSON("s.json", []byte(open+shut))
		_, d := decode(t, "s.yaml", "\"@type\": type.googleapis.com/google.protobuf.ListValue\nvalue: "+open+shut)
		if deep := n > maxNesting; deep != (err != nil) || deep != (d.Errors() > 0) {
			t.Errorf("%d: %v, %s", n, err, all(d))
		}
	}
	// Envoy decodes a Struct of 33 mappings, and not of 34. An Any begins anew.
	for _, in := range []string{"", `{"@type": type.googleapis.com/google.protobuf.Any, value: `} {
		for _, n := range []int{33, 34} {
			src := in + `{"@type": type.googleapis.com/google.protobuf.Struct, value: ` + strings.Repeat("{a: ", n) + "1" + strings.Repeat("}", n+1) + strings.Repeat("}", min(len(in), 1))
			if _, d := decode(t, "s.yaml", src); (n > 33) != strings.Contains(all(d), "more than 100 messages inside each other") {
				t.Errorf("FILE-7 %d: %s", n, all(d))
			}
		}
	}
}

// Nested Anys are limited, because each Any contains the bytes of all Anys inside it.
func TestNestedAnysAreLimited(t *testing.T) {
	for _, n := range []int{secrets.MaxAnyDepth, 2 * secrets.MaxAnyDepth} {
		src := strings.Repeat(`{"@type": type.googleapis.com/google.protobuf.Any, value: `, n) + `{"@type": type.googleapis.com/google.protobuf.Empty}` + strings.Repeat("}", n)
		_, d := decode(t, "c.yaml", src)
		if got := all(d); (n > secrets.MaxAnyDepth) != strings.Contains(got, "google.protobuf.Any nested more than") {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// Mistakes beyond the limit are only counted. The cost of a reported mistake does not depend on the
// length of the file.
func TestManyMistakesAreCheap(t *testing.T) {
	try := func(n, most int) *Decoder {
		src := "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\nhealth_checks:\n" + strings.Repeat("- {unhealthy_treshold: 1, always_log_health_check_failures: true}\n", n)
		docs, err := ParseYAML("c.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		d := &Decoder{File: "c.yaml", Source: []byte(src), Types: envoy.Envoy(), Most: most}
		d.Any(docs[0], "")
		if d.Errors() != n || len(d.Problems) != n && (most < 0 || len(d.Problems) != most) {
			t.Fatalf("%d errors, %d reported, of %d", d.Errors(), len(d.Problems), n)
		}
		return d
	}
	allocated := func(n, most int) float64 { return testing.AllocsPerRun(1, func() { try(n, most) }) }
	if reported, counted := allocated(1000, 1000), allocated(1000, 1); counted > reported*3/4 {
		t.Errorf("%v allocations for 1000 reported mistakes, %v if one is reported", reported, counted)
	}
	total := func(n int) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		try(n, -1)
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	if few, many := total(500), total(4000); many > 16*few {
		t.Errorf("%v bytes for 500 mistakes, %v for 4000", few, many)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(listener), false)
	f.Add([]byte(`{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"a"}`), true)
	f.Add([]byte("\"@type\": type.googleapis.com/google.protobuf.Any\nvalue: {\"@type\": type.googleapis.com/google.protobuf.Duration, value: 1s}"), false)
	f.Add([]byte("a: &a [*a]"), false)
	f.Fuzz(func(t *testing.T, src []byte, js bool) {
		file := "f.yaml"
		if js {
			file = "f.json"
		}
		m, d := decode(t, file, string(src))
		for _, p := range d.Problems {
			_ = p.Text()
		}
		if m == nil || d.Errors() > 0 {
			return
		}
		// An accepted message can be written and read again.
		out, err := apitest.JSON(mustAny(t, m))
		if err != nil {
			t.Skip()
		}
		again, d := decode(t, "again.json", string(out))
		if d.Errors() > 0 {
			t.Fatalf("%s: %v", out, d.Problems)
		}
		if !proto.Equal(m, again) {
			t.Fatalf("%s\n%v\n%v", out, m, again)
		}
	})
}
