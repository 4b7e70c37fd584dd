package relay

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// "Stale CDS clusters and related EDS endpoints (ones no longer being referenced) can then be
// removed." An upstream sends one type after the other, so it may remove what the relay's other
// types still refer to. A server keeps for each client what older resources refer to, but
// believes its view: the view must not lack what it refers to itself.

// keep takes back from what is to be dropped what something refers to that will be shown, for as
// long as it may be kept. The source is locked.
func (s *Source) keep(now time.Time, set, drop map[*name]*xds.Resource) {
	may := map[*name]bool{}
	for e := range drop {
		if e.res == nil && now.Before(e.gone.Add(s.opts.Confirm)) {
			may[e] = true
		}
	}
	for more := len(may) > 0; more; { // what is kept refers to others
		more = false
		refs := map[*kind]*targets{}
		for e := range may {
			if refs[e.kind] == nil {
				refs[e.kind] = s.targets(e.typ, set, drop)
			}
			if refs[e.kind].has(e.typ, drop[e]) {
				delete(may, e)
				delete(drop, e)
				e.hold(e.gone.Add(s.opts.Confirm))
				more = true
			}
		}
	}
}

// targets are names of a type to which others refer, or any.
type targets struct {
	any   bool
	names map[string]bool
}

// targets returns to what of a type those refer that will be shown.
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
