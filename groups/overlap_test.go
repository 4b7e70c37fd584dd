package groups_test

import (
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/groups"
)

// Two groups do not overlap only if no node can have both.
func TestOverlap(t *testing.T) {
	id := func(v ...any) *groups.Match { return &groups.Match{ID: v} }
	all := []groups.Definition{
		{Name: groups.Default, Otherwise: "rest"}, {Name: "rest", Include: []string{"base"}}, {Name: "base"}, {Name: "nobody"},
		{Name: "web", Match: id("web-*"), Include: []string{"tools"}}, {Name: "db", Match: id("db-*", `d\\*`)}, {Name: "one", Match: id("web-1")},
		{Name: "tools", Include: []string{"lib", "tools2"}}, {Name: "tools2", Include: []string{"lib"}}, {Name: "lib"},
		{Name: "star", Match: id("d*")}, {Name: "asks", Match: &groups.Match{CEL: "true"}}, {Name: "broken", Match: id(`d\`)},
	}
	together := groups.NewOverlap(all)
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"web", "db", false}, {"web", "one", true}, {"one", "db", false}, {"web", "web", true}, {"db", "star", true}, {"star", "web", false},
		{"lib", "db", false}, {"lib", "one", true}, {"tools2", "web", true},
		{"rest", "base", true}, {"base", "web", false}, {"nobody", "web", true}, {"asks", "web", true}, {"asks", "base", false}, {"broken", "web", true},
	} {
		for range 2 { // the second call uses the cache
			if together.Possible(c.a, c.b) != c.want || together.Possible(c.b, c.a) != c.want {
				t.Errorf("%s and %s: not %v", c.a, c.b, c.want)
			}
		}
	}
	if got := together.Includes("web"); !slices.Equal(got, []string{"web", "tools", "lib", "tools2"}) {
		t.Error(got)
	}
	if got := together.FirstPossible("db", []string{"web", "lib", "star", "asks"}); got != "star" {
		t.Error(got)
	}
	if refused := groups.NewOverlap([]groups.Definition{{Name: groups.Default, Otherwise: groups.Refuse}, {Name: "a", Match: id("a"), Include: []string{groups.Default}}}); !refused.Possible(groups.Default, "a") || refused.FirstPossible("a", nil) != "" {
		t.Error("the root that is included")
	}
}
