package protocol

import (
	"iter"
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
	if u.wildcard && (u.Anew || u.base != t.Versions()) {
		if s.diffTable(u, t, d, ordered) {
			return
		}
	}
	d.upserts = slices.Grow(d.upserts, len(u.Dirty))
	for _, n := range u.Dirty {
		e := u.Entry(n)
		if e == nil {
			continue
		}
		r, gone := s.owed(u, t, e)
		switch {
		case r != nil:
			s.upsert(u, d, r, ordered)
		case gone:
			s.remove(u, d, e)
		}
	}
	byName(d.upserts)
	slices.Sort(d.removed)
	slices.Sort(d.absent)
	slices.Sort(d.missing)
}

// diffTable adds the differences of the wildcard's table. It reports whether the diff is complete
// and shared with other streams.
func (s *Session) diffTable(u *subscription, t *xds.Table, d *diff, ordered bool) (shared bool) {
	c := t.Since(u.base)
	if u.Anew && u.base.Len() > 0 {
		removed := c.Removed
		c = t.Since(nil)
		if len(removed) > 0 { // without removals, c stays shared with other streams
			c = &xds.Changes{Upserts: c.Upserts, Removed: removed}
		}
	}
	ordered = ordered && s.mayOrder(u, c.Upserts)
	shared = u.Set.Len() == 0 && !ordered
	if !shared {
		for _, r := range c.Upserts {
			if !u.keptFrom(d, r.Name) {
				s.upsert(u, d, r, ordered)
			}
		}
		for _, n := range c.Removed {
			if !u.keptFrom(d, n) {
				d.removed = append(d.removed, n)
			}
		}
		shared = len(d.kept)+len(d.waiting)+len(u.Dirty) == 0
	}
	if shared {
		*d = diff{upserts: c.Upserts, removed: c.Removed, shared: c}
	}
	return shared
}

// keptFrom reports whether a name that differs in the table has an entry. Then the entry decides,
// so keptFrom marks it.
func (u *subscription) keptFrom(d *diff, name string) bool {
	e := u.Entry(name)
	if e == nil {
		return false
	}
	u.Touch(e)
	d.kept = append(d.kept, name)
	return true
}

// upsert adds a resource to send. If the type is ordered, the resource may have to wait.
func (s *Session) upsert(u *subscription, d *diff, r *xds.Resource, ordered bool) {
	if ordered {
		if wait := s.mustWait(u, &d.any, r); wait.holds {
			d.waiting = append(d.waiting, waiter{r.Name, wait})
			return
		}
	}
	d.upserts = append(d.upserts, r)
}

// remove adds the removal of a name with an entry.
func (s *Session) remove(u *subscription, d *diff, e *entry) {
	d.removed = append(d.removed, e.Name)
	if !e.Named || u.scopes[e.Name] {
		return
	}
	if e.Told == absent && s.bodyless(u) && !stands(u.coming(e.Name)) {
		d.absent = append(d.absent, e.Name)
	}
	if s.opts.ResourceErrors && e.Name != "" && u.matches[e.Name] == nil {
		d.missing = append(d.missing, e.Name)
	}
}

// waitAll holds all upserts back. Names that waited before continue to wait.
func (d *diff) waitAll(before *waiting) {
	for _, r := range d.upserts {
		if _, waited := before.of(r.Name); waited {
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
	for u.holdsBack() && u.dissolve(s.tellsWorld(u), s.moved(u, d)) {
		*d = diff{}
		s.diff(u, t, d)
	}
}

// moved returns the names whose change ends a refusal. A full state without the waiting changes inside
// its type may equal the refused one (ADS-10).
func (s *Session) moved(u *subscription, d *diff) iter.Seq[string] {
	if s.tellsWorld(u) && u.ordersItself() {
		return (&diff{upserts: d.upserts, removed: d.removed}).names
	}
	return d.names
}

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

// searching reports whether the view is still looking for a subscribed name.
func (s *Session) searching(u *subscription) bool {
	if _, ok := s.view.(xds.Undecided); !ok {
		return false
	}
	return slices.ContainsFunc(u.Subscribed(), func(n string) bool { return s.undecided(u.typ, n) })
}

// bodyless reports whether a missing name is reported to this client as a Resource without a body
// (DELTA-7).
func (s *Session) bodyless(u *subscription) bool {
	return s.variant == xds.Delta && (s.opts.Bodyless || slices.Contains(u.typ.BodylessAbsence, s.agent))
}
