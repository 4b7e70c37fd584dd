package groups_test

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/xds"
)

// load compiles the rules of a txtar archive with group.yaml files. The paths are those of their
// directories.
func load(t testing.TB, archive string) (*groups.Rules, []findings.Problem) {
	t.Helper()
	var defs []groups.Definition
	var problems []findings.Problem
	for _, f := range txtar.Parse([]byte(archive)).Files {
		d, p := groups.Parse(path.Join("config", f.Name), f.Data)
		problems = append(problems, p...)
		if dir := path.Dir(f.Name); dir == "." {
			d.Name = groups.Default
		} else if d.Name == "" {
			d.Name = dir
		}
		defs = append(defs, d)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return groups.New(defs, groups.Options{CEL: cel.Compile})
}

func mustLoad(t testing.TB, archive string) *groups.Rules {
	t.Helper()
	r, problems := load(t, archive)
	if r == nil {
		t.Fatal(told(problems))
	}
	return r
}

func told(problems []findings.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&b, "%s %s\n", p.Code, p.Error())
	}
	return b.String()
}

func meta(t testing.TB, json string) []byte {
	t.Helper()
	var s structpb.Struct
	if err := protojson.Unmarshal([]byte(json), &s); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func reasons(d groups.Decision) string {
	var b strings.Builder
	for _, r := range d.Reasons {
		b.WriteString(r.String() + "\n")
	}
	for _, n := range d.Notes {
		b.WriteString("note: " + n + "\n")
	}
	return b.String()
}

const fleet = `
-- group.yaml --
-- edge/group.yaml --
name: edge
match:
    cluster: edge
include: [default]
-- eu/group.yaml --
match: {locality: {region: ["eu-*", "uk-*"], zone: "**"}}
priority: 10
-- pay/group.yaml --
match:
  metadata: {env: prod, labels: {app: pay}, canary: true, weight: [1, 5]}
include: teams/base
-- teams/base/group.yaml --
include: [default]
priority: 100
-- mixed/group.yaml --
match:
  all:
  - user_agent_name: envoy
  - any:
    - id: "a-*"
    - not: {user_agent_version: "1.2**"}
  cel: node.metadata.tier > 2
`

// "What a wildcard covers is the server's business logic from the node: groups."
func TestSUB4Decide(t *testing.T) {
	r := mustLoad(t, fleet)
	for _, c := range []struct {
		what string
		node *xds.Node
		want string
	}{
		{"nothing matches", &xds.Node{ID: "x", Cluster: "web"}, `
no group matches: otherwise default
group default: otherwise
`},
		{"nothing is said", nil, `
no group matches: otherwise default
group default: otherwise
`},
		{"one matches and includes", &xds.Node{Cluster: "edge"}, `
group edge: cluster is "edge" (config/edge/group.yaml:3:5)
group default: included by edge
`},
		{"the higher priority is first, and what is included is last", &xds.Node{Cluster: "edge", Region: "eu-north", Zone: "a"}, `
group eu: locality.region is like "eu-*" and locality.zone is like "**" (config/eu/group.yaml:1:8)
group edge: cluster is "edge" (config/edge/group.yaml:3:5)
group default: included by edge
`},
		{"* matches letters of all scripts, and ** an empty field", &xds.Node{Region: "uk-ü"}, `
group eu: locality.region is like "uk-*" and locality.zone is like "**" (config/eu/group.yaml:1:8)
`},
		{"priority does not lift what is included over who includes it", &xds.Node{Cluster: "edge",
			Metadata: meta(t, `{"env":"prod","labels":{"app":["web","pay"]},"canary":true,"weight":5,"tier":1}`)}, `
group edge: cluster is "edge" (config/edge/group.yaml:3:5)
group pay: metadata.env is "prod" and metadata.labels.app is "pay" and metadata.canary is true and metadata.weight is 5 (config/pay/group.yaml:2:3)
group teams/base: included by pay
group default: included by edge
`},
		{"a number is no text", &xds.Node{Metadata: meta(t, `{"env":"prod","labels":{"app":"pay"},"canary":"true","weight":5}`)}, `
no group matches: otherwise default
group default: otherwise
`},
		{"and, or, not, CEL", &xds.Node{ID: "a-1", UserAgentName: "envoy", UserAgentVersion: "1.29.0", Metadata: meta(t, `{"tier":3}`)}, `
group mixed: user_agent_name is "envoy" and id is like "a-*" and cel: node.metadata.tier > 2 (config/mixed/group.yaml:2:3)
`},
		{"another branch", &xds.Node{ID: "b-1", UserAgentName: "envoy", UserAgentVersion: "1.30.0", Metadata: meta(t, `{"tier":3}`)}, `
group mixed: user_agent_name is "envoy" and not (user_agent_version is like "1.2**") and cel: node.metadata.tier > 2 (config/mixed/group.yaml:2:3)
`},
		{"what cannot be evaluated does not match, and is told", &xds.Node{ID: "a-1", UserAgentName: "envoy"}, `
no group matches: otherwise default
group default: otherwise
note: group mixed: cel: node.metadata.tier > 2: no such key: tier (config/mixed/group.yaml:2:3)
`},
		{"metadata that cannot be read is none, and is told", &xds.Node{ID: "a-1", UserAgentName: "gRPC", Metadata: []byte{0xff}}, `
no group matches: otherwise default
group default: otherwise
note: the node's metadata is left out: it is not an encoded Struct
`},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := r.Decide(c.node)
			if got := "\n" + reasons(d); got != c.want {
				t.Errorf("got%swant%s", got, c.want)
			}
			for i, name := range d.Groups {
				if at := d.Reasons[len(d.Reasons)-len(d.Groups)+i]; at.Group != name {
					t.Errorf("the reason for %s is %v", name, at)
				}
			}
		})
	}
}

