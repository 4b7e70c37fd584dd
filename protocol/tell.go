package protocol

import (
	"cmp"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// tell counts the diff as told and returns the items for names with entries. The nonce is the first one of
// the response; 0: there is no response. Terms: see doc.go.
func (s *Session) tell(u *subscription, t *xds.Table, d *diff, nonce uint64) (items []item) {
	held := u.held(d)
	items = slices.Grow(items, len(u.Dirty)+len(d.kept))
	if u.Set.Len()+len(u.leftovers) > 0 {
		items = s.tellUpserts(u, d, items, nonce)
	}
	items, stray := s.tellRemoved(u, d, items, nonce)
	slices.SortFunc(items, itemByName)
	listed := s.clearDirty(u, t, d)
	if u.wildcard {
		u.rebase(t.Versions())
		u.add(held...)
	}
	for _, n := range d.waiting {
		if e := u.Entry(n.name); e != nil {
			u.Touch(e)
		}
	}
	if len(d.kept)+len(held) > 0 {
		items = u.tellNothing(d.kept, held, items)
	}
	if stray { // forget names that nothing matches
		u.RemoveFunc(func(e *entry) bool { return e.Told == absent && !u.wants(e) })
	}
	if u.wildcard && u.Set.Len() > int(u.named) {
		u.forgetPlain(listed, items)
	}
	return items
}

// held returns new entries for waiting names that have no entry yet. With an entry, a name keeps
// its told state when base changes.
func (u *subscription) held(d *diff) (held []entry) {
	for _, w := range d.waiting {
		if u.Entry(w.name) == nil {
			told := u.told(w.name)
			held = append(held, entry{Name: w.name, Told: told, Again: u.Anew && told != absent})
		}
	}
	return held
}

// said counts a state as told for an entry, and returns the item of this change.
func (s *Session) said(u *subscription, e *entry, is *xds.Stamp, nonce uint64) item {
	was := e.Told
	u.regain(e.Name)
	if l, held := u.leftovers[e.Name]; held && stands(is) {
		was = cmp.Or(l.stamp, was)
		u.dropLeftover(e.Name, l.why)
	}
	if s.variant == xds.Delta && same(was, is) && u.comesFirst(e.Name) {
		was = absent // the client may have dropped the name in flight and subscribed again
	}
	if is == absent && s.forsakes(u) {
		nonce = 0 // the response does not report the removal
	}
	e.Tell(is, nonce)
	return item{Name: e.Name, Was: was, Is: is}
}

// tellUpserts counts resources as told. It adds items for names with an entry, or with a leftover that is
// sent again because of the wildcard.
func (s *Session) tellUpserts(u *subscription, d *diff, items []item, nonce uint64) []item {
	for _, r := range d.upserts {
		if e := u.Entry(r.Name); e != nil {
			items = append(items, s.said(u, e, r.Stamp, nonce))
		} else if u.isLeftover(r.Name, cannotRemove) {
			items = append(items, item{Name: r.Name, Was: u.leftovers[r.Name].stamp, Is: r.Stamp})
			u.dropLeftover(r.Name, cannotRemove)
		}
	}
	return items
}

// tellRemoved counts removals as told and adds their items. The result stray reports whether no
// subscription matched some of the names any more.
func (s *Session) tellRemoved(u *subscription, d *diff, items []item, nonce uint64) (_ []item, stray bool) {
	for _, n := range d.removed {
		u.fed(n)
		e := u.Entry(n)
		if told := u.toldBy(e, n); s.forsakes(u) && stands(told) {
			u.addLeftover(n, leftover{cannotRemove, told})
		}
		if e == nil {
			continue // only the wildcard covers the name
		}
		stray = stray || !u.wildcard && !u.wants(e)
		items = append(items, s.said(u, e, absent, nonce))
		if u.isLeftover(n, unmatched) {
			items[len(items)-1].Lapse(u.collects(n))
			u.dropLeftover(n, unmatched)
		}
		if u.matches[n] != nil {
			e.Finds()
		}
		s.departed(u, n)
	}
	return items, stray
}

// clearDirty clears the list of dirty names and returns the old list. Names that cannot be sent yet,
// because the view is still looking for them, stay in the list.
func (s *Session) clearDirty(u *subscription, t *xds.Table, d *diff) (listed []string) {
	if u.Anew || u.wildcard && u.base != t.Versions() || s.tellsWorld(u) {
		u.NoteAll() // the table is sent
	} else if u.Watched {
		u.Note(u.Dirty...)
		for n := range d.names {
			u.Note(n)
		}
	}
	u.Renew(false)
	listed = u.UntouchAll()
	for _, n := range listed {
		if e := u.Entry(n); e != nil {
			if u.Kept(n) == nil && u.outdated(t, n, e.Told) || s.hopes(u, t, e) {
				u.Touch(e)
			}
		}
	}
	return listed
}

// tellNothing adds empty items, in order, for names that differ in the wildcard's table and are not
// sent: names with an entry (kept), and names that wait (held).
func (u *subscription) tellNothing(kept []string, held []entry, items []item) []item {
	told := items
	for _, n := range kept {
		if _, ok := slices.BinarySearchFunc(told, item{Name: n}, itemByName); !ok {
			items = append(items, item{Name: n})
		}
	}
	for i := range held {
		items = append(items, item{Name: held[i].Name})
	}
	slices.SortFunc(items, itemByName)
	return items
}

// forgetPlain removes entries that no longer differ from the base.
func (u *subscription) forgetPlain(listed []string, items []item) {
	none := func(e *entry) bool {
		plain := same(e.Told, cmp.Or(u.base.Get(e.Name), absent))
		return plain && !u.wants(e) && !e.Dirty && !e.Again && u.Kept(e.Name) == nil
	}
	if len(listed)+len(items) > 64 {
		u.RemoveFunc(none)
		return
	}
	for _, it := range items { // only names in listed or items can have changed
		listed = append(listed, it.Name)
	}
	for _, n := range listed {
		if e := u.Entry(n); e != nil && none(e) {
			u.Remove(n)
		}
	}
}
