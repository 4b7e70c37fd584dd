package protocoltest

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file is the second opinion on subscriptions: wildcards, aliases and collections.

// lookup returns the resource of a name, subscribed or not.
func (l *ledger) lookup(a *account, name string) *xds.Resource {
	return a.table.Lookup(name)
}

// shown returns the resource that the client should have by a name, or nil if it does not exist or no
// subscription matches it.
func (l *ledger) shown(a *account, name string) *xds.Resource {
	r := l.lookup(a, name)
	if r == nil || a.names[name] || a.matched[name] || a.coversAll() && !r.OnDemand {
		return r
	}
	return nil
}

// coversAll reports whether the client subscribes to everything.
func (a *account) coversAll() bool { return a.wildcard && a.scopes == nil }

// subscribes reports whether a name is subscribed, by the client or by the wildcard of its route.
func (a *account) subscribes(name string) bool { return a.names[name] || a.scopes[name] }

// covers reports whether the client may be sent a name.
func (a *account) covers(name string) bool {
	k, told := a.lastSent[name]
	return a.coversAll() || a.subscribes(name) || a.matched[name] || told && !k.absent()
}

// outsideRoutes reports whether a name is subscribed neither by itself nor by the routes that the
// wildcard covers. These are the routes to which this stream subscribes (OND-4). A virtual host
// outside of these routes is not kept.
func (a *account) outsideRoutes(name string) bool { return !a.subscribes(name) && a.unmatched(name) }

// unmatched reports whether the wildcard covers the stream's routes, and neither the wildcard nor
// another name matches this name.
func (a *account) unmatched(name string) bool {
	c := a.typ.Collection(name)
	return a.scopes != nil && !a.matched[name] && (c == "" || !a.subscribes(c)) // "" can be subscribed, too
}

// matchedBy returns the resources that a name matches by alias or collection, if it is not a resource itself:
// "Both the names and aliases of resources should be checked".
func (l *ledger) matchedBy(a *account, name string) (out []*xds.Resource) {
	if l.variant == xds.SotW || l.lookup(a, name) != nil {
		return nil
	}
	for r := range a.table.All() {
		if matches(a.typ, r, name) {
			out = append(out, r)
		}
	}
	return out
}

// matches reports whether a name matches a resource by alias or collection.
func matches(t *xds.Type, r *xds.Resource, name string) bool {
	return slices.Contains(r.Aliases, name) || name != "" && !r.OnDemand && t.Collection(r.Name) == name
}

// statedOnly reports whether the client states a name that it has not subscribed to.
func (a *account) statedOnly(n string) bool {
	_, states := a.stray[n]
	return states
}

// claimsSubscription reports whether a client that states a name has subscribed to it since, as far
// as the client can know. The client does not know which routes its wildcard covers.
func (a *account) claimsSubscription(n string) bool { return a.wildcard || a.covers(n) }

// wouldMatch reports whether a subscribed name would match a resource if it existed.
func (a *account) wouldMatch(r *xds.Resource) bool {
	for n := range a.names {
		if a.byAlias && matches(a.typ, r, n) {
			return true
		}
	}
	return false
}

// matchesOthers reports whether a name matches other resources.
func (l *ledger) matchesOthers(a *account, name string) bool { return len(l.matchedBy(a, name)) > 0 }

// rematch computes again which resources the names match.
func (l *ledger) rematch(a *account) {
	clear(a.matched)
	for _, names := range []map[string]bool{a.names, a.scopes} {
		for n := range names {
			for _, r := range l.matchedBy(a, n) {
				a.matched[r.Name], a.matchedSince[n] = true, true
			}
		}
	}
	for n, k := range a.lastSent {
		if k.own && !a.unmatched(n) {
			k.own = false
			a.lastSent[n] = k
		}
	}
}

// unchanged reports whether the state to send for a name is the refused one. An unsubscribed name matches
// nothing.
func (l *ledger) unchanged(a *account, g *group, name string, was *xds.Resource) bool {
	return same(was, l.shown(a, name)) && (was != nil || !a.subscribes(name) || l.matchesOthers(a, name) == g.found[name])
}

