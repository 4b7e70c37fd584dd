package revsource

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// held returns the configuration to serve. A held group has the content of the revision at which it
// is held. During a rollout the group also has a lane: a second group for the picked nodes. All other
// parts (store, rules, disk, explain) treat the lane as an ordinary group.
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

// State returns the state of the served configuration. Any goroutine may call it.
func (s *Source) State() revisions.State {
	if at := s.served.Load(); at != nil {
		return at.State()
	}
	return revisions.State{}
}

// Holds returns the groups that are served from another revision than [Source.Served], by name. The
// caller must not change the map. Any goroutine may call it.
func (s *Source) Holds() map[string]revisions.Hold {
	if at := s.served.Load(); at != nil {
		return at.Holds()
	}
	return nil
}

// Attributes returns the attributes of the served configuration for a log line.
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
