package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// "Resource names and aliases": a subscribed name that no resource has finds
// the resources that have it as an alias, or that belong to the collection of
// that name. The client is told of these, by their own names. Delta only.

// A finding is what the subscribed names of a type find in this way.
type finding struct {
	via  map[string]*xds.Members // by subscribed name, where there are any
	refs map[string]int          // by resource: how many subscribed names find it
}

// wants reports whether an entry is subscribed by its name, or found by another.
func (u *subscription) wants(e *entry) bool { return e.named || u.refs[e.name] > 0 }

// look finds anew what a subscribed name stands for.
func (u *subscription) look(t *xds.Table, name string) {
	e := u.entry(name)
	if e == nil || !e.named {
		return
	}
	var is *xds.Members
	if t.Lookup(name) == nil {
		is = t.Aliased(name)
	}
	was, again := u.via[name], e.again
	if is.Len() > 0 {
		if u.via == nil {
			u.via, u.refs = map[string]*xds.Members{}, map[string]int{}
		}
		u.via[name] = is
		if e.again = false; e.told == absent {
			e.told = others
		}
		u.mark(e) // of a resource of that name it may have to be told that it is gone
	} else if was != nil {
		for r := range was.All() {
			if u.lingers(r.Name) != nil {
				return // what it found is about to leave: until then it is found
			}
		}
		delete(u.via, name)
		if !u.toldAny(was) {
			e.told, e.again = absent, true
		}
		u.mark(e)
	}
	for n, found := range is.Since(was) {
		if found {
			u.refer(n)
		} else {
			u.unrefer(n)
		}
	}
	if again {
		for r := range is.All() {
			e := u.entry(r.Name)
			e.again = true
			u.mark(e)
		}
	}
}

// refer counts a name that finds a resource.
func (u *subscription) refer(name string) {
	u.refs[name]++
	if u.entry(name) == nil {
		told := u.told(name)
		u.insert([]entry{{name: name, told: told, sent: told != absent}})
	}
	e := u.entry(name)
	if u.refs[name] == 1 && !e.named {
		u.notice(e.name, true) // it may come back without what found it
	}
	u.mark(e)
}

// unrefer is its reverse.
func (u *subscription) unrefer(name string) {
	u.dereference(name)
	if e := u.entry(name); u.wildcard || u.wants(e) || e.told != absent {
		u.mark(e)
	} else {
		u.forget(name)
	}
}

// dereference counts a name less that finds a resource.
func (u *subscription) dereference(name string) {
	if u.refs[name]--; u.refs[name] > 0 {
		return
	}
	delete(u.refs, name)
	if !u.entry(name).named {
		u.notice(name, false)
	}
}

// lose ends what a subscribed name, which the client has dropped, has found.
func (u *subscription) lose(name string) {
	was := u.via[name]
	delete(u.via, name)
	for r := range was.All() {
		e := u.entry(r.Name)
		if u.dereference(r.Name); u.refs[r.Name] > 0 {
			continue
		}
		switch {
		case e.named:
		case u.wildcard: // DELTA-6, as for the name itself
			e.again = true
			u.mark(e)
		default:
			u.forget(r.Name)
		}
	}
	u.forget(name)
}

// forget drops an entry of which nothing needs to be said any more.
func (u *subscription) forget(name string) {
	if i, ok := u.find(name); ok {
		u.entries = append(u.entries[:i], u.entries[i+1:]...)
	}
}

// meant returns the subscribed names that a client drops by unsubscribing from
// a name: "resource names and aliases" both match. A collection is not dropped
// with one of its members.
func (u *subscription) meant(t *xds.Table, name string) (names []string) {
	if e := u.entry(name); e != nil && e.named {
		return []string{name}
	}
	for by, found := range u.via {
		if r := found.Get(name); r != nil && slices.Contains(r.Aliases, by) {
			names = append(names, by)
		}
	}
	for r := range t.Aliased(name).All() {
		if e := u.entry(r.Name); e != nil && e.named && slices.Contains(r.Aliases, name) {
			names = append(names, r.Name)
		}
	}
	return names
}

