package protocoltest

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// What a subscription is to: the second opinion on wildcards, aliases and
// collections.

// lookup is the resource with the name, subscribed or not.
func (l *ledger) lookup(a *account, name string) *xds.Resource {
	return a.table.Lookup(name)
}

// shown is what the client should have of a name: the resource, if its
// subscription is to it, or nil.
func (l *ledger) shown(a *account, name string) *xds.Resource {
	r := l.lookup(a, name)
	if r == nil || a.names[name] || a.reach[name] || a.star() && !r.OnDemand {
		return r
	}
	return nil
}

// star reports whether the subscription is to everything.
func (a *account) star() bool { return a.wildcard && a.scopes == nil }

// wants reports whether a name is subscribed, by the client or in its place.
func (a *account) wants(name string) bool { return a.names[name] || a.scopes[name] }

// covers reports whether the client may be told of a name.
func (a *account) covers(name string) bool {
	k, told := a.told[name]
	return a.star() || a.wants(name) || a.reach[name] || told && !k.absent()
}

// outside reports whether a name is under none of the routes whose virtual hosts the
// wildcard is of, and is not asked for by itself: "A VHDS wildcard covers the routes this
// stream subscribed to". What is not the client's does not linger.
func (a *account) outside(name string) bool { return !a.wants(name) && a.alone(name) }

// alone reports whether there is a wildcard of routes, and neither it nor another name
// has what is called so.
func (a *account) alone(name string) bool {
	c := a.typ.Collection(name)
	return a.scopes != nil && !a.reach[name] && (c == "" || !a.wants(c)) // "" may be asked for, too
}

// members are the resources that a name finds that no resource has: "Both the
// names and aliases of resources should be checked".
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

// finds reports whether a name finds a resource by alias or collection.
func finds(t *xds.Type, r *xds.Resource, name string) bool {
	return slices.Contains(r.Aliases, name) || name != "" && !r.OnDemand && t.Collection(r.Name) == name
}

// strays reports whether the client states to have a name that it has not asked for.
func (a *account) strays(n string) bool {
	_, states := a.stray[n]
	return states
}

// claims reports whether a client that states a name has asked for it since, for all that it
// knows: which routes its wildcard is of, and what these have, it does not.
func (a *account) claims(n string) bool { return a.wildcard || a.covers(n) }

// calls reports whether a resource, if it were there, would be found by a name.
func (a *account) calls(r *xds.Resource) bool {
	for n := range a.names {
		if a.finds && finds(a.typ, r, n) {
			return true
		}
	}
	return false
}

// resolves reports whether a name finds other resources.
func (l *ledger) resolves(a *account, name string) bool { return len(l.members(a, name)) > 0 }

// find works out anew what the names find.
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

// unchanged reports whether what is to be said of a name is what was refused. A name that the
// client does not ask for finds nothing.
func (l *ledger) unchanged(a *account, g *group, name string, was *xds.Resource) bool {
	return same(was, l.shown(a, name)) && (was != nil || !a.wants(name) || l.resolves(a, name) == g.found[name])
}

// scope follows the names whose collections a wildcard is of. "A VHDS wildcard
// covers the routes this stream subscribed to, not everybody's": those of all if
// it has asked for no routes, or for all. asked tells whether the client has just
// asked for something of the type itself.
func (l *ledger) scope(a *account, asked bool) {
	if a.typ.Parent == nil || l.variant == xds.SotW {
		return
	}
	if l.only != nil { // the stream does not say which routes are its client's
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
	l.find(a) // before anything is asked of what is shown
	for c := range a.scopes {
		switch {
		case was[c]:
		case was != nil || asked:
			l.ask(a, c)
		case !l.resolves(a, c):
			a.owe[c], a.may[c] = true, true // what it has of the others is not told again
		}
	}
	for n, k := range a.told { // what it has of a route that it asks for again may linger, if that is lost
		c := a.typ.Collection(n)
		if _, leaves := a.leaving[n]; !k.absent() && a.scopes[c] && was != nil && !was[c] && !leaves && l.shown(a, n) == nil && l.lingers(a) {
			a.leaving[n] = leaver{res: l.content(a, n, k), at: l.now} // it may have stated that
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
	l.move(a) // what a route that was given up has found is gone
}

// move notes of which refused responses something is another now.
func (l *ledger) move(a *account) {
	for _, g := range a.groups {
		for n, was := range g.was {
			g.moved = g.moved || !l.unchanged(a, g, n, was)
		}
	}
}

// undecided reports whether it is not known whether a name exists.
func (l *ledger) undecided(a *account, name string) bool {
	v, ok := l.view.(xds.Undecided)
	return ok && v.Undecided(a.typ, name)
}

// searching reports whether that is so for a name of the account.
func (l *ledger) searching(a *account) bool {
	for n := range a.names {
		if l.undecided(a, n) {
			return true
		}
	}
	return false
}

// waitsForView reports whether what the view has of a name rightly waits for what that
// still looks for: that of which it is not decided whether it exists is not told to be
// gone; what a world does not have does not exist, so it is told whole, or not yet, and
// what refers to its clusters waits for them.
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

// bodyless reports whether the client is told of a name that never existed by a
// Resource without body.
func (l *ledger) bodyless(a *account) bool {
	return l.variant == xds.Delta && (l.opts.Bodyless || a.typ.Is(xds.VirtualHost) && l.agent == "envoy")
}

// standing reports whether a name is rightly held back: it was refused, and
// nothing that was refused with it is another today.
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

// known lists every name that matters to the account, sorted.
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
