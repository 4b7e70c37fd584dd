package relay

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// "Stale CDS clusters and related EDS endpoints (ones no longer being referenced) can then be removed."
// An upstream sends one type after the other. So it may remove a resource that other types still refer
// to. A server keeps for each client what older resources refer to, but it trusts its view: a resource of
// the view must not refer to a missing one.

// keepReferenced removes resources from drop that shown resources refer to, as long as they may be kept.
// The source is locked.
func (s *Source) keepReferenced(now time.Time, set, drop map[*name]*xds.Resource) {
	if s.crowded() {
		return
	}
	may := map[*name]bool{}
	for e := range drop {
		if e.res == nil && now.Before(e.removedAt.Add(s.opts.Confirm)) {
			may[e] = true
		}
	}
	for more := len(may) > 0; more; { // kept resources refer to others
		more = false
		refs := map[*kind]*targets{}
		for e := range may {
			if refs[e.kind] == nil {
				refs[e.kind] = s.targets(e.typ, set, drop)
			}
			if refs[e.kind].has(e.typ, drop[e]) {
				delete(may, e)
				delete(drop, e)
				e.hold(e.removedAt.Add(s.opts.Confirm))
				more = true
			}
		}
	}
}

// targets are the names of a type that other resources refer to; any: possibly all names.
type targets struct {
	any   bool
	names map[string]bool
}

// targets returns the names of a type that the resources to be shown refer to.
func (s *Source) targets(t *xds.Type, set, drop map[*name]*xds.Resource) *targets {
	to := &targets{names: map[string]bool{}}
	for _, by := range t.ReferredBy() {
		k := s.types[by.URL]
		if k == nil {
			continue
		}
		for _, e := range k.names {
			r := e.shown
			if set[e] != nil {
				r = set[e]
			} else if drop[e] != nil {
				r = nil
			}
			if r != nil {
				to.add(t, r)
			}
		}
	}
	return to
}

func (to *targets) add(t *xds.Type, r *xds.Resource) {
	to.any = to.any || r.Refs == nil
	for _, ref := range r.Refs {
		if ref.Type.Is(t) {
			to.any = to.any || ref.Name == xds.Wildcard
			to.names[ref.Name] = true
		}
	}
}

func (to *targets) has(t *xds.Type, r *xds.Resource) bool {
	return to.any || to.names[r.Name] || to.names[t.Collection(r.Name)] ||
		slices.ContainsFunc(r.Aliases, func(a string) bool { return to.names[a] })
}
