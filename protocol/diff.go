package protocol

import (
	"cmp"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// A diff is the content to send to the client for one type, sorted by name. Terms: see doc.go.
type diff struct {
	upserts []*xds.Resource
	removed []string     // includes the names in absent
	absent  []string     // reported as a resource without a body (DELTA-7)
	missing []string     // also reported in resource_errors
	waiting []waiter     // upserts that wait for another type
	bound   bool         // an upsert waits for the address of a waiting one
	kept    []string     // names that differ in the wildcard's table and have an entry: the entry decides whether they are sent
	shared  *xds.Changes // the changes as computed by the table, shared by all streams; nil: the diff is different
	any     anyComing    // result of mayAnyCome for this diff
}

// diff compares the view with the told states of all names that may differ. It adds the differences
// to d, which must be empty.
func (s *Session) diff(u *subscription, t *xds.Table, d *diff) {
	ordered := s.ordered(u)
	upsert := func(r *xds.Resource) {
		var wait condition
		if ordered {
			wait = s.mustWait(u, &d.any, r)
		}
		if wait.holds {
			d.waiting = append(d.waiting, waiter{r.Name, wait})
		} else {
			d.upserts = append(d.upserts, r)
		}
	}
	if u.wildcard && (u.anew || u.base != t.Versions()) {
		c := t.Since(u.base)
		if u.anew && u.base.Len() > 0 {
			removed := c.Removed
			c = t.Since(nil)
			if len(removed) > 0 { // without removals, c stays shared with other streams
				c = &xds.Changes{Upserts: c.Upserts, Removed: removed}
			}
		}
		if u.names.len() == 0 && !ordered {
			*d = diff{upserts: c.Upserts, removed: c.Removed, shared: c}
			return
		}
		for _, r := range c.Upserts {
			if e := u.entry(r.Name); e != nil {
				u.mark(e)
				d.kept = append(d.kept, r.Name)
			} else {
				upsert(r)
			}
		}
		for _, n := range c.Removed {
			if e := u.entry(n); e != nil {
				u.mark(e)
				d.kept = append(d.kept, n)
			} else {
				d.removed = append(d.removed, n)
			}
		}
		if len(d.kept)+len(d.waiting)+len(u.dirty) == 0 {
			*d = diff{upserts: c.Upserts, removed: c.Removed, shared: c}
			return
		}
	}
	d.upserts = slices.Grow(d.upserts, len(u.dirty))
	for _, n := range u.dirty {
		e := u.entry(n)
		if e == nil {
			continue
		}
		r, gone := s.owed(u, t, e)
		switch {
		case r != nil:
			upsert(r)
		case gone:
			d.removed = append(d.removed, e.name)
			if e.told == absent && e.named && s.bodyless(u) && !u.scopes[e.name] && !stands(u.coming(e.name)) {
				d.absent = append(d.absent, e.name)
			}
			if s.opts.ResourceErrors && e.named && e.name != "" && u.matches[e.name] == nil && !u.scopes[e.name] {
				d.missing = append(d.missing, e.name)
			}
		}
	}
	slices.SortFunc(d.upserts, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(d.removed)
	slices.Sort(d.absent)
	slices.Sort(d.missing)
}

// waitAll holds all upserts back. Names that waited before continue to wait.
func (d *diff) waitAll(before map[string]wait) {
	for _, r := range d.upserts {
		if _, waited := before[r.Name]; waited {
			d.waiting = append(d.waiting, waiter{name: r.Name})
		}
	}
	d.upserts = nil
}

// waitNone removes all waiting names from the diff.
func (d *diff) waitNone() { d.waiting = nil }

// waitForAddresses makes upserts wait that take an address of a waiting resource (HEAL-4). A full state needs no such
// wait, because it waits as a whole.
func (s *Session) waitForAddresses(u *subscription, t *xds.Table, d *diff) {
	if !u.typ.Binds || len(d.waiting) == 0 || len(d.upserts) == 0 || s.tellsWorld(u) {
		return
	}
	for i := 0; i < len(d.waiting); i++ { // d.waiting grows: an address may be handed on several times
		w := d.waiting[i]
		if u.told(w.name).Addresses == nil {
			continue
		}
		n := len(d.upserts)
		d.upserts = slices.DeleteFunc(slices.Clone(d.upserts), func(r *xds.Resource) bool {
			takes := u.frees(t, w.name, r)
			if takes {
				d.waiting = append(d.waiting, waiter{name: r.Name})
			}
			return takes
		})
		d.bound = d.bound || len(d.upserts) < n
	}
	if d.bound {
		d.shared = nil
	}
}

// frees reports whether the next state of a name releases an address that r takes.
func (u *subscription) frees(t *xds.Table, name string, r *xds.Resource) bool {
	told, is := u.told(name), t.Lookup(name)
	return told.Addresses != nil && is != nil && told.Frees(is.Stamp, r.Stamp)
}

// diffAnew computes the diff again as long as the diff concerns the names of a refusal: then all
// names of the refusal must be sent, too (DELTA-15).
func (s *Session) diffAnew(u *subscription, t *xds.Table, d *diff) {
	for u.holdsBack() && u.dissolve(s.tellsWorld(u), d.names) {
		*d = diff{}
		s.diff(u, t, d)
	}
}

// owed returns what is to be sent for the name of an entry: a resource, a removal (gone), or
// nothing.
func (s *Session) owed(u *subscription, t *xds.Table, e *entry) (r *xds.Resource, gone bool) {
	l := u.lingers(e.name)
	switch {
	case u.matches[e.name] != nil:
		// The name matches other resources, which have their own entries. The client may still hold
		// an earlier resource with this name itself.
		return nil, e.told != others && l == nil
	case !u.wants(e) && !u.wildcard:
		// No subscription matches the name any more.
		return nil, (e.told != absent || (e.again || u.dropped[e.name]) && !s.undecided(u.typ, e.name)) && l == nil
	}
	r = t.Lookup(e.name)
	if !u.shows(r) || l != nil {
		r = nil
	}
	switch {
	case r != nil && (e.again || differs(e.told, r)):
		return r, false
	case r != nil:
	case l != nil && e.again && l.body == nil:
		// The body is no longer known, so only the removal can be sent, if the client has just
		// subscribed or unsubscribed.
		return nil, (e.named || u.dropped[e.name]) && !s.undecided(u.typ, e.name)
	case l != nil && e.again && (s.variant == xds.Delta && (e.matched == 0 || e.named || u.wildcard) || s.warms(u.typ)):
		return l.body, false
	case l != nil:
		// The resource is kept until nothing refers to it, and need not be sent. Either the client
		// has a copy, or the name is only matched, so the client did not request it. A SotW client
		// on a new stream may lack a name that it requests. There the resource is sent only for
		// types that clusters need to become warm (the case above).
	case e.told == absent && (!e.again || e.matched > 0 && !e.named && !e.sent):
		// The client knows that the name does not exist. A matched resource that was removed before
		// it was sent is not reported, either.
	case s.mutes(u, e):
	case s.undecided(u.typ, e.name) && (u.wants(e) || s.variant == xds.Delta): // the view is still looking; in SotW no response reports unsubscribed names
	default:
		return nil, true
	}
	return nil, false
}

func differs(told *xds.Stamp, r *xds.Resource) bool { return told.Sum != r.Sum }

// names yields the names in the diff.
func (d *diff) names(yield func(string) bool) {
	for _, r := range d.upserts {
		if !yield(r.Name) {
			return
		}
	}
	for _, w := range d.waiting {
		if !yield(w.name) {
			return
		}
	}
	for _, n := range d.removed {
		if !yield(n) {
			return
		}
	}
}

// minus returns the names that are not in others. Both lists are sorted.
func minus(names, others []string) []string {
	if len(others) == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, has := slices.BinarySearch(others, n); return has })
}

// undecided reports whether the view is still looking for a name and has no resource with this name
// yet.
func (s *Session) undecided(t *xds.Type, name string) bool {
	v, ok := s.view.(xds.Undecided)
	return ok && v.Undecided(t, name) && s.table(t).Lookup(name) == nil
}

// searching reports whether the view is still looking for a subscribed name.
func (s *Session) searching(u *subscription) bool {
	if _, ok := s.view.(xds.Undecided); !ok {
		return false
	}
	for e := range u.entries() {
		if e.named && s.undecided(u.typ, e.name) {
			return true
		}
	}
	return false
}

// bodyless reports whether a missing name is reported to this client as a Resource without a body
// (DELTA-7).
func (s *Session) bodyless(u *subscription) bool {
	return s.variant == xds.Delta && (s.opts.Bodyless || slices.Contains(u.typ.BodylessAbsence, s.agent))
}
