package dir

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/xds"
)

// A served is what is served: what each group has, and which nodes get it. It is not changed
// once made.
type served struct {
	worlds map[string]world
	files  int           // that were read
	rules  *groups.Rules // nil: all get that of the root
}

// Place returns where a resource stands that is served, by its name or an alias, such as
// "clusters.yaml:12:3", and "" if there is none. If several groups have it, it is that of the
// root's group, or of the first by name: see [Source.PlaceFor]. It may be called by anyone at
// any time.
func (s *Source) Place(t *xds.Type, name string) string {
	now := s.served.Load()
	if now == nil {
		return ""
	}
	if at := now.worlds[groups.Default].place(t, name); at != "" || len(now.worlds) == 1 {
		return at
	}
	for _, group := range slices.SortedFunc(maps.Keys(now.worlds), byGroup) {
		if at := now.worlds[group].place(t, name); at != "" {
			return at
		}
	}
	return ""
}

// PlaceFor is [Source.Place] of the resource that a node sees: of several of one name that
// of the first of its groups.
func (s *Source) PlaceFor(n *xds.Node, t *xds.Type, name string) string {
	now := s.served.Load()
	if now == nil || now.rules == nil {
		return s.Place(t, name)
	}
	for _, group := range now.rules.Decide(n).Groups {
		if at := now.worlds[group].place(t, name); at != "" {
			return at
		}
	}
	return s.Place(t, name) // it may have been of a group that the node saw before
}

// Decide returns which groups a node gets by what is served now, and why; without groups
// it is that of the root. It may be called by anyone at any time.
func (s *Source) Decide(n *xds.Node) groups.Decision {
	now := s.served.Load()
	if now == nil || now.rules == nil {
		return groups.Decision{Groups: []string{groups.Default}, Reasons: []groups.Reason{{Group: groups.Default, Rule: "no groups are defined"}}}
	}
	return now.rules.Decide(n)
}

// place returns where a resource of the world stands.
func (w world) place(t *xds.Type, name string) string {
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

// serves notes what is served now.
func (s *Source) serves() {
	now := &served{worlds: make(map[string]world, len(s.parts)), files: len(s.files), rules: s.rules}
	for name, p := range s.parts {
		now.worlds[name] = p.world
	}
	s.served.Store(now)
	s.expiry.of(slices.Collect(maps.Values(now.worlds))...)
}
