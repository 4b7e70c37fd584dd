package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// "Resource names and aliases" (DELTA-11, NAME-2). A wanted name may have no resource of its own. Then
// it matches the resources that have it as an alias, or that belong to the collection with this name.
// The client is sent these resources under their own names. Delta only.

// A matching is the set of resources that wanted names match as an alias or a collection.
//
// Invariant: entry.matched of a name is the number of sets in matches that contain it. Each name in
// matches is wanted, and each of its members has an entry. aliased is the inverse of matches,
// without collections.
type matching struct {
	matches map[string]*xds.Members // by wanted name, if the name matches any
	aliased map[string][]string     // by name of the resource: the aliases that match it, sorted

	// Resources that no name matches any more, though the client did not unsubscribe from a name
	// that matched them. The client holds them until it is told their removal, even if it
	// unsubscribes from other names that cover them. Each has an entry.
	lapsed map[string]bool
}

// match computes again what a wanted name matches.
func (u *subscription) match(t *xds.Table, name string) {
	e := u.entry(name)
	if e == nil || !e.named && !u.scopes[name] {
		return
	}
	var is *xds.Members
	if t.Lookup(name) == nil {
		is = t.Aliased(name)
	}
	name = e.name // the entry owns its memory, unlike the request
	was, again, gone := u.matches[name], e.again, e.told == absent && e.sent
	switch {
	case is.Len() > 0:
		if u.matches == nil {
			u.matches = map[string]*xds.Members{}
		}
		u.matches[name] = is
		e.finds()
		u.regain(name) // its members tell the state of a scope that was given up
		u.mark(e)      // a resource with the name itself may have to be removed
	case was != nil:
		// Kept resources stay matched until they are removed.
		is, again = was.Where(func(r *xds.Resource) bool {
			l := u.lingers(r.Name)
			return l != nil && t.Lookup(name) == nil && (l.body == nil || u.finds(name, l.body))
		}), false
		if is.Len() > 0 {
			u.matches[name] = is
			break
		}
		delete(u.matches, name)
		if e.told == others && !u.toldAny(was) {
			e.findsNone()
		}
		u.mark(e)
	}
	for n, found := range is.Since(was) {
		if found {
			lapsed := u.lapsed[n]
			u.refer(n, name)
			u.returned(t, n)
			if gone && lapsed { // the client may have dropped it together with the name
				u.entry(n).repeat(true)
			}
		} else {
			u.unrefer(n, name, false)
		}
	}
	if again {
		for r := range is.All() {
			e := u.entry(r.Name)
			e.repeat(e.again || e.told != absent) // otherwise it differs anyway; if it is lost first, there is nothing to repeat
			u.mark(e)
		}
	}
	if was == nil && is.Len() > 0 { // the client may have refused that the name does not exist
		u.dissolve(false, slices.Values([]string{name}))
	}
}

// comeBack handles names that are subscribed again after they were dropped in flight. Resources
// that they matched still arrive, although the names may no longer match them.
func (s *Session) comeBack(u *subscription, names []string, t *xds.Table) {
	if u.wildcard || !u.mayHaveGivenUp() {
		return
	}
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return t.Lookup(n) != nil })
	slices.Sort(names)
	names = slices.Compact(names)
	back := map[string]*xds.Stamp{}
	for d := range u.underWay() {
		if d.parts[0].world || len(names) == 0 {
			continue
		}
		found := s.finding(u, d)
		for _, by := range names {
			for _, name := range found[by] {
				if u.entry(name) != nil {
					continue
				}
				if last, is := u.bringer(name); last == d && stands(is) {
					back[name] = is
				}
			}
		}
	}
	var extra []entry
	for name, is := range back {
		extra = append(extra, entry{name: name, told: is})
	}
	u.addMarked(extra)
	for i := range extra {
		u.lapse(&extra[i])
	}
}

// A finding lists, for one view, which resources of a delivery each alias or collection matches.
type finding struct {
	views uint64 // number of the view
	found map[string][]string
}

// finding returns the finding of a delivery. It is computed once per view, so that a request costs
// what its names match, not everything in flight.
func (s *Session) finding(u *subscription, d *delivery) map[string][]string {
	if f := d.finding; f != nil && f.views == s.views {
		return f.found
	}
	found := map[string][]string{}
	for name, it := range d.each {
		if !stands(it.is) {
			continue
		}
		if c := u.typ.Collection(name); c != "" {
			found[c] = append(found[c], name)
		}
		if body := s.body(u.typ, name, it.is); body != nil {
			for _, alias := range body.Aliases {
				found[alias] = append(found[alias], name)
			}
		}
	}
	d.keepFinding(finding{s.views, found})
	return found
}

