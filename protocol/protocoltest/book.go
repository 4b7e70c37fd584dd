package protocoltest

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// warms records that the resources that a response warms may be sent again, and returns them: one, or the
// members of a collection.
func (l *ledger) warms(t *xds.Type, ref xds.Ref) (found []string) {
	if !ref.Type.Is(t) {
		return nil
	}
	l.warm[[2]string{t.URL, ref.Name}] = true
	table := l.view.Table(t)
	if table.Lookup(ref.Name) != nil {
		return []string{ref.Name}
	}
	for r := range table.All() {
		if matches(t, r, ref.Name) {
			l.warm[[2]string{t.URL, r.Name}] = true
			found = append(found, r.Name)
		}
	}
	return found
}

// record records a response.
func (l *ledger) record(a *account, r *xds.Response, f *flight) {
	if a.world {
		l.worlds[a.typ.URL+r.Version] = r.Upserts
	}
	if l.variant == xds.SotW {
		l.sends[a.typ.URL] = append(l.sends[a.typ.URL], sending{r.Version, r.Upserts})
	}
	a.version, a.unsettled = r.Version, true
	if len(f.beats) == 0 { // a heartbeat is not an answer
		a.answer, a.mayAnswerEmpty, a.subscribedMore = false, false, false
	}
	a.vague = a.vague && !a.world
	for _, n := range r.Missing {
		a.reportedMissing[n] = true
		delete(a.matchedSince, n)
	}
	for _, x := range r.Upserts {
		if _, leaves := a.removed[x.Name]; !leaves && l.shown(a, x.Name) == nil {
			a.removed[x.Name] = removal{res: x, at: l.now}
		}
		a.ttlBegan[x.Name] = l.now
		delete(a.reportedMissing, x.Name)
		for n := range a.names {
			a.heard[n] = a.heard[n] || matches(a.typ, x, n)
		}
		for n := range a.lastSent {
			switch {
			case !a.lastSent[n].absent() || !matches(a.typ, x, n):
			case l.shown(a, x.Name) != nil:
				delete(a.lastSent, n) // the name matches a resource now
			default:
				a.matchedSince[n] = true // the name matches only a kept resource, and its absence was sent
			}
		}
	}
	for n, k := range f.carried {
		k.own = !k.absent() && a.unmatched(n)
		a.lastSent[n] = k
		delete(a.waitsSince, n)
		a.heard[n] = true
		delete(a.matchedSince, n)
		if k.found || l.matchesOthers(a, n) {
			a.matchedSince[n] = true
		}
		delete(a.mustSend, n)
		delete(a.maySend, n)
		if k.found && !l.matchesOthers(a, n) && l.opts.ResourceErrors {
			a.mustSend[n] = true // the name is missing when it matches no resource any more
		}
		if k.absent() {
			delete(a.removed, n)
		}
		key := [2]string{a.typ.URL, n}
		for _, g := range a.groups {
			if _, in := g.was[n]; in && l.warm[key] {
				g.warmed = l.batch // the other names may come in another part
			}
			delete(g.rest, n)
		}
		delete(l.warm, key)
	}
	a.groups = slices.DeleteFunc(a.groups, func(g *group) bool { return len(g.rest) == 0 })
	if a.world {
		clear(a.maySend) // the full-state response answers every name
		clear(a.mustSend)
	}
	if typ := a.typ.Warms; typ != nil && l.only == nil {
		eds := l.account(typ)
		for _, x := range r.Upserts {
			for _, ref := range x.Refs {
				if !ref.Type.Is(typ) {
					continue
				}
				found := l.warms(typ, ref)
				f.stuck = f.stuck || len(found) == 0
				if f.news[x.Name] && !l.hasAssignment(typ, ref.Name) && l.lookup(a, x.Name) != nil {
					f.lacks = append(f.lacks, ref.Name)
				}
				for _, n := range found {
					if eds != nil && l.shown(eds, n) != nil && (f.news[x.Name] || !a.world) {
						eds.mustSend[n], eds.maySend[n] = true, true
					}
				}
			}
		}
	}
	if a.newest == nil || a.newest.done {
		a.unansweredSince = l.now
	}
	a.flights, a.newest = append(a.flights, f), f
	a.markMerged()
}
