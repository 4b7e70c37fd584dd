package csds

import (
	"slices"
	"strings"
	"testing"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/testkit/apitest"
	"github.com/chancery-xds/chancery/xds"
)

func request(t testing.TB, text string) protoreflect.Message {
	t.Helper()
	m := &statusv3.ClientStatusRequest{}
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return apitest.Dynamic(t, m).ProtoReflect()
}

// value returns a request that matches one metadata value.
func value(path, value string) string {
	var keys strings.Builder
	for key := range strings.SplitSeq(path, "/") {
		keys.WriteString(`path { key: "` + key + `" }`)
	}
	return "node_matchers { node_metadatas { " + keys.String() + " value { " + value + " } } }"
}

func TestMatch(t *testing.T) {
	nodes := []*xds.Node{
		{ID: "edge-1", Metadata: metadata(t, map[string]any{"team": "a", "n": 5, "on": true, "no": nil, "deep": map[string]any{"er": map[string]any{"x": "y"}}, "list": []any{"p", 7, []any{"q"}}})},
		{ID: "EDGE-2", Metadata: metadata(t, map[string]any{"team": "b", "n": 5.5, "on": false, "list": "p"})},
		{ID: "", Metadata: []byte("\xff\xff no struct")},
		{ID: "a\nb"},
	}
	for text, want := range map[string]string{
		``:                  "0123",
		`node_matchers { }`: "0123",
		`node_matchers { node_id { exact: "edge-1" } }`:                                                           "0",
		`node_matchers { node_id { exact: "edge-2" ignore_case: true } }`:                                         "1",
		`node_matchers { node_id { exact: "" } }`:                                                                 "2",
		`node_matchers { node_id { prefix: "edge" } }`:                                                            "0",
		`node_matchers { node_id { suffix: "-2" } }`:                                                              "1",
		`node_matchers { node_id { contains: "DGE" ignore_case: true } }`:                                         "01",
		`node_matchers { node_id { safe_regex { regex: "edge|EDGE" } } }`:                                         "",
		`node_matchers { node_id { safe_regex { regex: "edge-.|EDGE-." } } }`:                                     "01",
		`node_matchers { node_id { safe_regex { google_re2 {} regex: "a\nb" } } }`:                                "3",
		`node_matchers { node_id { safe_regex { regex: "a" } } }`:                                                 "",
		`node_matchers { node_id { exact: "edge-1" } } node_matchers { node_id { exact: "EDGE-2" } }`:             "01", // OR
		`node_matchers { node_id { exact: "edge-1" } ` + value("team", `string_match { exact: "b" }`)[15:]:        "",   // AND
		`node_matchers { node_id { exact: "edge-1" } ` + value("team", `string_match { exact: "a" }`)[15:]:        "0",
		value("team", `string_match { safe_regex { regex: "[ab]" } }`):                                            "01",
		value("team/x", `string_match { exact: "a" }`):                                                            "",
		value("deep/er/x", `string_match { exact: "y" }`):                                                         "0",
		value("deep/er", `present_match: true`):                                                                   "", // "a non-primitive value"
		value("deep/er/x", `present_match: true`):                                                                 "0",
		value("n", `present_match: true`):                                                                         "01",
		value("no", `present_match: true`):                                                                        "0",
		value("n", `present_match: false`):                                                                        "",
		value("no", `null_match {}`):                                                                              "0",
		value("team", `null_match {}`):                                                                            "",
		value("on", `bool_match: true`):                                                                           "0",
		value("on", `bool_match: false`):                                                                          "1",
		value("n", `double_match { exact: 5 }`):                                                                   "0",
		value("n", `double_match { range { start: 5 end: 5.5 } }`):                                                "0",
		value("n", `double_match { range { start: 5.5 end: 6 } }`):                                                "1",
		value("team", `double_match { exact: 5 }`):                                                                "",
		value("list", `list_match { one_of { string_match { exact: "p" } } }`):                                    "0",
		value("list", `list_match { one_of { double_match { exact: 7 } } }`):                                      "0",
		value("list", `list_match { one_of { list_match { one_of { string_match { exact: "q" } } } } }`):          "0",
		value("list", `list_match { one_of { string_match { exact: "q" } } }`):                                    "",
		value("list", `string_match { exact: "p" }`):                                                              "1",
		value("n", `or_match { value_matchers { double_match { exact: 5.5 } } value_matchers { null_match {} }}`): "1",
	} {
		m, err := compile(envoy.Envoy(), request(t, text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []byte
		for i, n := range nodes {
			if m.match(n) {
				got = append(got, byte('0'+i))
			}
		}
		if string(got) != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// The matchers of a request are limited, and errors name the invalid field.
func TestMatchersAreLimited(t *testing.T) {
	deep := func(n int) string {
		return strings.Repeat("list_match { one_of { ", n) + "bool_match: true" + strings.Repeat(" } }", n)
	}
	id := func(s string) string { return "node_matchers { node_id { " + s + " } }" }
	regex := func(s string) string { return id(`safe_regex { regex: "` + s + `" }`) }
	for _, tt := range []struct{ text, want string }{
		{id(""), "node_matchers[0].node_id: match_pattern must be set"},
		{id(`prefix: ""`), "node_matchers[0].node_id.prefix: must have 1 to 4096 bytes"},
		{id(`exact: "` + strings.Repeat("x", maxText+1) + `"`), "node_id.exact: must have"},
		{id(`custom { name: "x" }`), "node_matchers[0].node_id.custom: this matcher is not supported"},
		{regex(""), "safe_regex.regex: must not be empty"},
		{regex(strings.Repeat("x", maxRegex+1)), "all regular expressions of a request may have 1024 bytes"},
		{strings.Repeat(regex(strings.Repeat("x", 100)), 11), "node_matchers[10].node_id.safe_regex.regex: must not be empty"},
		{regex(`)|(`), "unexpected )"},
		{regex(`(`), "missing closing )"},
		{regex(`\\pX`), "invalid character class"},
		{regex(strings.Repeat("(a{0,30}){0,30}", 3)), "too complex"},
		{regex(strings.Repeat("a{1000}", 100)), "too complex"},
		{regex(strings.Repeat("(", 500) + strings.Repeat(")", 500)), ""},
		{regex(strings.Repeat("(a*)*", 50)), ""},
		{value("a", ""), "node_matchers[0].node_metadatas[0].value: match_pattern must be set"},
		{"node_matchers { node_metadatas { value { bool_match: true } } }", "path: 0 segments"},
		{`node_matchers { node_metadatas { path { key: "a" } } }`, "node_metadatas[0].value: must be set"},
		{`node_matchers { node_metadatas { path { } value { bool_match: true } } }`, "path[0].key: must have"},
		{value(strings.Repeat("a/", maxSegments)+"a", "bool_match: true"), "path: 65 segments"},
		{value("a", "double_match { }"), "double_match: match_pattern must be set"},
		{value("a", "double_match { range { start: nan } }"), "not a range"},
		{value("a", "list_match { }"), "list_match.one_of: must be set"},
		{value("a", "or_match { value_matchers { bool_match: true } }"), "1 matchers, there must be 2"},
		{value("a", deep(maxDeep-1)), ""},
		{value("a", deep(maxDeep)), "more than 16 nested matchers"},
		{value("a", deep(3000)), "more than 16 nested matchers"},
		{strings.Repeat("node_matchers { }", maxMatchers+1), "node_matchers: 65 matchers"},
	} {
		begin := time.Now()
		m, err := compile(envoy.Envoy(), request(t, tt.text))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%.100s: %v, want %q", tt.text, err, tt.want)
		}
		if err == nil {
			m.match(&xds.Node{ID: strings.Repeat("a", 1000), Metadata: metadata(t, map[string]any{"a": true})})
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%.100s: took %v", tt.text, took)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, text := range []string{value("a/b", `list_match { one_of { string_match { prefix: "x" } } }`), `node_matchers { node_id { safe_regex { regex: "a+" } } }`} {
		b, err := proto.Marshal(request(f, text).Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "id", metadata(f, map[string]any{"a": map[string]any{"b": []any{"x"}}}))
	}
	f.Fuzz(func(t *testing.T, b []byte, id string, metadata []byte) {
		m := envoy.Envoy().New("envoy.service.status.v3.ClientStatusRequest")
		if proto.Unmarshal(b, m.Interface()) != nil {
			t.Skip()
		}
		c, err := compile(envoy.Envoy(), m)
		if err != nil {
			return
		}
		n := &xds.Node{ID: id, Metadata: slices.Clone(metadata)}
		if len(c.any) == 0 && !c.match(n) {
			t.Error("without matchers a node does not match")
		}
		before := c.match(n)
		if again := c.match(n); again != before {
			t.Error("the second call has another result")
		}
	})
}