// finds reports whether a name without a resource of its own matches r.
func (u *subscription) finds(name string, r *xds.Resource) bool {
	return slices.Contains(r.Aliases, name) || u.typ.Collection(r.Name) == name
}

// findable reports whether the client wants a resource of the view by any of its present names.
// Wildcards and collections do not contain resources on demand (SUB-6).
func (u *subscription) findable(t *xds.Table, r *xds.Resource) bool {
	found := func(n string) bool { return u.asksFor(n) && t.Lookup(n) == nil }
	all := u.wildcard || u.collects(r.Name) && found(u.typ.Collection(r.Name))
	return all && !r.OnDemand || u.asksFor(r.Name) || slices.ContainsFunc(r.Aliases, found)
}

// asksFor reports whether a name can match resources: the client subscribes to it, or it is a
// scope.
func (u *subscription) asksFor(name string) bool {
	e := u.entry(name)
	return e != nil && (e.named || u.scopes[name])
}

// unmatch ends the matches of a name that is no longer wanted. With asked set, the client
// unsubscribed itself; otherwise it must be told the removals.
func (u *subscription) unmatch(name string, asked bool) {
	was := u.matches[name]
	delete(u.matches, name)
	for r := range was.All() {
		u.unrefer(r.Name, name, asked)
	}
	u.forget(name)
}

// refer notes that the name by matches a resource.
func (u *subscription) refer(name, by string) {
	if by != u.typ.Collection(name) {
		u.alias(name, by)
	}
	e := u.entry(name)
	if e == nil {
		told := u.told(name)
		u.add(entry{name: name, told: told, sent: told != absent})
		e = u.entry(name)
	}
	was := u.wants(e)
	u.unlapse(name)
	e.matched++
	u.notice(e, was)
	u.mark(e)
}

// unrefer notes that the name by no longer matches a resource.
func (u *subscription) unrefer(name, by string, asked bool) {
	if by != u.typ.Collection(name) {
		u.unalias(name, by)
	}
	e := u.entry(name)
	if e == nil || e.matched == 0 {
		return
	}
	e.matched--
	u.notice(e, true)
	if !asked || u.leaving[name] != nil && u.collects(name) && !u.wants(e) {
		u.lapse(e)
	}
	switch {
	case u.wants(e):
		u.mark(e)
	case u.wildcard || u.dropped[name] || u.scopes != nil && asked: // DELTA-6 applies as for the name itself
		if asked {
			u.giveUp(e)
		}
		u.mark(e)
	case asked && !u.collects(name) && !u.lapsed[name], e.told == absent:
		u.forget(name)
	default: // its removal is sent if the client holds it
		u.mark(e)
	}
}

// lapse notes that the client holds a resource that no name matches any more.
func (u *subscription) lapse(e *entry) {
	if !u.wildcard && stands(e.told) {
		u.lapseName(e.name)
	}
}

func (m *matching) lapseName(name string) {
	if m.lapsed == nil {
		m.lapsed = map[string]bool{}
	}
	m.lapsed[name] = true
}

// unlapse undoes lapse: a name matches it again, its removal was sent, or the client dropped it.
func (m *matching) unlapse(name string) { delete(m.lapsed, name) }

// unlapseAll undoes lapse for all names.
func (m *matching) unlapseAll() { m.lapsed = nil }

// lapses reports whether the client may hold a resource that none of its subscriptions matches any
// more: its removal is unsent, unanswered or refused. A client without subscriptions holds only
// those with an unsent removal.
func (u *subscription) lapses(name string) bool {
	if u.lapsed[name] || u.idle() {
		return u.lapsed[name]
	}
	for d := range u.underWay() {
		if it := d.find(name); it != nil && it.lapsed && d.open(name, it.is) {
			return true
		}
	}
	return slices.ContainsFunc(u.refusals, func(r refusal) bool {
		it := r.find(name)
		return it != nil && it.lapsed && r.has(name) && u.mayHave(it)
	})
}

