package repository

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/revisions"
)

// held returns what is served of a repository: held groups as they were in the revisions that they are held at. All
// that follows (store, rules, what is kept on disk, what is explained) sees one configuration.
func held(next *revisions.Snapshot) *revisions.Snapshot {
	holds := next.Holds()
	is := next
	for _, group := range slices.Sorted(maps.Keys(holds)) {
		is = is.With(group, next.Held(holds[group].Number), group)
	}
	return is
}

// Holds returns which groups are served of another revision than [Source.Served], by name. It must not be
// changed, and may be called by anyone at any time.
func (s *Source) Holds() map[string]revisions.Hold {
	if at := s.served.Load(); at != nil {
		return at.Holds()
	}
	return nil
}

// Attributes say for a log what is served.
func (s *Source) Attributes() []any {
	r := s.Served()
	all := []any{"revision", r.Number.String(), "author", r.Author, "message", r.Message, "items", r.Items, "set", r.Set, "removed", r.Removed}
	var frozen []string
	for _, group := range slices.Sorted(maps.Keys(s.Holds())) {
		frozen = append(frozen, group+" at "+s.Holds()[group].Number.String())
	}
	if frozen != nil {
		all = append(all, "frozen", frozen)
	}
	return all
}
