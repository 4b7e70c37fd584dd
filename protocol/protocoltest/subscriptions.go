package protocoltest

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file is the second opinion on subscriptions: names, wildcards, aliases and collections.

// subscriptions are what a client subscribes to of one type.
type subscriptions struct {
	names    map[string]bool // without "*"
	wildcard bool
	implicit bool            // the client has never subscribed to a name
	byAlias  bool            // names also match by alias and collection: delta only
	matched  map[string]bool // resources that the names match
	scopes   map[string]bool // the collections that the wildcard covers; nil: all
}

func newSubscriptions(v xds.Variant) subscriptions {
	return subscriptions{names: map[string]bool{}, matched: map[string]bool{}, implicit: true, byAlias: v == xds.Delta}
}

// coversAll reports whether the client subscribes to everything.
func (s *subscriptions) coversAll() bool { return s.wildcard && s.scopes == nil }

// subscribes reports whether a name is subscribed, by the client or by the wildcard of its route.
func (s *subscriptions) subscribes(name string) bool { return s.names[name] || s.scopes[name] }

// matches reports whether a name matches a resource by alias or collection.
func matches(t *xds.Type, r *xds.Resource, name string) bool {
	return slices.Contains(r.Aliases, name) || name != "" && !r.OnDemand && t.Collection(r.Name) == name
}

// shown returns the resource that the client should have by a name, or nil if it does not exist or no
// subscription matches it.
func (l *ledger) shown(a *account, name string) *xds.Resource {
	r := a.table.Lookup(name)
	if r == nil || a.names[name] || a.matched[name] || a.coversAll() && !r.OnDemand {
		return r
	}
	return nil
}

// covers reports whether the client may be sent a name.
func (a *account) covers(name string) bool {
	k, told := a.lastSent[name]
	return a.coversAll() || a.subscribes(name) || a.matched[name] || told && !k.absent()
}

// wouldMatch reports whether a subscribed name would match a resource if it existed.
func (a *account) wouldMatch(r *xds.Resource) bool {
	if r == nil || !a.byAlias {
		return false
	}
	for _, names := range []map[string]bool{a.names, a.scopes} {
		for n := range names {
			if matches(a.typ, r, n) {
				return true
			}
		}
	}
	return false
}

// matchedBy returns the resources that a name matches by alias or collection, if it is not a resource itself:
// "Both the names and aliases of resources should be checked".
func (l *ledger) matchedBy(a *account, name string) (out []*xds.Resource) {
	if !a.byAlias || a.table.Lookup(name) != nil {
		return nil
	}
	for r := range a.table.All() {
		if matches(a.typ, r, name) {
			out = append(out, r)
		}
	}
	return out
}

// rematch computes again which resources the names match.
func (l *ledger) rematch(a *account) {
	clear(a.matched)
	for _, names := range []map[string]bool{a.names, a.scopes} {
		for n := range names {
			for _, r := range l.matchedBy(a, n) {
				a.matched[r.Name] = true
			}
		}
	}
}

// updateScopes updates the collections that a wildcard covers. A wildcard of virtual hosts covers the routes to
// which this stream subscribes (OND-4), or all routes, if the stream subscribes to no routes or to all.
func (l *ledger) updateScopes(a *account) {
	if a.typ.Parent == nil || l.variant == xds.SotW || l.only != nil {
		return
	}
	was := a.scopes
	a.scopes = a.scopesUnder(l.account(a.typ.Parent))
	if maps.Equal(was, a.scopes) && (was == nil) == (a.scopes == nil) {
		return
	}
	l.rematch(a)
	l.resubscribed(a)
	l.trim(a)
}

// scopesUnder returns the collections that the wildcard covers under the names of the parent type; nil: all.
func (a *account) scopesUnder(over *account) map[string]bool {
	if !a.wildcard || over == nil || over.wildcard {
		return nil
	}
	scopes := map[string]bool{}
	for n := range over.names {
		scopes[n+"/*"], a.known[n+"/*"] = true, true
	}
	return scopes
}

// resubscribed records that the subscriptions changed in a way after which anything may be sent again.
func (l *ledger) resubscribed(a *account) {
	a.more, a.answer, a.moved = true, true, l.batch+1
	a.repeatAll()
}

func (l *ledger) replaceNames(a *account, names []string) {
	if len(names) == 0 && a.implicit {
		return
	}
	a.implicit = false
	want := setOf(names)
	star := want[xds.Wildcard]
	delete(want, xds.Wildcard)
	for n := range want {
		if !a.names[n] {
			l.ask(a, n)
		}
	}
	if star != a.wildcard || star && !maps.Equal(want, a.names) {
		l.resubscribed(a)
	}
	if !maps.Equal(want, a.names) {
		a.moved, a.answer = l.batch+1, true
	}
	a.names, a.wildcard = want, star
	l.trim(a)
}