// "A first request with no node gets the default group."
func TestSUB5NoNode(t *testing.T) {
	if got := fmt.Sprint(mustLoad(t, fleet).Decide(nil).Groups); got != "[default]" {
		t.Error(got)
	}
}

func TestOtherwise(t *testing.T) {
	const rest = "\n-- edge/group.yaml --\nmatch: {cluster: edge}\n-- guest/group.yaml --\ninclude: [edge]\n"
	for otherwise, want := range map[string]string{
		"default": "no group matches: otherwise default\ngroup default: otherwise\n",
		"refuse":  "no group matches: otherwise refuse\n",
		"guest":   "no group matches: otherwise guest\ngroup guest: otherwise\ngroup edge: included by guest\n",
	} {
		d := mustLoad(t, "-- group.yaml --\notherwise: "+otherwise+rest).Decide(&xds.Node{Cluster: "web"})
		if got := reasons(d); got != want {
			t.Errorf("%s: %s", otherwise, got)
		}
		if refused := d.Groups == nil; refused != (otherwise == "refuse") {
			t.Errorf("%s: %v", otherwise, d.Groups)
		}
	}
}

// A group comes before the groups that it includes, by the longest chain; else by priority, then by
// name.
func TestOrder(t *testing.T) {
	r := mustLoad(t, `
-- a/group.yaml --
match: {}
include: [low, mid]
-- b/group.yaml --
match: {}
priority: 1
-- c/group.yaml --
match: {}
-- mid/group.yaml --
match: {}
include: [low]
priority: 9
-- low/group.yaml --
match: {}
priority: 90
-- apart/group.yaml --
match: {id: x}
include: [b]
`)
	if got := fmt.Sprint(r.Decide(&xds.Node{}).Groups); got != "[b a c mid low]" {
		t.Error(got)
	}
	// A group that includes b changes the place of b only for nodes that get the group.
	if got := fmt.Sprint(r.Decide(&xds.Node{ID: "x"}).Groups); got != "[a apart c mid b low]" {
		t.Error(got)
	}
}

// If an expression cannot be evaluated, its negation does not match, either.
func TestErrorInNegatedExpressionDoesNotMatch(t *testing.T) {
	r := mustLoad(t, `
-- a/group.yaml --
match: {not: {cel: node.metadata.env == "prod"}}
-- b/group.yaml --
match: {any: [{cel: node.metadata.env == "prod"}, {id: x}]}
`)
	for node, want := range map[*xds.Node]string{
		{}:                                    "[default]",
		{ID: "x"}:                             "[b]",
		{Metadata: meta(t, `{"env":"dev"}`)}:  "[a]",
		{Metadata: meta(t, `{"env":"prod"}`)}: "[b]",
		{Metadata: meta(t, `{"env":1}`)}:      "[a]",
	} {
		if got := fmt.Sprint(r.Decide(node).Groups); got != want {
			t.Errorf("%+v: %s, not %s", node, got, want)
		}
	}
}

// Rules that a program makes without YAML.
func TestRulesWithoutYAML(t *testing.T) {
	r, problems := groups.New([]groups.Definition{
		{Name: "edge", Match: &groups.Match{Cluster: groups.Values{"edge"}, Metadata: []groups.MetadataMatch{{Path: []string{"n"}, Values: groups.Values{1.0}}}}},
	}, groups.Options{})
	if r == nil || len(problems) > 0 {
		t.Fatal(told(problems))
	}
	d := r.Decide(&xds.Node{Cluster: "edge", Metadata: meta(t, `{"n":1}`)})
	if got := reasons(d); got != "group edge: cluster is \"edge\" and metadata.n is 1\n" {
		t.Error(got)
	}
	for _, m := range []groups.Match{
		{ID: groups.Values{5}}, {ID: groups.Values{true}}, {ID: groups.Values{`\`}}, {CEL: "true"},
		{Metadata: []groups.MetadataMatch{{}}}, {Metadata: []groups.MetadataMatch{{Path: []string{"a\x00"}}}}, {Metadata: []groups.MetadataMatch{{Path: []string{"a"}, Values: groups.Values{1}}}},
	} {
		r, problems := groups.New([]groups.Definition{{Name: "g", Match: &m}}, groups.Options{})
		if r != nil || len(problems) != 1 || problems[0].Code != findings.NodeRule {
			t.Errorf("%+v: %v", m, problems)
		}
	}
}

// The longest of several chains of includes counts, whatever the order. A few rules that cannot be
// evaluated are in the notes.
func TestOrderByLongestChain(t *testing.T) {
	for _, short := range []string{"a0", "m", "zz"} { // names before, among and after the names of the longer chain
		r := mustLoad(t, "-- b/group.yaml --\nmatch: {}\ninclude: [y]\n-- y/group.yaml --\ninclude: [c]\n-- c/group.yaml --\n-- "+short+"/group.yaml --\nmatch: {}\ninclude: [c]\n")
		all := r.Decide(&xds.Node{}).Groups
		if len(all) != 4 || all[3] != "c" {
			t.Errorf("beside %s: %q", short, all)
		}
	}
	var b strings.Builder
	for i := range 15 {
		fmt.Fprintf(&b, "-- g%d/group.yaml --\nmatch: {cel: node.metadata.env == \"x\"}\n", i)
	}
	if d := mustLoad(t, b.String()).Decide(&xds.Node{}); len(d.Notes) != 10 {
		t.Errorf("%d notes: %q", len(d.Notes), d.Notes)
	}
}