// toldAny reports whether the client was told any of the members.
func (u *subscription) toldAny(m *xds.Members) bool {
	for r := range m.All() {
		if u.told(r.Name) != absent {
			return true
		}
	}
	return false
}

// suspect notes that what finds a resource may find something else now.
func (u *subscription) suspect(name string) {
	for by, found := range u.via {
		if found.Get(name) != nil {
			u.mark(u.entry(by))
		}
	}
}

// net returns which of the names are of interest now, and which are not: a name
// may have come and gone.
func (u *subscription) net(added, removed []string) (in, out []string) {
	for _, n := range append(added, removed...) {
		if e := u.entry(n); e != nil && u.wants(e) {
			in = append(in, n)
		} else {
			out = append(out, n)
		}
	}
	return in, out
}

// suspects returns the subscribed names that may find something else now.
func (u *subscription) suspects() []string {
	if !u.all {
		return slices.Clone(u.dirty)
	}
	names := make([]string, 0, u.count)
	for i := range u.entries {
		if u.entries[i].named {
			names = append(names, u.entries[i].name)
		}
	}
	return names
}

// found reports whether a subscribed name would have found a resource that is
// gone.
func (u *subscription) found(t *xds.Table, name string) bool {
	var by []string
	if c := u.typ.Collection(name); c != "" {
		by = append(by, c)
	}
	if r := t.Departed(name); r != nil {
		by = append(by, r.Aliases...)
	}
	return slices.ContainsFunc(by, func(n string) bool { e := u.entry(n); return e != nil && e.named })
}

// vanished notes that a resource that lingered is gone: what found it looks
// anew.
func (u *subscription) vanished(t *xds.Table, name string) {
	for by, found := range u.via {
		if found.Get(name) != nil {
			u.look(t, by)
		}
	}
}

// scope makes a wildcard that comes after the type above it on an aggregated
// stream cover what is under the names that the stream subscribes to of that
// type: a collection for each.
func (s *Session) scope(u *subscription) {
	if u.typ.Under == nil || s.variant == xds.SotW {
		return
	}
	if s.only != nil {
		s.tellEmpty(u)
		return
	}
	over := s.sub(u.typ.Under)
	if over == nil || over.wildcard {
		return
	}
	if u.wildcard && u.nonce == 0 {
		u.wildcard, u.anew, u.base = false, false, nil
		u.due = over.count == 0
		if u.scopes == nil {
			u.scopes = map[string]bool{}
		}
	}
	if u.scopes == nil {
		return
	}
	t, was := s.table(u.typ), u.scopes
	u.scopes = map[string]bool{}
	for i := range over.entries {
		if e := &over.entries[i]; e.named {
			u.scopes[e.name+"/*"] = true
		}
	}
	for c := range u.scopes {
		if !was[c] {
			u.subscribe([]string{c}, t)
			u.look(t, c)
		}
	}
	for c := range was {
		if !u.scopes[c] {
			u.leaveScope(c)
		}
	}
}

// tellEmpty makes the first answer to a wildcard on a stream of its own name
// every collection that is empty. Seen with Envoy 1.40: it waits 15 s for
// something of its own; the stream does not say which that is.
func (s *Session) tellEmpty(u *subscription) {
	if !u.wildcard || u.nonce != 0 {
		return
	}
	var extra []entry
	for r := range s.table(u.typ.Under).All() {
		if c := r.Name + "/*"; s.table(u.typ).Aliased(c) == nil && u.entry(c) == nil {
			extra = append(extra, entry{name: c, told: absent, again: true})
		}
	}
	u.insert(extra)
	u.all = u.all || len(extra) > 0
}

// leaveScope ends a collection of the wildcard. The client has not asked for
// that, so it is told what it loses.
func (u *subscription) leaveScope(c string) {
	members := u.via[c]
	delete(u.via, c)
	u.count--
	u.notice(c, false)
	u.forget(c)
	for r := range members.All() {
		u.unrefer(r.Name)
	}
}
