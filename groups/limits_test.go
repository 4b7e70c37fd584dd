package groups

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// problemsOf returns the problems of one group.yaml.
func problemsOf(file string) []string {
	var all []string
	_, problems := Parse("f", []byte(file))
	for _, p := range problems {
		all = append(all, p.Error())
	}
	return all
}

// Each limit allows its own value, and refuses the next one.
func TestParseLimits(t *testing.T) {
	nested := func(open, end string, n int) string {
		return "match: " + strings.Repeat(open, n) + "{}" + strings.Repeat(end, n) + "\n"
	}
	var keys strings.Builder
	for i := range maxConditions {
		fmt.Fprintf(&keys, "k%d: {}, ", i)
	}
	for _, c := range []struct{ name, allowed, refused, problem string }{
		{"not", nested("{not: ", "}", maxNesting), nested("{not: ", "}", maxNesting+1), "nested deeper than 16"},
		{"any", nested("{any: [", "]}", maxNesting), nested("{any: [", "]}", maxNesting+1), "nested deeper than 16"},
		{"all", nested("{all: [", "]}", maxNesting), nested("{all: [", "]}", maxNesting+1), "nested deeper than 16"},
		{"priority", "priority: 2147483647\n", "priority: 2147483648\n", "a whole number of 32 bits"},
		{"negative priority", "priority: -2147483648\n", "priority: -2147483649\n", "a whole number of 32 bits"},
		{"keys of metadata", "match: {metadata: {a: {}}}\n", "match: {metadata: {" + keys.String() + "}}\n", "more than 10000 values and matches"},
		{"percent", "lane: {of: a, percent: 100}\n", "lane: {of: a, percent: 100.1}\n", "from 0 to 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := problemsOf(c.allowed); len(got) > 0 {
				t.Errorf("the limit itself: %q", got)
			}
			if got := problemsOf(c.refused); len(got) != 1 || !strings.Contains(got[0], c.problem) {
				t.Errorf("more than the limit: %q", got)
			}
		})
	}
}

// A file may have 10,000 values and matches, and none of them is lost.
func TestAllValuesOfALargeFile(t *testing.T) {
	const values = maxConditions - 1 // and the match
	d, problems := Parse("f", []byte("match: {id: ["+strings.Repeat("a,", values)+"]}"))
	if len(problems) > 0 || len(d.Match.ID) != values {
		t.Errorf("%d values, %v", len(d.Match.ID), problems)
	}
}

func TestOneProblemOfAWrongValue(t *testing.T) {
	for file, want := range map[string]string{
		"priority: '5'\n":                   "a whole number of 32 bits is needed",
		"otherwise: 5\n":                    "a string is needed",
		"lane: {of: a, labels: [x]}\n":      "a mapping is needed",
		"region: x\n":                       `unknown key "region" in group.yaml`,
		"planet: x\n":                       `unknown key "planet" in group.yaml`,
		"match: {region: x}\n":              "it belongs below locality",
		"match: {metadata: {a: [x, {}]}}\n": "a string is needed",
	} {
		if got := problemsOf(file); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q: %q, want %s", file, got, want)
		}
	}
	for _, file := range []string{"region: x\n", "planet: x\n"} {
		if got := problemsOf(file); strings.Contains(got[0], "it belongs") {
			t.Errorf("%q is nowhere: %q", file, got)
		}
	}
}

func TestKeysOfAMatchBelongBelowMatch(t *testing.T) {
	for _, key := range []string{"id", "cluster", "locality", "metadata", "user_agent_name", "user_agent_version", "any", "all", "not", "cel"} {
		if got := problemsOf(key + ": x\n"); len(got) != 1 || !strings.Contains(got[0], "it belongs below match") {
			t.Errorf("%s: %q", key, got)
		}
	}
}

// newProblems returns the problems of some definitions.
func newProblems(defs ...Definition) []string {
	var all []string
	_, problems := New(defs, Options{CEL: odd})
	for _, p := range problems {
		all = append(all, p.Error())
	}
	return all
}

