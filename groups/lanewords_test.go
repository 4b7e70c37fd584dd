package groups

import (
	"strings"
	"testing"
)

// A label such as "1" or "true" also matches a number or a bool in the metadata. A lane of a lane is an
// error.
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
	if !strings.Contains(problems, `there is no group "edge@next" for this lane`) {
		t.Error(problems)
	}
}
