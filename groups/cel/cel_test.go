package cel

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/xds"
)

func node(t testing.TB) *xds.Node {
	s, err := structpb.NewStruct(map[string]any{"env": "prod", "n": 5, "on": true, "l": []any{"a", "b"}, "labels": map[string]any{"app": "pay"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return &xds.Node{ID: "edge-1", Cluster: "edge", Region: "eu", Zone: "a", SubZone: "b", UserAgentName: "envoy", UserAgentVersion: "1.30.0", Metadata: b}
}

func rules(expression string) (*groups.Rules, string) {
	r, problems := groups.New([]groups.Definition{{Name: "g", Match: &groups.Match{CEL: expression}}}, groups.Options{CEL: Compile})
	if r == nil {
		return nil, problems[0].Message
	}
	return r, ""
}

func TestExpressions(t *testing.T) {
	const nine = "[1,2,3,4,5,6,7,8,9]"
	for expression, want := range map[string]string{
		`node.cluster == "edge" && node.metadata.env == "prod"`:                        "[g]",
		`node.id.startsWith("edge-") && node.id.matches("[0-9]$")`:                     "[g]",
		`node.locality.region + node.locality.zone + node.locality.sub_zone == "euab"`: "[g]",
		`node.user_agent_name == "envoy" && node.user_agent_version != ""`:             "[g]",
		`node.metadata.n == 5 && node.metadata["n"] < 6`:                               "[g]",
		`node.metadata.on`: "[g]",
		`has(node.metadata.env) && !has(node.metadata.x) && has(node.metadata) && has(node.id) && has(node.locality)`: "[g]",
		`"b" in node.metadata.l && node.metadata.l.exists(x, x == "a")`:                                               "[g]",
		`node.metadata.labels.app == "pay" && node.metadata.size() == 5`:                                              "[g]",
		`node.id == ""`:                    "[default]",
		`node.metadata.x == 1`:             "[default] no such key: x",
		`node.metadata.env`:                "[default] the result is of type string, not bool",
		`node.metadata.env > 5`:            "[default] no such overload",
		`node == node`:                     "[default] node and node.locality cannot be used as values: use one of their fields",
		`node.locality == node.locality`:   "[default] node and node.locality cannot be used as values: use one of their fields",
		`dyn(node).id == "x"`:              "[default] node and node.locality cannot be used as values: use one of their fields",
		`chancery.Node{id: "x"}.id == "x"`: "[default] unknown type 'chancery.Node'",
		nine + ".all(a," + nine + ".all(a," + nine + ".all(a," + nine + ".all(a," + nine + ".all(a, true)))))": "[default] operation cancelled: actual cost limit exceeded",
	} {
		r, problem := rules(expression)
		if r == nil {
			t.Errorf("%s: %s", expression, problem)
			continue
		}
		d := r.Decide(node(t))
		got := fmt.Sprint(d.Groups)
		if len(d.Notes) > 0 {
			_, note, _ := strings.Cut(d.Notes[0], "cel: ")
			got += " " + note
		}
		if first, note, _ := strings.Cut(want, " "); !strings.HasPrefix(got, first) || !strings.Contains(got, note) || note == "" && len(d.Notes) > 0 {
			t.Errorf("%s: %s", expression, got)
		}
	}
}

func TestExpressionErrors(t *testing.T) {
	for expression, want := range map[string]string{
		`node.clsuter == "x"`:     "at character 5 of the expression: undefined field 'clsuter': node has id, cluster, ",
		`node.id = "x"`:           "token recognition error at: '= ' (equality is written ==)",
		"true &&\n nod.id == 'x'": "in line 2 of the expression, character 2: undeclared reference to 'nod'",
		`node.id`:                 "an expression of type bool is needed, not string",
		`node.metadata`:           "an expression of type bool is needed, not map(string, dyn)",
		`node.id == 5`:            "at character 9 of the expression: found no matching overload for '_==_'",
		`node.id.matches("(")`:    "error parsing regexp",
		`(`:                       "at character 2 of the expression: Syntax error",
		strings.Repeat(" ", 4097): "an expression of 4097 bytes: at most 4096 are allowed",
		strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300): "",
		"true" + strings.Repeat("&&true", 600):                       "",
	} {
		if r, problem := rules(expression); r != nil || !strings.Contains(problem, want) || strings.Contains(problem, "\n") {
			t.Errorf("%.40s: %s", expression, problem)
		}
	}
}

// No expression panics or takes long.
func FuzzCompile(f *testing.F) {
	f.Add(`node.cluster == "edge" && node.metadata.l.exists(x, x == "a")`)
	f.Add(`node.locality.zone.matches(node.id) || has(node.metadata.env)`)
	n := node(f)
	f.Fuzz(func(_ *testing.T, expression string) {
		if r, _ := rules(expression); r != nil {
			r.Decide(n)
		}
	})
}

func BenchmarkEvaluate(b *testing.B) {
	r, problem := rules(`node.cluster == "edge" && node.metadata.env == "prod"`)
	if r == nil {
		b.Fatal(problem)
	}
	n := node(b)
	b.ReportAllocs()
	for b.Loop() {
		r.Decide(n)
	}
}