func TestNamesAndTheirLimits(t *testing.T) {
	long := strings.Repeat("n", maxName)
	all := &Match{}
	for _, c := range []struct {
		name string
		defs []Definition
		want []string
	}{
		{"the longest name", []Definition{{Name: long, Match: all}}, nil},
		{"the lane of the longest name", []Definition{{Name: long, Match: all}, {Name: long + LaneSuffix, Lane: &Lane{Of: long}}}, nil},
		{"a longer name", []Definition{{Name: long + "n", Match: all}}, []string{fmt.Sprintf("group %q: name: a name of 257 bytes: at most 256 are allowed", long+"n")}},
		{"letters of two scripts with a mark between them", []Definition{{Name: "a\u0301\u0440", Match: all}},
			[]string{"group \"a\u0301\u0440\": name: a word of the name has letters of Latin and of Cyrillic, which look alike"}},
		{"the name of a lane", []Definition{{Name: "a" + LaneSuffix, Match: all}},
			[]string{`group "a@next": name: names that end in "@next" are reserved for the lanes of rollouts`}},
		{"two names twice", []Definition{{Name: "a", Match: all}, {Name: "a", Match: all}, {Name: "b", Match: all}, {Name: "b", Match: all}},
			[]string{`group "a": name: two groups have the name "a"`, `group "b": name: two groups have the name "b"`}},
		{"keys of the root", []Definition{{Name: Default, Match: all, Alone: true, Include: []string{"a"}}, {Name: "a"}}, []string{
			`group "default": include: the root has no "include" (the root is the group of nodes that match no other)`,
			`group "default": match: the root has no "match" (the root is the group of nodes that match no other)`,
			`group "default": on_error: the root has no "on_error" (the root is the group of nodes that match no other)`,
		}},
		{"a lane with the name of another group", []Definition{{Name: "a", Match: all}, {Name: "b" + LaneSuffix, Lane: &Lane{Of: "a"}}},
			[]string{`group "b@next": name: the lane of group "a" is "a@next"`}},
		{"a lane with a rule", []Definition{{Name: "a", Match: all}, {Name: "a" + LaneSuffix, Lane: &Lane{Of: "a"}, Match: all}},
			[]string{`group "a@next": lane: a lane has neither match, include nor on_error: it replaces its group for some nodes`}},
		{"an include twice", []Definition{{Name: "a", Match: all, Include: []string{"a", "a"}}}, []string{`group "a": include[0]: "a" includes "a"`}},
		{"a cycle and an unknown group", []Definition{{Name: "a", Match: all, Include: []string{"a", "zzz"}}},
			[]string{`group "a": include[1]: there is no group "zzz"`, `group "a": include[0]: "a" includes "a"`}},
		{"one error", []Definition{{Name: "a", Match: all, Include: []string{"zzz"}}}, []string{`group "a": include[0]: there is no group "zzz"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newProblems(c.defs...); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if r, _ := New(c.defs, Options{}); (r == nil) != (len(c.want) > 0) {
				t.Errorf("rules: %v", r != nil)
			}
		})
	}
}

// A wrong value of a program has its key in the problem.
func TestProblemsOfProgramsNameTheKey(t *testing.T) {
	deep := make([]string, 33)
	for i := range deep {
		deep[i] = "a"
	}
	for name, m := range map[string]Match{
		"a number":        {ID: Values{5.0}},
		"a bool":          {ID: Values{true}},
		"not a number":    {Metadata: []MetadataMatch{{Path: []string{"a"}, Values: Values{math.NaN()}}}},
		"another type":    {Metadata: []MetadataMatch{{Path: []string{"a"}, Values: Values{5}}}},
		"no path":         {Metadata: []MetadataMatch{{}}},
		"a long path":     {Metadata: []MetadataMatch{{Path: deep, Values: Values{"x"}}}},
		"a foreign value": {ID: Values{"^a"}},
	} {
		if got := newProblems(Definition{Name: "g", Match: &m}); len(got) != 1 || !strings.Contains(got[0], `group "g": `) || !strings.Contains(got[0], ": match: ") && !strings.Contains(got[0], "warning: match: ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	longest := Match{Metadata: []MetadataMatch{{Path: deep[1:], Values: Values{"x"}}}}
	if got := newProblems(Definition{Name: "g", Match: &longest}); len(got) > 0 {
		t.Errorf("a path of 32 keys: %q", got)
	}
	_, problems := New([]Definition{{Name: "g", Match: &Match{CEL: "x"}}}, Options{})
	if len(problems) != 1 || problems[0].Path != "match" {
		t.Errorf("an expression: %v", problems)
	}
}

// Many unknown groups get no hint each, because a hint costs a look at all names.
func TestHintsOfUnknownGroupsAreLimited(t *testing.T) {
	d := Definition{Name: "a", Match: &Match{}}
	for i := range maxHints + 5 {
		d.Include = append(d.Include, fmt.Sprintf("defaulx%c", 'a'+rune(i%26)))
	}
	hints := 0
	for _, p := range newProblems(d) {
		if strings.Contains(p, "did you mean") {
			hints++
		}
	}
	if hints != maxHints {
		t.Errorf("%d hints", hints)
	}
	name := strings.Repeat("n", maxName)
	for long, want := range map[string]bool{name[1:] + "x": true, name + "x": false} {
		got := newProblems(Definition{Name: name, Match: &Match{}}, Definition{Name: "a", Match: &Match{}, Include: []string{long}})
		if len(got) != 1 || strings.Contains(got[0], "did you mean") != want {
			t.Errorf("a name of %d bytes: %q", len(long), got)
		}
	}
}

// A group counts once, even if several chains of includes lead to it.
func TestIncludeLimitCountsGroupsOnce(t *testing.T) {
	build := func(groups int) []string {
		var defs []Definition
		for i := range groups + 1 {
			d := Definition{Name: fmt.Sprintf("g%03d", i), Match: &Match{}}
			for next := i + 1; next <= min(i+3, groups); next++ {
				d.Include = append(d.Include, fmt.Sprintf("g%03d", next))
			}
			defs = append(defs, d)
		}
		return newProblems(defs...)
	}
	if got := build(maxInclude); len(got) > 0 {
		t.Errorf("%d included groups: %q", maxInclude, got)
	}
	if got := build(maxInclude + 1); len(got) != 1 || !strings.Contains(got[0], `group "g000" includes more than 100 groups`) {
		t.Errorf("%d included groups: %q", maxInclude+1, got)
	}
}

// A rule that each node meets, or that no node meets, is found by its structure.
func TestNegationOfStructure(t *testing.T) {
	none, some := Match{Any: []Match{}}, Match{ID: Values{"x"}}
	for name, c := range map[string]struct {
		m     Match
		never bool
	}{
		"not any of two conditions":        {Match{Not: &Match{Any: []Match{some, some}}}, false},
		"not any with one that is for all": {Match{Not: &Match{Any: []Match{some, {}}}}, true},
		"not all with one condition":       {Match{Not: &Match{All: []Match{{}, some}}}, false},
		"not none":                         {Match{Not: &none}, false},
		"any with one that is for none":    {Match{Any: []Match{none, some}}, false},
		"all with one that is for none":    {Match{All: []Match{some, none}}, true},
	} {
		if got := newProblems(Definition{Name: "g", Match: &c.m}); (len(got) > 0) != c.never || len(got) > 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A rule for a field looks at this field only.
func TestMatchByEachField(t *testing.T) {
	fields := map[string]struct {
		rule func(*Match) *Values
		node func(*xds.Node) *string
	}{
		"id":                 {func(m *Match) *Values { return &m.ID }, func(n *xds.Node) *string { return &n.ID }},
		"cluster":            {func(m *Match) *Values { return &m.Cluster }, func(n *xds.Node) *string { return &n.Cluster }},
		"region":             {func(m *Match) *Values { return &m.Region }, func(n *xds.Node) *string { return &n.Region }},
		"zone":               {func(m *Match) *Values { return &m.Zone }, func(n *xds.Node) *string { return &n.Zone }},
		"sub_zone":           {func(m *Match) *Values { return &m.SubZone }, func(n *xds.Node) *string { return &n.SubZone }},
		"user_agent_name":    {func(m *Match) *Values { return &m.UserAgentName }, func(n *xds.Node) *string { return &n.UserAgentName }},
		"user_agent_version": {func(m *Match) *Values { return &m.UserAgentVersion }, func(n *xds.Node) *string { return &n.UserAgentVersion }},
	}
	for rule, r := range fields {
		var m Match
		*r.rule(&m) = Values{"x"}
		rules, _ := New([]Definition{{Name: "g", Match: &m}}, Options{})
		for field, f := range fields {
			n := &xds.Node{}
			*f.node(n) = "x"
			want := Default
			if field == rule {
				want = "g"
			}
			if got := rules.Decide(n).Groups; !slices.Equal(got, []string{want}) {
				t.Errorf("a rule for %s, a node with %s: %v", rule, field, got)
			}
		}
	}
}

// A pattern matches text only, and a negation excludes the nodes that it matches.
func TestValuesAndNegations(t *testing.T) {
	for _, c := range []struct {
		name  string
		match Match
		node  *xds.Node
		want  bool
	}{
		{"a pattern for a number", required("a", "**"), nodeWith("n", map[string]any{"a": 1.0}), false},
		{"a pattern for text", required("a", "**"), nodeWith("n", map[string]any{"a": ""}), true},
		{"a key below a text", Match{Metadata: []MetadataMatch{{Path: []string{"a", "b"}, Values: Values{"**"}}}}, nodeWith("n", map[string]any{"a": "x"}), false},
		{"an excluded node", Match{ID: Values{"n"}, Not: &Match{Cluster: Values{"edge"}}}, nodeWith("n", nil), false},
		{"a node that is not excluded", Match{ID: Values{"n"}, Not: &Match{Cluster: Values{"web"}}}, nodeWith("n", nil), true},
		{"an expression that has an error, negated among others", Match{Not: &Match{Any: []Match{{CEL: "odd"}, {Cluster: Values{"web"}}}}}, nodeWith("", nil), false},
	} {
		r, problems := New([]Definition{{Name: "g", Match: &c.match}}, Options{CEL: odd})
		if r == nil {
			t.Fatal(problems)
		}
		if got := slices.Contains(r.Decide(c.node).Groups, "g"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// An alternative that holds makes it irrelevant that another one cannot be evaluated.
func TestNoNoteBehindAnAlternativeThatHolds(t *testing.T) {
	r, _ := New([]Definition{{Name: "g", Match: &Match{Any: []Match{{Cluster: Values{"edge"}}, {CEL: "odd"}}}}}, Options{CEL: odd})
	if d := r.Decide(nodeWith("", nil)); len(d.Notes) > 0 || !slices.Contains(d.Groups, "g") {
		t.Errorf("%v %q", d.Groups, d.Notes)
	}
}

func TestDescriptions(t *testing.T) {
	for want, m := range map[string]Match{
		"every node":                 {},
		"no node":                    {Any: []Match{}},
		`id is "x"`:                  {Any: []Match{{ID: Values{"x"}}}},
		`(id is "x" or id is "y")`:   {Any: []Match{{ID: Values{"x"}}, {ID: Values{"y"}}}},
		`metadata.n is 1.5`:          required("n", 1.5),
		`metadata.n is 1e+06`:        required("n", 1e6),
		`metadata.b is true or is 2`: required("b", true, 2.0),
	} {
		r, problems := New([]Definition{{Name: "g", Match: &m}}, Options{})
		if got, _ := r.Rule("g"); got != want {
			t.Errorf("%s, want %s (%v)", got, want, problems)
		}
		if got, at := r.Rule(Default); got != "" || at != (Place{}) {
			t.Errorf("a group without a rule: %s %v", got, at)
		}
	}
}

// A condition begins if at most 300 bytes precede it, and so does a value. A mark replaces the others.
func TestDescriptionsHave300Bytes(t *testing.T) {
	first := func(bytes int) (value, text string) {
		value = strings.Repeat("f", bytes-len(`id is ""`))
		return value, fmt.Sprintf("id is %q", value)
	}
	for _, bytes := range []int{maxText - 5, maxText - 4, maxText - 3, maxText - 2, maxText, maxText + 1} {
		value, text := first(bytes)
		and, or := " and …", ` or is "tail" or …`
		switch {
		case bytes == maxText-5:
			and = " and cluster …"
		case bytes > maxText:
			and = "…"
		}
		if bytes > maxText-len(" or") {
			or = " or …"
		}
		for want, m := range map[string]Match{
			text + and: {ID: Values{value}, Cluster: Values{"tail"}, Zone: Values{"x"}},
			text + or:  {ID: Values{value, "tail", "x"}},
		} {
			r, _ := New([]Definition{{Name: "g", Match: &m}}, Options{})
			if got, _ := r.Rule("g"); got != want {
				t.Errorf("%d bytes:\n%s, want\n%s", bytes, got, want)
			}
		}
	}
}

// The reason of a rule with alternatives has the position of the one that holds.
func TestReasonHasThePlaceOfTheAlternative(t *testing.T) {
	r, problems := rulesOf(t, map[string]string{"g": "match:\n  any:\n  - id: x\n  - id: y\n"})
	if problems != "" {
		t.Fatal(problems)
	}
	if d := r.Decide(&xds.Node{ID: "y"}); d.Reasons[0].Place.String() != "g/group.yaml:4:5" {
		t.Error(d.Reasons)
	}
}

// A predicate of a program may have another result when the reason is written.
func TestReasonOfAnUnsteadyPredicate(t *testing.T) {
	calls := 0
	unsteady := func(string) (Predicate, error) {
		return func(*Node) (bool, error) {
			calls++
			if calls > 1 {
				return false, errors.New("later")
			}
			return true, nil
		}, nil
	}
	r, _ := New([]Definition{{Name: "g", Match: &Match{Any: []Match{{CEL: "a"}, {ID: Values{"x"}}}}}}, Options{CEL: unsteady})
	if d := r.Decide(&xds.Node{}); d.Reasons[0].Rule != `(cel: a or id is "x")` {
		t.Error(d.Reasons)
	}
}

// Of several groups that include another, the reason names the first one in the order.
func TestReasonNamesTheFirstIncludingGroup(t *testing.T) {
	r, problems := rulesOf(t, map[string]string{"a": "match: {}\ninclude: [c]\n", "b": "match: {}\ninclude: [c]\n", "c": ""})
	if problems != "" {
		t.Fatal(problems)
	}
	if d := r.Decide(&xds.Node{}); !slices.Equal(d.Groups, []string{"a", "b", "c"}) || d.Reasons[2].By != "a" {
		t.Error(d.Reasons)
	}
}

func TestMetadataIsDecodedOnce(t *testing.T) {
	var n Node
	n.set(nodeWith("n", map[string]any{"a": "b"}))
	first, second := n.Metadata(), n.Metadata()
	if len(first) != 1 || reflect.ValueOf(first).Pointer() != reflect.ValueOf(second).Pointer() {
		t.Errorf("%v and %v", first, second)
	}
}

func TestLabelsMatchOnlyTheirValue(t *testing.T) {
	for label, values := range map[string]map[any]bool{
		"true":  {"true": true, true: true, false: false, 1.0: false},
		"false": {"false": true, false: true, true: false, 0.0: false},
		"one":   {"one": true, 0.0: false, false: false},
		"0":     {"0": true, 0.0: true, false: false},
		"t":     {"t": true, true: false},
		"nan":   {"nan": true, 0.0: false},
	} {
		r, problems := rulesOf(t, map[string]string{"edge": "match: {cluster: edge}\n"}, Lane{Of: "edge", Rollout: "x", Labels: map[string]string{"ring": label}})
		if problems != "" {
			t.Fatal(label, problems)
		}
		for value, want := range values {
			if got := r.Decide(nodeWith("n", map[string]any{"ring": value})).Groups[0] == "edge@next"; got != want {
				t.Errorf("the label %s and %T %v: %v", label, value, value, got)
			}
		}
	}
}

// The percentage is a limit that is not part of its share, and only 100 % include a node without an id.
func TestShareOfALane(t *testing.T) {
	files := map[string]string{"edge": "match: {cluster: edge}\n"}
	share := hashPercent("r", "n")
	for _, c := range []struct {
		percent float64
		id      string
		want    bool
	}{
		{share, "n", false}, {math.Nextafter(share, 100), "n", true}, {99.9, "", false}, {100, "", true},
	} {
		r, problems := rulesOf(t, files, Lane{Of: "edge", Rollout: "r", Percent: c.percent})
		if problems != "" {
			t.Fatal(problems)
		}
		if got := r.Decide(nodeWith(c.id, nil)).Groups[0] == "edge@next"; got != c.want {
			t.Errorf("%v %%, node %q: %v", c.percent, c.id, got)
		}
	}
	if hashPercent("ab", "c") == hashPercent("a", "bc") {
		t.Error("the end of the rollout is taken for the beginning of the node")
	}
}

func TestDefinitionOfALane(t *testing.T) {
	if got := BaseOf("edge@next") + " " + BaseOf("edge"); got != "edge edge" {
		t.Error(got)
	}
	want := Lane{Of: "a", Rollout: "r", Percent: 0.5, Labels: map[string]string{"x": "y"}, Groups: []string{"b"}}
	d, problems := Parse("f", want.Definition())
	if len(problems) > 0 || d.Name != "a@next" || d.Lane == nil || !reflect.DeepEqual(*d.Lane, want) {
		t.Errorf("%+v %v", d.Lane, problems)
	}
	defer func() {
		if recover() == nil {
			t.Error("an infinite percentage is written")
		}
	}()
	Lane{Percent: math.Inf(1)}.Definition()
}

// Values that a rule cannot have prove nothing, and an unknown group includes nothing.
func TestOverlapOfInvalidDefinitions(t *testing.T) {
	o := NewOverlap([]Definition{{Name: "a", Match: &Match{ID: Values{5}}, Include: []string{"unknown"}}, {Name: "b", Match: &Match{ID: Values{"b"}}}})
	if !o.Possible("a", "b") {
		t.Error("a number is different from a text")
	}
	if got := o.Includes("a"); !slices.Equal(got, []string{"a", "unknown"}) {
		t.Error(got)
	}
	if keys := slices.Collect(maps.Keys(o.fallback)); !slices.Equal(keys, []string{Default}) {
		t.Error(keys)
	}
}
