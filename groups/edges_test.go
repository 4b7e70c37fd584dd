package groups_test

import (
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/xds"
)

func TestProblemsOfOddFiles(t *testing.T) {
	for _, c := range []struct{ name, archive, want string }{
		{"an expression that is a number", "-- a/group.yaml --\nmatch: {cel: 5}\n",
			`XDS0103 config/a/group.yaml:1:14: match.cel: a string is needed, not int 5 (put it in quotes)`},
		{"metadata that is a list", "-- a/group.yaml --\nmatch: {metadata: [x]}\n",
			`XDS0103 config/a/group.yaml:1:19: match.metadata: a mapping is needed, not a list`},
		{"a pattern of another language in the first line", "-- a/group.yaml --\nmatch: {id: ^web}\n",
			`XDS0708 config/a/group.yaml:1:8: warning: match: id: "^web" matches only`},
		{"an unknown group behind a known one", "-- a/group.yaml --\nmatch: {}\ninclude: [default,\n  b]\n",
			`XDS0704 config/a/group.yaml:3:3: include[1]: there is no group "b"`},
		{"an unknown group in otherwise, which only the root may have", "-- a/group.yaml --\nmatch: {}\notherwise: b\n",
			`XDS0706 config/a/group.yaml:2:12: otherwise: only the root may have "otherwise"`},
		{"a key of a match in the locality", "-- a/group.yaml --\nmatch: {locality: {all: []}}\n",
			`XDS0701 config/a/group.yaml:1:20: match.locality: unknown key "all" in locality (there are region, sub_zone, zone)`},
		{"any outside of match", "-- a/group.yaml --\nmatch: {}\nany: []\n",
			`XDS0701 config/a/group.yaml:2:1: unknown key "any" in group.yaml (it belongs below match)`},
		{"all outside of match", "-- a/group.yaml --\nmatch: {}\nall: []\n",
			`XDS0701 config/a/group.yaml:2:1: unknown key "all" in group.yaml (it belongs below match)`},
		{"sub_zone outside of locality", "-- a/group.yaml --\nmatch: {sub_zone: x}\n",
			`XDS0701 config/a/group.yaml:1:9: match: unknown key "sub_zone" in a match (it belongs below locality)`},
		{"a rule that excludes all nodes", "-- a/group.yaml --\nmatch: {not: {all: [{}, {}]}}\n",
			`XDS0707 config/a/group.yaml:1:8: warning: match: no node can match the rule of group "a"`},
		{"a lane of an unknown group", "-- a@next/group.yaml --\nlane: {of: a}\n",
			`XDS0704 config/a@next/group.yaml:1:7: lane: there is no group "a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems := load(t, c.archive)
			if got := told(problems); len(problems) != 1 || !strings.HasPrefix(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestReasonOfNegatedAlternatives(t *testing.T) {
	r := mustLoad(t, "-- a/group.yaml --\nmatch: {not: {any: [{id: x}, {cluster: y}]}}\n")
	if got, want := reasons(r.Decide(&xds.Node{ID: "n"})), `not ((id is "x" or cluster is "y"))`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// If a condition fails, an expression that cannot be evaluated causes no note.
func TestNoNoteOfAnIrrelevantExpression(t *testing.T) {
	r := mustLoad(t, "-- a/group.yaml --\nmatch: {id: '**x', cel: node.metadata.tier > 2}\n")
	for id, notes := range map[string]int{"n": 0, "x": 1} {
		if d := r.Decide(&xds.Node{ID: id}); len(d.Notes) != notes {
			t.Errorf("node %s: %q", id, d.Notes)
		}
	}
}

func TestTogetherByEachField(t *testing.T) {
	for name, match := range map[string]func(m *groups.Match, v groups.Values){
		"id":                 func(m *groups.Match, v groups.Values) { m.ID = v },
		"cluster":            func(m *groups.Match, v groups.Values) { m.Cluster = v },
		"region":             func(m *groups.Match, v groups.Values) { m.Region = v },
		"zone":               func(m *groups.Match, v groups.Values) { m.Zone = v },
		"sub_zone":           func(m *groups.Match, v groups.Values) { m.SubZone = v },
		"user_agent_name":    func(m *groups.Match, v groups.Values) { m.UserAgentName = v },
		"user_agent_version": func(m *groups.Match, v groups.Values) { m.UserAgentVersion = v },
	} {
		t.Run(name, func(t *testing.T) {
			all := []groups.Definition{{Name: groups.Default}}
			for group, value := range map[string]string{"a": "x", "b": "y", "c": "x"} {
				m := &groups.Match{}
				match(m, groups.Values{value})
				all = append(all, groups.Definition{Name: group, Match: m})
			}
			together := groups.NewOverlap(all)
			if together.Possible("a", "b") || !together.Possible("a", "c") {
				t.Errorf("different values: %v, equal values: %v", together.Possible("a", "b"), together.Possible("a", "c"))
			}
		})
	}
}

func TestMatchBySubZone(t *testing.T) {
	r := mustLoad(t, "-- a/group.yaml --\nmatch: {locality: {sub_zone: rack-1}}\n")
	for subZone, want := range map[string]string{"rack-1": "a", "rack-2": groups.Default} {
		if d := r.Decide(&xds.Node{SubZone: subZone}); len(d.Groups) != 1 || d.Groups[0] != want {
			t.Errorf("%s: %v", subZone, d.Groups)
		}
	}
}

func TestPriorityIsDecimal(t *testing.T) {
	if d, problems := groups.Parse("f", []byte("priority: 10\n")); len(problems) > 0 || d.Priority != 10 {
		t.Errorf("%d %v", d.Priority, problems)
	}
}

// A pattern must match each of its parts: the text before, between and after the wildcards.
func TestPatternPartsMatch(t *testing.T) {
	for pattern, values := range map[string]map[string]bool{
		"a*c":   {"abc": true, "abcd": false, "ab": false},
		"*b*d*": {"abcde": true, "adcb": false},
	} {
		r := mustLoad(t, "-- g/group.yaml --\nmatch: {id: '"+pattern+"'}\n")
		for id, want := range values {
			if got := r.Decide(&xds.Node{ID: id}).Groups[0] == "g"; got != want {
				t.Errorf("%s matches %s: %v", pattern, id, got)
			}
		}
	}
}

func TestRuleOfALane(t *testing.T) {
	r := mustLoad(t, "-- edge/group.yaml --\nmatch: {id: 'edge-*'}\n-- next/group.yaml --\n"+string(groups.Lane{Of: "edge", Rollout: "r3-1a", Percent: 10}.Definition()))
	if text, at := r.Rule("edge@next"); text != "nodes of group edge that rollout r3-1a has picked" || at != (groups.Place{}) {
		t.Error(text, at)
	}
}

func TestRuleOfAGroup(t *testing.T) {
	r := mustLoad(t, "-- a/group.yaml --\nmatch: {id: x}\n-- b/group.yaml --\nmatch:\n  cluster: [y, z]\n")
	for group, want := range map[string]string{"a": `id is "x" config/a/group.yaml:1:8`, "b": `cluster is "y" or is "z" config/b/group.yaml:2:3`, "c": " "} {
		if text, at := r.Rule(group); text+" "+at.String() != want {
			t.Errorf("%s: %s %s, want %s", group, text, at, want)
		}
	}
	if got := (groups.Place{File: "f"}).String(); got != "f" {
		t.Error(got)
	}
}

func TestDescriptionsOfLongRulesEnd(t *testing.T) {
	for _, match := range []string{"{id: [" + strings.Repeat("value,", 500) + "]}", "{any: [" + strings.Repeat("{id: value},", 500) + "]}"} {
		text, _ := mustLoad(t, "-- a/group.yaml --\nmatch: "+match+"\n").Rule("a")
		if len(text) < 200 || len(text) > 400 || !strings.Contains(text, "…") {
			t.Errorf("%d bytes: %s", len(text), text)
		}
	}
}

// A group brings in two others: its nodes see both.
func TestOverlapOfIncludedGroups(t *testing.T) {
	o := groups.NewOverlap([]groups.Definition{
		{Name: groups.Default, Otherwise: groups.Refuse}, {Name: "p"}, {Name: "q"},
		{Name: "x", Match: &groups.Match{ID: groups.Values{}}, Include: []string{"p", "q"}},
	})
	if !o.Possible("p", "q") {
		t.Error("the included groups are apart")
	}
}

func TestNegationOfARealConditionIsNoProblem(t *testing.T) {
	if _, problems := load(t, "-- a/group.yaml --\nmatch: {not: {all: [{id: x}, {cluster: y}]}}\n"); len(problems) > 0 {
		t.Error(told(problems))
	}
}
