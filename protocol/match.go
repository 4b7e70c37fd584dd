package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// "Resource names and aliases" (DELTA-11, NAME-2). A wanted name may have no resource of its own.
// Then the name matches the resources that have it as an alias, or that belong to the collection
// with this name. The client gets these resources under their own names. All this is for delta
// only. Terms: see doc.go.

// A matching has, for each wanted name that is an alias or a collection, the resources that the
// name matches.
//
// Invariant: Entry.Matched of a name is the number of sets in matches that contain the name. Each
// key of matches is a wanted name. Each member of the sets has an entry. aliased is the inverse of
// matches, without collections.
type matching struct {
	matches map[string]*xds.Members // by wanted name; only names that match a resource
	aliased map[string][]string     // by name of the resource: its wanted aliases, sorted
}

// match computes again which resources a wanted name matches.
func (u *subscription) match(t *xds.Table, name string) {
	e := u.Entry(name)
	if e == nil || !e.Named && !u.scopes[name] {
		return
	}
	var is *xds.Members
	if t.Lookup(name) == nil {
		is = t.Aliased(name)
	}
	name = e.Name // the entry owns the memory of its name; the memory of a request is not kept
	was, again, gone := u.matches[name], e.Again, e.Told == absent && !e.Untold()
	switch {
	case is.Len() > 0:
		if u.matches == nil {
			u.matches = map[string]*xds.Members{}
		}
		u.matches[name] = is
		e.Finds()
		u.regain(name) // for an unsubscribed scope, the members show its state
		u.Touch(e)     // the client may hold a resource with the name itself, which must be removed
	case was != nil:
		is, again = u.stillMatched(t, name, was), false
		if is.Len() > 0 {
			u.matches[name] = is
			break
		}
		delete(u.matches, name)
		if e.Told == others && !u.toldAny(was) {
			e.FindsNone()
		}
		u.Touch(e)
	}
	for n, found := range is.Since(was) {
		if found {
			held := u.isLeftover(n, unmatched)
			u.refer(n, name)
			u.Match(n)
			if gone && held { // the client may have dropped the resource together with the name
				u.Entry(n).Repeat(true)
			}
		} else {
			u.unrefer(n, name, false)
		}
	}
	if again {
		u.repeatMatched(is)
	}
	if was == nil && is.Len() > 0 { // the client may have refused that the name does not exist
		u.dissolve(false, slices.Values([]string{name}))
	}
}

// stillMatched returns the kept resources (leavers) among the resources that a name matched. They
// stay matched until they are removed.
func (u *subscription) stillMatched(t *xds.Table, name string, was *xds.Members) *xds.Members {
	return was.Where(func(r *xds.Resource) bool {
		l := u.Lingers(r.Name)
		return l != nil && t.Lookup(name) == nil && (l.Body == nil || u.finds(name, l.Body))
	})
}

// repeatMatched marks matched resources to be sent again. A name that was not told differs anyway,
// and needs no repetition.
func (u *subscription) repeatMatched(is *xds.Members) {
	for r := range is.All() {
		e := u.Entry(r.Name)
		e.Repeat(e.Again || e.Told != absent)
		u.Touch(e)
	}
}

// comeBack handles names to which the client subscribes again after it has unsubscribed while a
// response was in flight. Resources that these names matched still arrive, although the names may
// no longer match them.
func (s *Session) comeBack(u *subscription, names []string, t *xds.Table) {
	if u.wildcard || !u.mayHaveGivenUp() {
		return
	}
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return t.Lookup(n) != nil })
	slices.Sort(names)
	names = slices.Compact(names)
	var extra []entry
	for d := range u.underWay() {
		if d.parts[0].world || len(names) == 0 {
			continue
		}
		found := s.finding(u, d)
		for _, by := range names {
			for _, name := range found[by] {
				if u.Entry(name) != nil {
					continue
				}
				if last, is := u.bringer(name); last == d && stands(is) {
					e := entry{Name: name, Told: is}
					u.Touch(&e)
					u.lapse(&e)
					extra = append(extra, e) // several times if several names match the resource
				}
			}
		}
	}
	u.Set.Add(extra...) // still untold: the client has subscribed since
}