// updateScopes updates the collections that a wildcard covers. A wildcard of virtual hosts covers
// the routes to which this stream subscribes (OND-4), or all routes, if the stream subscribes to no
// routes or to all. Set asked if the client has just subscribed to a name of the type itself.
func (l *ledger) updateScopes(a *account, asked bool) {
	if a.typ.Parent == nil || l.variant == xds.SotW {
		return
	}
	if l.only != nil { // the stream does not show which routes the client has
		for r := range l.view.Table(a.typ.Parent).All() {
			if c := r.Name + "/*"; a.wildcard && len(l.nonces) == 0 && !l.matchesOthers(a, c) {
				a.maySend[c] = true
			}
		}
		return
	}
	over, was := l.account(a.typ.Parent), a.scopes
	a.scopes = nil
	if a.wildcard && over != nil && !over.wildcard {
		a.scopes = map[string]bool{}
		for n := range over.names {
			a.scopes[n+"/*"] = true
		}
	}
	l.rematch(a) // before the new names become due
	for c := range a.scopes {
		switch {
		case was[c]:
		case was != nil || asked:
			l.ask(a, c)
		case !l.matchesOthers(a, c):
			a.mustSend[c], a.maySend[c] = true, true // virtual hosts that the client already has are not sent again
		}
	}
	for n, k := range a.lastSent { // a host of a resubscribed route may be kept if it was removed
		c := a.typ.Collection(n)
		if _, leaves := a.removed[n]; !k.absent() && a.scopes[c] && was != nil && !was[c] && !leaves && l.shown(a, n) == nil && l.keepsRemoved(a) {
			a.removed[n] = removal{res: l.content(a, n, k), at: l.now} // the client may have stated it
		}
	}
	for c := range was {
		if !a.scopes[c] && !a.names[c] {
			delete(a.lastSent, c)
			delete(a.mustSend, c)
			for _, g := range a.groups {
				g.unsubscribe(c)
				delete(g.rest, c)
			}
		}
	}
	l.markMoved(a) // hosts of an unsubscribed route are gone
}

// markMoved marks each refused response whose content has changed in part.
func (l *ledger) markMoved(a *account) {
	for _, g := range a.groups {
		for n, was := range g.was {
			g.moved = g.moved || !l.unchanged(a, g, n, was)
		}
	}
}

// undecided reports whether the view is still looking for a name.
func (l *ledger) undecided(a *account, name string) bool {
	v, ok := l.view.(xds.Undecided)
	return ok && v.Undecided(a.typ, name)
}

// hasUndecided reports whether any subscribed name is undecided.
func (l *ledger) hasUndecided(a *account) bool {
	for n := range a.names {
		if l.undecided(a, n) {
			return true
		}
	}
	return false
}

// waitsForView reports whether a name may wait because the view is undecided. An undecided name is not
// removed. A name that a full-state response lacks does not exist, so the response waits until all names are
// decided. Resources that refer to its clusters wait for it.
func (l *ledger) waitsForView(a *account, name string, is *xds.Resource) bool {
	if a.world && l.hasUndecided(a) || is == nil && l.undecided(a, name) {
		return true
	}
	first := l.account(a.typ.After)
	if first == nil || !first.world || !l.hasUndecided(first) {
		return false
	}
	return l.waitsForClusters(a, is) || a.world && slices.ContainsFunc(l.knownNames(a), func(n string) bool { return l.waitsForClusters(a, l.shown(a, n)) })
}

// getsAbsent reports whether the client gets a Resource without a body for a name that never existed.
func (l *ledger) getsAbsent(a *account) bool {
	return l.variant == xds.Delta && (l.opts.Bodyless || a.typ.Is(xds.VirtualHost) && l.agent == "envoy")
}

// rightlyHeldBack reports whether a name may be held back: it was refused, and nothing refused with it has changed. A
// withheld name is held back, too, if the client has ever refused its state.
func (l *ledger) rightlyHeldBack(a *account, name string) bool {
	if is := l.shown(a, name); is != nil && l.withholds(a, name) && slices.ContainsFunc(a.refused[name], func(k fact) bool { return k.is(is) }) {
		return true
	}
	for _, g := range a.groups {
		if g.rest[name] && l.unmoved(a, g) {
			return true
		}
	}
	return false
}

func (l *ledger) unmoved(a *account, g *group) bool {
	if g.apart {
		for n, was := range g.was { // the responses with the full state lack the name
			return l.withholds(a, n) && (l.shown(a, n) == nil || l.unchanged(a, g, n, was))
		}
	}
	for n, was := range g.was {
		if _, leaves := a.removed[n]; a.covers(n) && !l.unchanged(a, g, n, was) && !leaves {
			return false
		}
	}
	return true
}

// knownNames returns every name that matters to the account, sorted.
func (l *ledger) knownNames(a *account) []string {
	all := make([]string, 0, 2*len(a.lastSent)+len(a.names))
	for _, names := range []map[string]bool{a.names, a.scopes, a.matched, a.mustSend} {
		for n := range names {
			all = append(all, n)
		}
	}
	for n := range a.lastSent {
		all = append(all, n)
	}
	if a.coversAll() {
		for r := range a.table.All() {
			if !r.OnDemand {
				all = append(all, r.Name)
			}
		}
	}
	return set(all)
}
