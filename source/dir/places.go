package dir

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/xds"
)

// A served is the served configuration: the content of each group, and the rules. It does not change
// once made.
type served struct {
	contents map[string]groupContent
	files    int           // number of files that were read
	rules    *groups.Rules // nil: all nodes get the group of the root
	layout   layout

	bootstraps *bootstrapSet
	kept       map[string][]string // see bootstrapSet.byCluster
}

// Place returns the place of a served resource, by its name or an alias, such as "clusters.yaml:12:3".
// It returns "" if there is none. If several groups have the resource, Place returns the one of the
// root's group, or else of the first group by name: see [Source.PlaceIn] and [Source.PlaceFor].
func (s *Source) Place(t *xds.Type, name string) string {
	now := s.served.Load()
	if now == nil {
		return ""
	}
	if at := now.contents[groups.Default].place(t, name); at != "" || len(now.contents) == 1 {
		return at
	}
	for _, group := range slices.SortedFunc(maps.Keys(now.contents), byGroup) {
		if at := now.contents[group].place(t, name); at != "" {
			return at
		}
	}
	return ""
}

// PlaceIn returns the place of the resource of a group, by its name or an alias; "" if there is none.
func (s *Source) PlaceIn(group string, t *xds.Type, name string) string {
	now := s.served.Load()
	if now == nil {
		return ""
	}
	return now.contents[group].place(t, name)
}

// PlaceFor returns the place of the resource that a node gets, as [Source.Place] does. If several
// groups have a resource of that name, the first group of the node counts.
func (s *Source) PlaceFor(n *xds.Node, t *xds.Type, name string) string {
	now := s.served.Load()
	if now == nil || now.rules == nil {
		return s.Place(t, name)
	}
	for _, group := range now.rules.Decide(n).Groups {
		if at := now.contents[group].place(t, name); at != "" {
			return at
		}
	}
	return s.Place(t, name) // it may be in a group that the node had before
}

// Decide returns which groups a node gets by the served rules, and why. Without groups, that is the
// group of the root.
func (s *Source) Decide(n *xds.Node) groups.Decision {
	now := s.served.Load()
	if now == nil || now.rules == nil {
		return groups.Decision{Groups: []string{groups.Default}, Reasons: []groups.Reason{{Group: groups.Default, Rule: "no groups are defined"}}}
	}
	return now.rules.Decide(n)
}

// Together returns the groups that a node may get at the same time, by the served rules. The result is the caller's.
func (s *Source) Together() *groups.Overlap {
	now := s.served.Load()
	if now == nil {
		return groups.NewOverlap(nil)
	}
	return now.layout.together()
}

// place returns the place of a resource of the group, by its name or an alias; "" if there is none.
func (w groupContent) place(t *xds.Type, name string) string {
	c := w.types[t.URL]
	if c == nil {
		return ""
	}
	if l, ok := c.at[name]; ok {
		return l.Pos.String()
	}
	if l, ok := c.aliases[name]; ok {
		return l.Pos.String()
	}
	return ""
}

// publishServed publishes the served configuration to other goroutines.
func (s *Source) publishServed() {
	now := &served{contents: make(map[string]groupContent, len(s.parts)), files: len(s.files), rules: s.rules, layout: s.layout, bootstraps: s.bootstraps, kept: s.bootstraps.byCluster(&s.layout)}
	for name, p := range s.parts {
		now.contents[name] = p.content
	}
	s.served.Store(now)
	s.unresolved = missingIn(s.layout, now.contents, s.bootstraps)
	s.expiry.set(slices.Collect(maps.Values(now.contents))...)
}