// mayHave reports whether the client still subscribes to something by which it may hold an
// unmatched resource: a wildcard, its collection, or any alias.
func (u *subscription) mayHave(it *item) bool {
	return u.wildcard || u.scopes != nil || !it.member || u.collects(it.name)
}

// forget removes an entry that has nothing left to record.
func (u *subscription) forget(name string) {
	e := u.entry(name)
	if e == nil || u.wants(e) || u.lapsed[name] || u.wildcard && u.leaving[name] != nil {
		return
	}
	if is := u.base.Get(name); !u.wildcard || is == nil && !stands(e.told) || same(e.told, is) {
		u.names.remove(name)
	}
}

// unsubscribedBy returns the subscribed names that a client drops when it unsubscribes from a name:
// "resource names and aliases" both match (DELTA-11). Unsubscribing from a member does not drop its
// collection.
func (s *Session) unsubscribedBy(u *subscription, t *xds.Table, name string) (names []string) {
	e := u.entry(name)
	if e != nil && e.named {
		return []string{name}
	}
	if r := t.Lookup(name); r != nil {
		for _, alias := range r.Aliases {
			if e := u.entry(alias); e != nil && e.named && t.Lookup(alias) == nil {
				names = append(names, alias)
			}
		}
	}
	for r := range t.Aliased(name).All() {
		if e := u.entry(r.Name); e != nil && e.named && slices.Contains(r.Aliases, name) {
			names = append(names, r.Name)
		}
	}
	for _, alias := range s.aliasesOf(u, name) {
		// Otherwise the client was told that the alias matches nothing, or is a resource itself.
		if e := u.entry(alias); e.told == others || !e.sent {
			names = append(names, alias)
		}
	}
	return names
}

// aliasesOf returns the subscribed aliases of a resource as the client was last told it. By these
// the client holds it until its removal is sent. That is so even if the alias is now a resource
// itself, or the client was told that the alias matches nothing.
func (s *Session) aliasesOf(u *subscription, name string) (names []string) {
	told := u.told(name)
	if !stands(told) {
		return nil
	}
	if was := s.body(u.typ, name, told); was != nil && same(was.Stamp, told) {
		for _, alias := range was.Aliases {
			if known := u.entry(alias); known != nil && known.named {
				names = append(names, alias)
			}
		}
	}
	return names
}

// alias notes that an alias matches a resource.
func (u *subscription) alias(name, by string) {
	if u.aliased == nil {
		u.aliased = map[string][]string{}
	}
	at := u.aliased[name]
	if i, has := slices.BinarySearch(at, by); !has {
		u.aliased[name] = slices.Insert(at, i, by)
	}
}

// unalias notes that an alias no longer matches a resource.
func (u *subscription) unalias(name, by string) {
	at := u.aliased[name]
	if i, has := slices.BinarySearch(at, by); has {
		at = slices.Delete(at, i, i+1)
	}
	if len(at) > 0 {
		u.aliased[name] = at
	} else {
		delete(u.aliased, name)
	}
}

// matchedBy yields the names that match a resource, the collection first. An alias that the
// resource has lost counts until match is called for it.
func (u *subscription) matchedBy(name string) func(func(string) bool) {
	return func(yield func(string) bool) {
		if c := u.typ.Collection(name); u.matches[c].Get(name) != nil && !yield(c) {
			return
		}
		for _, by := range u.aliased[name] {
			if !yield(by) {
				return
			}
		}
	}
}

// suspect marks the names that match a resource: they may match others now.
func (u *subscription) suspect(name string) {
	for by := range u.matchedBy(name) {
		u.mark(u.entry(by))
	}
}

// rematch calls match for each name that matched a resource that is now removed.
func (u *subscription) rematch(t *xds.Table, name string) {
	for _, by := range slices.Collect(u.matchedBy(name)) {
		u.match(t, by)
	}
}

// toldAny reports whether the client was told any of the members in exactly this version since it
// subscribed. Another version may not have had the alias.
func (u *subscription) toldAny(m *xds.Members) bool {
	for r := range m.All() {
		if e := u.entry(r.Name); same(u.toldBy(e, r.Name), r.Stamp) && (e == nil || e.sent) {
			return true
		}
	}
	return false
}

// collects reports whether the collection of a name is subscribed to, or is a scope.
func (u *subscription) collects(name string) bool {
	c := u.typ.Collection(name)
	return c != "" && u.asksFor(c)
}
