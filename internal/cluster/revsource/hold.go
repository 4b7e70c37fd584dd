package revsource

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// held returns what is served of a repository: held groups as they were in the revisions that they are held at, and
// for those of which a rollout is under way a lane beside it. All that follows (store, rules, what is kept on disk,
// what is explained) sees one configuration, in which a lane is a group like any other.
func held(next *revisions.Snapshot) *revisions.Snapshot {
	holds := next.Holds()
	is := next
	for _, group := range slices.Sorted(maps.Keys(holds)) {
		h := holds[group]
		is = is.With(group, next.Held(h.Number), group)
		if n := h.Next; n != nil {
			l := groups.Lane{Of: group, Rollout: n.Rollout, Percent: n.Pick.Percent, Labels: n.Pick.Labels, Groups: n.Pick.Groups}
			lane := group + groups.LaneSuffix
			is = is.With(lane, next.Held(n.Number), group, &revisions.Item{Group: lane, Definition: l.Definition()})
		}
	}
	return is
}

// State returns that of which all is served. It may be called by anyone at any time.
func (s *Source) State() revisions.State {
	if at := s.served.Load(); at != nil {
		return at.State()
	}
	return revisions.State{}
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
		h := s.Holds()[group]
		text := group + " at " + h.Number.String()
		if h.Next != nil {
			text += ", rollout " + h.Next.Rollout + " to " + h.Next.Number.String()
		}
		frozen = append(frozen, text)
	}
	if frozen != nil {
		all = append(all, "frozen", frozen)
	}
	return all
}
