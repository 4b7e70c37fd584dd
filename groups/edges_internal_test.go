package groups

import (
	"fmt"
	"strings"
	"testing"
)

// Half of all nodes are in a rollout to 50 percent, and all shares are between 0 and 100.
func TestSharesAreUniform(t *testing.T) {
	const nodes = 10_000
	below := [10]int{}
	for i := range nodes {
		s := hashPercent("r", fmt.Sprint("node-", i))
		if s < 0 || s > 100 {
			t.Fatalf("share %v", s)
		}
		below[min(int(s/10), 9)]++
	}
	for i, n := range below {
		if n < 900 || n > 1100 {
			t.Errorf("%d of %d nodes between %d and %d percent", n, nodes, 10*i, 10*i+10)
		}
	}
}

// The reason names the label or the share that puts a node into a lane.
func TestReasonOfALane(t *testing.T) {
	files := map[string]string{"edge": "match: {cluster: edge}\n"}
	for want, l := range map[string]Lane{
		`in the place of edge, by rollout r: metadata.canary is "yes"`:  {Labels: map[string]string{"canary": "yes"}},
		"in the place of edge, by rollout r: it is in the first 100 %":  {Percent: 100},
		"in the place of edge, by rollout r: it is in the first 99.5 %": {Percent: 99.5},
		"in the place of edge, by rollout r: it gets group edge":        {Groups: []string{"edge"}},
	} {
		l.Of, l.Rollout = "edge", "r"
		r, problems := rulesOf(t, files, l)
		if problems != "" {
			t.Fatal(problems)
		}
		d := r.Decide(nodeWith("n", map[string]any{"canary": "yes"}))
		if len(d.Reasons) != 1 || d.Reasons[0].Rule != want {
			t.Errorf("%+v, want %s", d.Reasons, want)
		}
	}
}

// A lane whose definition is invalid does not hide the problems of the lanes after it.
func TestAllWrongLanesAreReported(t *testing.T) {
	edge := "match: {cluster: edge}\n"
	_, problems := rulesOf(t, map[string]string{"a": edge, "b": edge, "a@next": "lane: {of: a}\non_error: alone\n", "b@next": "lane: {of: b}\ninclude: [a]\n"})
	if got := strings.Count(problems, "a lane has neither"); got != 2 {
		t.Errorf("%d problems: %s", got, problems)
	}
}

// A percentage of 0 is valid, and is not written.
func TestLanePercentBounds(t *testing.T) {
	for percent, ok := range map[string]bool{"0": true, "100": true, "-1": false, "100.5": false, "x": false} {
		if _, problems := Parse("f", []byte("lane: {of: a, percent: "+percent+"}\n")); ok != (len(problems) == 0) {
			t.Errorf("%s: %v", percent, problems)
		}
	}
	if b := (Lane{Of: "a"}).Definition(); strings.Contains(string(b), "percent") {
		t.Errorf("%s", b)
	}
}

// The metadata may have fewer keys than the rules ask for, or more.
func TestMatchByOneOfManyMetadataKeys(t *testing.T) {
	m := &Match{}
	for _, key := range []string{"a", "b", "c"} {
		m.Any = append(m.Any, Match{Metadata: []MetadataMatch{{Path: []string{key}, Values: Values{"x"}}}})
	}
	r, _ := New([]Definition{{Name: "g", Match: m}, {Name: Default}}, Options{})
	for _, c := range []struct {
		metadata map[string]any
		want     string
	}{
		{map[string]any{"b": "x"}, "[g]"},
		{map[string]any{"b": "y"}, "[default]"},
		{map[string]any{"d": "x"}, "[default]"},
		{map[string]any{"d": 1, "e": 1, "f": 1, "g": 1, "c": "x"}, "[g]"},
		{map[string]any{"c": nil}, "[default]"},
	} {
		if d := r.Decide(nodeWith("n", c.metadata)); fmt.Sprint(d.Groups) != c.want {
			t.Errorf("%v: %v, want %s", c.metadata, d.Groups, c.want)
		}
	}
}