// finding returns the finding of a delivery for the present view. It is computed once per view. So
// the cost of a request depends on the resources that its names match, not on all resources in
// flight.
func (s *Session) finding(u *subscription, d *delivery) map[string][]string {
	if f := d.finding; f != nil && f.views == s.views {
		return f.found
	}
	found := map[string][]string{}
	for name, it := range d.Each {
		if !stands(it.Is) {
			continue
		}
		if c := u.typ.Collection(name); c != "" {
			found[c] = append(found[c], name)
		}
		if body := s.body(u.typ, name, it.Is); body != nil {
			for _, alias := range body.Aliases {
				found[alias] = append(found[alias], name)
			}
		}
	}
	d.keepFinding(finding{s.views, found})
	return found
}

// finds reports whether a name, which has no resource of its own, matches r.
func (u *subscription) finds(name string, r *xds.Resource) bool {
	return slices.Contains(r.Aliases, name) || u.typ.Collection(r.Name) == name
}

// findable reports whether any subscription of the client matches a resource of the view, with the
// resource's present aliases. Wildcards and collections do not contain resources on demand (SUB-6).
func (u *subscription) findable(t *xds.Table, r *xds.Resource) bool {
	found := func(n string) bool { return u.asksFor(n) && t.Lookup(n) == nil }
	all := u.wildcard || u.collects(r.Name) && found(u.typ.Collection(r.Name))
	return all && !r.OnDemand || u.asksFor(r.Name) || slices.ContainsFunc(r.Aliases, found)
}

// asksFor reports whether a name can match resources: the client subscribes to the name, or the
// name is a scope.
func (u *subscription) asksFor(name string) bool {
	return u.isNamed(name) || u.scopes[name]
}

// unmatch ends the matches of a name that is no longer wanted. With asked set, the client has
// unsubscribed. Otherwise the client must be told that the matched resources are removed.
func (u *subscription) unmatch(name string, asked bool) {
	was := u.matches[name]
	delete(u.matches, name)
	for r := range was.All() {
		u.unrefer(r.Name, name, asked)
	}
	u.forget(name)
}

// refer records that the name `by` matches a resource.
func (u *subscription) refer(name, by string) {
	if by != u.typ.Collection(name) {
		u.alias(name, by)
	}
	e := u.row(name)
	was := u.wants(e)
	u.dropLeftover(name, unmatched)
	e.Matched++
	u.notice(e, was)
	u.Touch(e)
}

// unrefer records that the name `by` no longer matches a resource. With asked set, the client has
// unsubscribed.
func (u *subscription) unrefer(name, by string, asked bool) {
	if by != u.typ.Collection(name) {
		u.unalias(name, by)
	}
	e := u.Entry(name)
	if e == nil || e.Matched == 0 {
		return
	}
	e.Matched--
	u.notice(e, true)
	if !asked || u.Kept(name) != nil && u.collects(name) && !u.wants(e) {
		u.lapse(e)
	}
	switch {
	case u.wants(e):
		u.Touch(e)
	case u.wildcard || u.dropped[name] || u.scopes != nil && asked: // DELTA-6 also applies to matched resources
		if asked {
			u.giveUp(e)
		}
		u.Touch(e)
	case asked && !u.collects(name) && !u.isLeftover(name, unmatched), e.Told == absent:
		u.forget(name)
	default: // the removal is sent if the client holds the resource
		u.Touch(e)
	}
}

// lapse records that the client holds a resource that no wanted name matches any more (see unmatched).
func (u *subscription) lapse(e *entry) {
	if !u.wildcard && stands(e.Told) {
		u.addLeftover(e.Name, leftover{why: unmatched})
	}
}

// keepsMember reports whether a wildcard or a collection may cover a name. If not, the client has dropped a resource
// that only its collection matched.
func (u *subscription) keepsMember(name string) bool {
	return u.wildcard || u.scopes != nil || u.collects(name)
}

