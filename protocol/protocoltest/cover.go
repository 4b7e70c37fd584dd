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
	if r == nil || a.names[name] || a.reach[name] || a.star() && !r.OnDemand {
		return r
	}
	return nil
}

// star reports whether the client subscribes to everything.
func (a *account) star() bool { return a.wildcard && a.scopes == nil }

// wants reports whether a name is subscribed, by the client or by the wildcard of its route.
func (a *account) wants(name string) bool { return a.names[name] || a.scopes[name] }

// covers reports whether the client may be sent a name.
func (a *account) covers(name string) bool {
	k, told := a.told[name]
	return a.star() || a.wants(name) || a.reach[name] || told && !k.absent()
}

// outside reports whether a name is subscribed neither by itself nor by the routes that the wildcard covers,
// which are those that this stream subscribed to (OND-4). A host outside of them is not kept.
func (a *account) outside(name string) bool { return !a.wants(name) && a.alone(name) }

// alone reports whether the wildcard covers the stream's routes, and neither it nor another name matches this
// name.
func (a *account) alone(name string) bool {
	c := a.typ.Collection(name)
	return a.scopes != nil && !a.reach[name] && (c == "" || !a.wants(c)) // "" can be subscribed, too
}

// members returns the resources that a name matches by alias or collection, if it is not a resource itself:
// "Both the names and aliases of resources should be checked".
func (l *ledger) members(a *account, name string) (out []*xds.Resource) {
	if l.variant == xds.SotW || l.lookup(a, name) != nil {
		return nil
	}
	for r := range a.table.All() {
		if finds(a.typ, r, name) {
			out = append(out, r)
		}
	}
	return out
}

// finds reports whether a name matches a resource by alias or collection.
func finds(t *xds.Type, r *xds.Resource, name string) bool {
	return slices.Contains(r.Aliases, name) || name != "" && !r.OnDemand && t.Collection(r.Name) == name
}

// strays reports whether the client states a name that it has not subscribed to.
func (a *account) strays(n string) bool {
	_, states := a.stray[n]
	return states
}

// claims reports whether a client that states a name has subscribed to it since, as far as the client can
// know. It does not know which routes its wildcard covers.
func (a *account) claims(n string) bool { return a.wildcard || a.covers(n) }

// calls reports whether a subscribed name would match a resource if it existed.
func (a *account) calls(r *xds.Resource) bool {
	for n := range a.names {
		if a.finds && finds(a.typ, r, n) {
			return true
		}
	}
	return false
}

// resolves reports whether a name matches other resources.
func (l *ledger) resolves(a *account, name string) bool { return len(l.members(a, name)) > 0 }

// find computes again which resources the names match.
func (l *ledger) find(a *account) {
	clear(a.reach)
	for _, names := range []map[string]bool{a.names, a.scopes} {
		for n := range names {
			for _, r := range l.members(a, n) {
				a.reach[r.Name], a.turned[n] = true, true
			}
		}
	}
	for n, k := range a.told {
		if k.own && !a.alone(n) {
			k.own = false
			a.told[n] = k
		}
	}
}

// unchanged reports whether the state to send for a name is the refused one. An unsubscribed name matches
// nothing.
func (l *ledger) unchanged(a *account, g *group, name string, was *xds.Resource) bool {
	return same(was, l.shown(a, name)) && (was != nil || !a.wants(name) || l.resolves(a, name) == g.found[name])
}

// scope updates the collections that a wildcard covers. A wildcard of virtual hosts covers the routes that
// this stream subscribed to (OND-4), or all, if it subscribed to no routes or to all. asked is set if the client
// has just subscribed to something of the type itself.
func (l *ledger) scope(a *account, asked bool) {
	if a.typ.Parent == nil || l.variant == xds.SotW {
		return
	}
	if l.only != nil { // the stream does not show which routes the client has
		for r := range l.view.Table(a.typ.Parent).All() {
			if c := r.Name + "/*"; a.wildcard && len(l.nonces) == 0 && !l.resolves(a, c) {
				a.may[c] = true
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
	l.find(a) // before the new names become due
	for c := range a.scopes {
		switch {
		case was[c]:
		case was != nil || asked:
			l.ask(a, c)
		case !l.resolves(a, c):
			a.owe[c], a.may[c] = true, true // hosts that it already has are not sent again
		}
	}
	for n, k := range a.told { // a host of a resubscribed route may be kept if it was removed
		c := a.typ.Collection(n)
		if _, leaves := a.leaving[n]; !k.absent() && a.scopes[c] && was != nil && !was[c] && !leaves && l.shown(a, n) == nil && l.lingers(a) {
			a.leaving[n] = leaver{res: l.content(a, n, k), at: l.now} // the client may have stated it
		}
	}
	for c := range was {
		if !a.scopes[c] && !a.names[c] {
			delete(a.told, c)
			delete(a.owe, c)
			for _, g := range a.groups {
				g.leave(c)
			}
		}
	}
	l.move(a) // hosts of an unsubscribed route are gone
}

// move marks each refused response whose content has changed in part.
func (l *ledger) move(a *account) {
	for _, g := range a.groups {
		for n, was := range g.was {
			g.moved = g.moved || !l.unchanged(a, g, n, was)
		}
	}
}

// undecided reports whether it is unknown if a name exists.
func (l *ledger) undecided(a *account, name string) bool {
	v, ok := l.view.(xds.Undecided)
	return ok && v.Undecided(a.typ, name)
}

// searching reports whether any subscribed name is undecided.
func (l *ledger) searching(a *account) bool {
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
	if a.world && l.searching(a) || is == nil && l.undecided(a, name) {
		return true
	}
	first := l.account(a.typ.After)
	if first == nil || !first.world || !l.searching(first) {
		return false
	}
	return l.tied(a, is) || a.world && slices.ContainsFunc(l.known(a), func(n string) bool { return l.tied(a, l.shown(a, n)) })
}

// bodyless reports whether the client gets a Resource without a body for a name that never existed.
func (l *ledger) bodyless(a *account) bool {
	return l.variant == xds.Delta && (l.opts.Bodyless || a.typ.Is(xds.VirtualHost) && l.agent == "envoy")
}

// standing reports whether a name may be held back: it was refused, and nothing refused with it has changed.
func (l *ledger) standing(a *account, name string) bool {
	for _, g := range a.groups {
		if g.rest[name] && l.unmoved(a, g) {
			return true
		}
	}
	return false
}

func (l *ledger) unmoved(a *account, g *group) bool {
	for n, was := range g.was {
		if _, leaves := a.leaving[n]; a.covers(n) && !l.unchanged(a, g, n, was) && !leaves {
			return false
		}
	}
	return true
}

// known returns every name that matters to the account, sorted.
func (l *ledger) known(a *account) []string {
	all := make([]string, 0, 2*len(a.told)+len(a.names))
	for _, names := range []map[string]bool{a.names, a.scopes, a.reach, a.owe} {
		for n := range names {
			all = append(all, n)
		}
	}
	for n := range a.told {
		all = append(all, n)
	}
	if a.star() {
		for r := range a.table.All() {
			if !r.OnDemand {
				all = append(all, r.Name)
			}
		}
	}
	return set(all)
}
