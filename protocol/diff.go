package protocol

import (
	"cmp"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// A diff is what the client is to be told, by name.
type diff struct {
	upserts []*xds.Resource
	removed []string // of which absent are told otherwise
	absent  []string
	missing []string
	waiting []waiter // upserts kept back until another type is answered
	kept    []string // the wildcard's table differs in them, but nothing is to be said
	shared  *xds.Changes
	any     anyReady
}

// diff compares the view with what was told, where they may differ, and adds to d, which
// is empty, in what they do.
func (s *Session) diff(u *subscription, t *xds.Table, d *diff) {
	ordered := s.ordered(u)
	upsert := func(r *xds.Resource) {
		if !ordered {
			d.upserts = append(d.upserts, r)
		} else if ready, w := s.readyOr(u, &d.any, r); ready {
			d.upserts = append(d.upserts, r)
		} else {
			d.waiting = append(d.waiting, w)
		}
	}
	if u.wildcard && (u.anew || u.base != t.Versions()) {
		c := t.Since(u.base)
		if u.anew && u.base.Len() > 0 {
			removed := c.Removed
			c = t.Since(nil)
			if len(removed) > 0 { // else as other streams are told it
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

// waitAll keeps back all that is new. What has waited waits on, since when it did.
func (d *diff) waitAll(before map[string]wait) {
	for _, r := range d.upserts {
		if _, waited := before[r.Name]; waited {
			d.waiting = append(d.waiting, waiter{name: r.Name})
		}
	}
	d.upserts = nil
}

// waitNone keeps nothing back.
func (d *diff) waitNone() { d.waiting = nil }

// diffAnew compares again as long as the diff ends refusals, which kept names from being told.
func (s *Session) diffAnew(u *subscription, t *xds.Table, d *diff) {
	for u.holdsBack() && u.dissolve(s.tellsWorld(u), d.names) {
		*d = diff{}
		s.diff(u, t, d)
	}
}

// owed returns what the client is to be told of an entry's name: a resource, or
// that it is gone, or nothing.
func (s *Session) owed(u *subscription, t *xds.Table, e *entry) (r *xds.Resource, gone bool) {
	l := u.lingers(e.name)
	switch {
	case u.matches[e.name] != nil:
		// It finds others, which have entries of their own. The client may have
		// one of that name from before.
		return nil, e.told != others && l == nil
	case !u.wants(e) && !u.wildcard:
		// No name finds it any more.
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
		// Who asks for it, or gives it up, can be told of it only that it is lost, once that is decided.
		return nil, (e.named || u.dropped[e.name]) && !s.undecided(u.typ, e.name)
	case l != nil && e.again && (s.variant == xds.Delta && (e.matched == 0 || e.named || u.wildcard) || s.warms(u.typ)):
		return l.body, false
	case l != nil:
		// It is about to leave: what the client has of it will do, and what only another name
		// finds it has not asked for. That a SotW client asks for it on a new stream need not
		// mean that it had it: only what others may wait for is told.
	case e.told == absent && (!e.again || e.matched > 0 && !e.named && !e.sent):
		// Of what only another name has found, and is gone before the client was told of
		// it, nothing is said.
	case s.mutes(u, e):
	case s.undecided(u.typ, e.name) && (u.wants(e) || s.variant == xds.Delta): // in SotW nothing is said of what a client has given up
	default:
		return nil, true
	}
	return nil, false
}

func differs(told *xds.Stamp, r *xds.Resource) bool { return told.Sum != r.Sum }

// names yields the names that the diff mentions.
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

// minus returns the names that are not in the second list; both are sorted.
func minus(names, others []string) []string {
	if len(others) == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, has := slices.BinarySearch(others, n); return has })
}

// undecided reports whether the view is still looking for a name, and has nothing of it.
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

// bodyless reports whether the client is to be told of a name that does not
// exist by a Resource without body.
func (s *Session) bodyless(u *subscription) bool {
	return s.variant == xds.Delta && (s.opts.Bodyless || slices.Contains(u.typ.BodylessAbsence, s.agent))
}