// matchesOthers reports whether a name matches other resources, which are sent instead.
func (u *subscription) matchesOthers(name string) bool { return u.matches[name] != nil }

// forget removes the entry of a name if nothing has to be recorded for the name any more.
func (u *subscription) forget(name string) {
	e := u.Entry(name)
	if e == nil || u.wants(e) || u.isLeftover(name, unmatched) || u.wildcard && u.Kept(name) != nil {
		return
	}
	if is := u.base.Get(name); !u.wildcard || is == nil && !stands(e.Told) || same(e.Told, is) {
		u.Set.Remove(name)
	}
}

// unsubscribedBy returns the subscribed names that the client drops when it unsubscribes from a
// name: "resource names and aliases" both match (DELTA-11). If the client unsubscribes from a
// member of a collection, it does not drop the collection.
func (s *Session) unsubscribedBy(u *subscription, t *xds.Table, name string) (names []string) {
	if u.isNamed(name) {
		return []string{name}
	}
	if r := t.Lookup(name); r != nil {
		for _, alias := range r.Aliases {
			if u.isNamed(alias) && t.Lookup(alias) == nil {
				names = append(names, alias)
			}
		}
	}
	for r := range t.Aliased(name).All() {
		if u.isNamed(r.Name) && slices.Contains(r.Aliases, name) {
			names = append(names, r.Name)
		}
	}
	for _, alias := range s.aliasesOf(u, name) {
		// In other states, the client was told that the alias matches nothing, or that it is a
		// resource itself.
		if e := u.Entry(alias); e.Told == others || e.Untold() {
			names = append(names, alias)
		}
	}
	return names
}

// aliasesOf returns the subscribed aliases of a resource, in the state that the client was told
// last. Because of these aliases the client holds the resource until the removal is sent. That is
// so even if an alias is now a resource itself, or if the client was told that the alias matches
// nothing.
func (s *Session) aliasesOf(u *subscription, name string) (names []string) {
	if was := s.earlier(u, name); was != nil {
		for _, alias := range was.Aliases {
			if u.isNamed(alias) {
				names = append(names, alias)
			}
		}
	}
	return names
}

// isMatched reports whether the client holds a resource because of a collection or an alias.
func (s *Session) isMatched(u *subscription, name string) bool {
	return u.collects(name) || len(s.aliasesOf(u, name)) > 0
}

// alias records that the alias `by` matches a resource.
func (u *subscription) alias(name, by string) {
	if u.aliased == nil {
		u.aliased = map[string][]string{}
	}
	at := u.aliased[name]
	if i, has := slices.BinarySearch(at, by); !has {
		u.aliased[name] = slices.Insert(at, i, by)
	}
}

// unalias records that the alias `by` no longer matches a resource.
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

// matchedBy returns the wanted names that match a resource, the collection first. An alias that the
// resource has lost counts until match is called for the alias.
func (u *subscription) matchedBy(name string) (by []string) {
	if c := u.typ.Collection(name); u.matches[c].Get(name) != nil {
		by = append(by, c)
	}
	return append(by, u.aliased[name]...)
}

// suspect marks the wanted names that match a resource, because they may match other resources now.
func (u *subscription) suspect(name string) {
	for _, by := range u.matchedBy(name) {
		u.Touch(u.Entry(by))
	}
}

// rematch is called when a resource is removed. It calls match for each wanted name that matched
// the resource.
func (u *subscription) rematch(t *xds.Table, name string) {
	for _, by := range u.matchedBy(name) {
		u.match(t, by)
	}
}

// toldAny reports whether the client was told one of the members, in exactly this version, since it
// subscribed to the member. An earlier version may not have had the alias.
func (u *subscription) toldAny(m *xds.Members) bool {
	for r := range m.All() {
		if e := u.Entry(r.Name); same(u.toldBy(e, r.Name), r.Stamp) && (e == nil || !e.Untold()) {
			return true
		}
	}
	return false
}

// collects reports whether the client subscribes to the collection of a name, or the collection is
// a scope.
func (u *subscription) collects(name string) bool {
	c := u.typ.Collection(name)
	return c != "" && u.asksFor(c)
}
