package protocoltest

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// book takes a response into account.
func (l *ledger) book(a *account, r *xds.Response, f *flight) {
	if a.world {
		l.worlds[a.typ.URL+r.Version] = r.Upserts
	} else if l.variant == xds.SotW {
		l.sends[a.typ.URL] = append(l.sends[a.typ.URL], sending{r.Version, r.Upserts})
	}
	a.version, a.stirred = r.Version, true
	if len(f.beats) == 0 { // a heartbeat is no answer
		a.answer, a.lax, a.asked = false, false, false
	}
	a.vague = a.vague && !a.world
	for _, n := range r.Missing {
		a.missed[n] = true
		delete(a.turned, n)
	}
	for _, x := range r.Upserts {
		if _, leaves := a.leaving[x.Name]; !leaves && l.shown(a, x.Name) == nil {
			a.leaving[x.Name] = leaver{res: x, at: l.now}
		}
		a.fed[x.Name] = l.now
		delete(a.missed, x.Name)
		for n := range a.names {
			a.heard[n] = a.heard[n] || finds(a.typ, x, n)
		}
		for n := range a.told {
			switch {
			case !a.told[n].absent() || !finds(a.typ, x, n):
			case l.shown(a, x.Name) != nil:
				delete(a.told, n) // it finds something now
			default:
				a.turned[n] = true // nothing but what is about to leave: that it is absent was told
			}
		}
	}
	for n, k := range f.carried {
		a.told[n] = k
		delete(a.tied, n)
		a.heard[n] = true
		if delete(a.turned, n); l.resolves(a, n) {
			a.turned[n] = true
		}
		delete(a.owe, n)
		delete(a.may, n)
		if k.absent() {
			delete(a.leaving, n)
		}
		if a.typ.Is(xds.Endpoint) {
			delete(l.warm, n)
		}
		for _, g := range a.groups {
			delete(g.rest, n)
		}
	}
	a.groups = slices.DeleteFunc(a.groups, func(g *group) bool { return len(g.rest) == 0 })
	if a.world {
		clear(a.may) // the world says of each name that it does not have it
		clear(a.owe)
	}
	if a.typ.Is(xds.Cluster) && l.only == nil {
		eds := l.account(xds.Endpoint)
		for _, x := range r.Upserts {
			for _, ref := range x.Refs {
				if !ref.Type.Is(xds.Endpoint) {
					continue
				}
				exists := l.view.Table(xds.Endpoint).Lookup(ref.Name) != nil
				f.stuck = f.stuck || !exists
				if f.news[x.Name] && !l.given(ref.Name) && l.view.Table(xds.Cluster).Lookup(x.Name) != nil {
					f.lacks = append(f.lacks, ref.Name)
				}
				l.warm[ref.Name] = true
				if eds != nil && eds.covers(ref.Name) && exists && (f.news[x.Name] || !a.world) {
					eds.owe[ref.Name], eds.may[ref.Name] = true, true
				}
			}
		}
	}
	if a.newest == nil || a.newest.done {
		a.quiet = l.now
	}
	a.flights, a.newest = append(a.flights, f), f
}
