package groups

import (
	"strings"
	"testing"
)

// A label that is a number, or true, is in metadata as that or as a text; a lane is of a group, and of no lane.
func TestLabelsOfLanes(t *testing.T) {
	r, problems := rulesOf(t, map[string]string{"edge": "match: {cluster: edge}\n"}, Lane{Of: "edge", Rollout: "x", Labels: map[string]string{"ring": "1"}})
	if problems != "" {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		value any
		want  string
	}{{1.0, "edge@next"}, {"1", "edge@next"}, {2.0, "edge"}, {true, "edge"}} {
		if got := r.Decide(nodeWith("n", map[string]any{"ring": c.value})).Groups[0]; got != c.want {
			t.Errorf("%v: %s, want %s", c.value, got, c.want)
		}
	}
	_, problems = rulesOf(t, map[string]string{"edge": "match: {cluster: edge}\n", "edge@next": "lane: {of: edge}\n", "edge@next@next": "lane: {of: edge@next}\n"})
	if !strings.Contains(problems, `there is no group "edge@next" that it is a lane of`) {
		t.Error(problems)
	}
}