func (l *ledger) subscribe(a *account, names []string) {
	for _, n := range names {
		a.implicit = false
		if n == xds.Wildcard {
			a.wildcard = true
			l.resubscribed(a)
			continue
		}
		a.names[n] = true
	}
	l.rematch(a)
	for _, n := range names {
		l.ask(a, n)
	}
}

// ask records that a name is subscribed: it is sent, whatever the client holds.
func (l *ledger) ask(a *account, n string) {
	a.known[n], a.more, a.answer, a.moved = true, true, a.answer || a.full, l.batch+1
	a.repeat(n, true)
	a.asked[n] = l.now
	delete(a.missing, n)
	for x, k := range a.lastSent {
		a.repeat(x, k.res == nil || matches(a.typ, k.res, n))
	}
	for _, r := range l.matchedBy(a, n) {
		a.repeat(r.Name, true)
	}
	for x := range a.refused {
		a.repeat(x, true)
	}
}

func (l *ledger) unsubscribe(a *account, names []string) {
	if len(names) == 0 {
		return
	}
	star := slices.Contains(names, xds.Wildcard)
	if star {
		a.wildcard, a.implicit, a.scopes = false, false, nil
	}
	var ended []string
	for _, n := range names {
		a.known[n] = true
		for _, r := range l.matchedBy(a, n) { // under a wildcard each of them gets an answer, also if it is on demand
			a.known[r.Name] = true
		}
		ended = append(ended, l.endedBy(a, n)...)
	}
	for _, n := range ended {
		delete(a.names, n)
		delete(a.missing, n)
	}
	l.rematch(a)
	l.resubscribed(a)
	l.trim(a)
	if star { // the client may know the rest by aliases of the past
		maps.DeleteFunc(a.lastSent, func(n string, k fact) bool { return !a.names[n] && !a.matched[n] && !a.wouldMatch(k.res) })
	}
}

// endedBy returns the subscribed names that end when the client unsubscribes from n: "these may be resource names
// or aliases". If n was never subscribed, no name ends.
func (l *ledger) endedBy(a *account, n string) (out []string) {
	if a.names[n] {
		return []string{n}
	}
	sent := a.lastSent[n].res
	if k := a.dropped[n]; sent == nil && slices.ContainsFunc(a.flights, func(f *flight) bool { return f.seq == k.seq }) {
		sent = k.res // it still arrives, and a name that was subscribed since matches it
	}
	for s := range a.names {
		r := a.table.Lookup(s)
		if l.isAlias(a, s, n, sent) || r != nil && a.table.Lookup(n) == nil && slices.Contains(r.Aliases, n) {
			out = append(out, s)
		}
	}
	return out
}

// isAlias reports whether a subscribed name is an alias of the resource of a name, in the view or as it was sent.
func (l *ledger) isAlias(a *account, alias, name string, sent *xds.Resource) bool {
	k, told := a.lastSent[alias]
	return slices.ContainsFunc(l.matchedBy(a, alias), func(r *xds.Resource) bool { return r.Name == name && slices.Contains(r.Aliases, alias) }) ||
		sent != nil && slices.Contains(sent.Aliases, alias) && (!told || k.found)
}

// trim forgets names that are no longer subscribed, as the client does.
func (l *ledger) trim(a *account) {
	if a.wildcard && a.scopes == nil {
		return
	}
	for _, facts := range []map[string]fact{a.acked, a.refused, a.lastSent} {
		maps.DeleteFunc(facts, a.isGone)
	}
	for _, f := range a.flights {
		for n, k := range f.carried {
			if a.isGone(n, k) {
				a.dropped[n] = k
			}
		}
		maps.DeleteFunc(f.carried, a.isGone)
		f.excused = f.excused || len(a.names) == 0 && !a.wildcard // a client need not answer a response about unsubscribed names
	}
}

// isGone reports whether no subscription covers a name with a state any more.
func (a *account) isGone(n string, k fact) bool {
	c := a.typ.Collection(n)
	named := a.subscribes(n) || c != "" && a.subscribes(c)
	return !a.wildcard && !named && !a.matched[n] && !a.wouldMatch(k.res) && !a.wouldMatch(a.lastSent[n].res)
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

// withholds reports whether the view withholds a name from clients that refused it.
func (l *ledger) withholds(a *account, n string) bool {
	v, ok := l.view.(xds.Withholding)
	return ok && slices.Contains(v.Withheld(a.typ), n)
}

// knownNames returns every name that matters to the account, sorted.
func (l *ledger) knownNames(a *account) []string {
	all := make([]string, 0, 2*len(a.lastSent)+len(a.names))
	for _, names := range []map[string]bool{a.names, a.scopes, a.matched} {
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
	slices.Sort(all)
	return slices.Compact(all)
}
