package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// "Resource names and aliases": a wanted name that no resource has finds the
// resources that have it as an alias, or that belong to the collection of that
// name. The client is told of these, by their own names. Delta only.

// A matching is what wanted names find in this way.
//
// Invariant: entry.matched of a name is the number of sets in matches that have
// it; each name in matches is wanted, and each of the members has an entry; aliased is matches
// the other way round, without collections.
type matching struct {
	matches map[string]*xds.Members // by wanted name, where there are any
	aliased map[string][]string     // by the name of what is found: the aliases that find it, sorted

	// What no name finds any more, though the client has dropped none that did: it
	// has that until it has heard so, also when it drops the names by which it is
	// wanted besides. With an entry each.
	lapsed map[string]bool
}

// match finds anew what a wanted name stands for.
func (u *subscription) match(t *xds.Table, name string) {
	e := u.entry(name)
	if e == nil || !e.named && !u.scopes[name] {
		return
	}
	var is *xds.Members
	if t.Lookup(name) == nil {
		is = t.Aliased(name)
	}
	name = e.name // which is kept: a request's own memory is not
	was, again, gone := u.matches[name], e.again, e.told == absent && e.sent
	switch {
	case is.Len() > 0:
		if u.matches == nil {
			u.matches = map[string]*xds.Members{}
		}
		u.matches[name] = is
		e.finds()
		u.regain(name) // what becomes of a scope that was given up, its hosts tell
		u.mark(e)      // of a resource of that name it may have to be told that it is gone
	case was != nil:
		// What it found and is about to leave is found until then.
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
			if gone && lapsed { // it need not have kept what the name had found
				u.entry(n).repeat(true)
			}
		} else {
			u.unrefer(n, name, false)
		}
	}
	if again {
		for r := range is.All() {
			e := u.entry(r.Name)
			e.repeat(e.again || e.told != absent) // else it differs; should it be lost first, there is nothing to tell again
			u.mark(e)
		}
	}
	if was == nil && is.Len() > 0 { // what was said of it was refused: that it does not exist
		u.dissolve(false, slices.Values([]string{name}))
	}
}

// comeBack notes what was found by names that the client asks for again, and given up on
// its way: it arrives all the same, though they may find it no more.
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

// A finding is what of a delivery a name finds that no resource has, in a view.
type finding struct {
	views uint64 // of the session, when it was made
	found map[string][]string
}

// finding returns that of a delivery. It is made once in a view: a request then costs what
// its names find, and not all that is on its way.
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

// finds reports whether a name that no resource has finds one.
func (u *subscription) finds(name string, r *xds.Resource) bool {
	return slices.Contains(r.Aliases, name) || u.typ.Collection(r.Name) == name
}

// findable reports whether the client wants a resource of the view by any of the
// names that this has now: what is on demand is part of no wildcard and no collection.
func (u *subscription) findable(t *xds.Table, r *xds.Resource) bool {
	found := func(n string) bool { return u.asksFor(n) && t.Lookup(n) == nil }
	all := u.wildcard || u.collects(r.Name) && found(u.typ.Collection(r.Name))
	return all && !r.OnDemand || u.asksFor(r.Name) || slices.ContainsFunc(r.Aliases, found)
}

// asksFor reports whether a name may find something: the client subscribes to it, or
// it is a scope.
func (u *subscription) asksFor(name string) bool {
	e := u.entry(name)
	return e != nil && (e.named || u.scopes[name])
}

// unmatch ends what a name has found that is wanted no more. If asked is set,
// the client has dropped it by itself; else it is told what it loses.
func (u *subscription) unmatch(name string, asked bool) {
	was := u.matches[name]
	delete(u.matches, name)
	for r := range was.All() {
		u.unrefer(r.Name, name, asked)
	}
	u.forget(name)
}

// refer counts a name by which a resource is found.
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

// unrefer counts a name less by which a resource is found.
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
	case u.wildcard || u.dropped[name] || u.scopes != nil && asked: // DELTA-6, as for the name itself
		if asked {
			u.giveUp(e)
		}
		u.mark(e)
	case asked && !u.collects(name) && !u.lapsed[name], e.told == absent:
		u.forget(name)
	default: // it is told that it is gone, if it has it
		u.mark(e)
	}
}

// lapse notes that no name finds any more, by itself, what the client has.
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

// unlapse notes that the client has that by a name again, or has heard that it does not, or
// has given it up.
func (m *matching) unlapse(name string) { delete(m.lapsed, name) }

// unlapseAll does so for all.
func (m *matching) unlapseAll() { m.lapsed = nil }

// lapses reports whether the client still has what no name finds any more: it has not
// heard so, or not answered, and it wants something still; or it has refused to hear so.
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

// mayHave reports whether the client wants something still by which it may have what no
// name finds any more: a wildcard, the collection, or, for all that is known, an alias.
func (u *subscription) mayHave(it *item) bool {
	return u.wildcard || u.scopes != nil || !it.member || u.collects(it.name)
}

// forget drops an entry of which nothing needs to be said any more.
func (u *subscription) forget(name string) {
	e := u.entry(name)
	if e == nil || u.wants(e) || u.lapsed[name] || u.wildcard && u.leaving[name] != nil {
		return
	}
	if is := u.base.Get(name); !u.wildcard || is == nil && !stands(e.told) || same(e.told, is) {
		u.names.remove(name)
	}
}

// unsubscribedBy returns the subscribed names that a client drops by
// unsubscribing from a name: "resource names and aliases" both match. A
// collection is not dropped with one of its members.
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
		if e := u.entry(alias); e.told == others || !e.sent { // else it was told that this finds nothing, or is itself
			names = append(names, alias)
		}
	}
	return names
}

// aliasesOf returns the subscribed names that are aliases of a resource as the client was
// told of it: by these it has that until it is told that it is gone, whatever it was told of
// what is called so, and though it may have been told meanwhile that they find nothing.
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

// alias notes that a resource is found by an alias.
func (u *subscription) alias(name, by string) {
	if u.aliased == nil {
		u.aliased = map[string][]string{}
	}
	at := u.aliased[name]
	if i, has := slices.BinarySearch(at, by); !has {
		u.aliased[name] = slices.Insert(at, i, by)
	}
}

// unalias notes that it is found by an alias no more.
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

// matchedBy yields the names that find a resource, also by an alias that it has lost, until
// they have looked anew.
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

// suspect notes that what finds a resource may find something else now.
func (u *subscription) suspect(name string) {
	for by := range u.matchedBy(name) {
		u.mark(u.entry(by))
	}
}

// rematch makes what found a resource that has left look anew.
func (u *subscription) rematch(t *xds.Table, name string) {
	for _, by := range slices.Collect(u.matchedBy(name)) {
		u.match(t, by)
	}
}

// toldAny reports whether the client was told any of the members as they were found, since
// it asked: another version need not have had the alias.
func (u *subscription) toldAny(m *xds.Members) bool {
	for r := range m.All() {
		if e := u.entry(r.Name); same(u.toldBy(e, r.Name), r.Stamp) && (e == nil || e.sent) {
			return true
		}
	}
	return false
}

// collects reports whether the client subscribes to the collection that a name
// belongs to, or a scope is of it.
func (u *subscription) collects(name string) bool {
	c := u.typ.Collection(name)
	return c != "" && u.asksFor(c)
}
