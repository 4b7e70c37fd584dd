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

// A condition that fails makes it irrelevant that an expression cannot be evaluated.
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
