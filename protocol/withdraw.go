package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A leaver is a resource that the view has lost and that the client still holds, because something
// on the client may refer to it (ADS-3). "Stale CDS clusters and related EDS endpoints (ones no
// longer being referenced) can then be removed". A resource that the view is looking for again is
// kept, too.
type leaver struct {
	stamp    *xds.Stamp    // what the client holds; absent: nothing, but a resource that it warms needs this one
	body     *xds.Resource // sent meanwhile; nil: no longer known
	since    time.Time     // when its removal was first considered; zero: not yet
	due      time.Time     // when it is removed even without an answer; zero: never
	referred bool          // something on the client did refer to it
	waived   []*xds.Type   // types that referred to it and were silent for too long
	released bool          // nothing refers to it any more: its removal is sent
}

// A withdrawing is the set of kept resources of one type.
//
// Invariant: each name in leaving has an entry and is the name of its stamp and body. A due time is
// later than since.
type withdrawing struct {
	leaving map[string]*leaver
}

// lingers returns the kept resource with a name, or nil if there is none or it is released.
func (u *subscription) lingers(name string) *leaver {
	if l := u.leaving[name]; l != nil && !l.released {
		return l
	}
	return nil
}

// lingering yields the kept resources that are still sent.
func (u *subscription) lingering(yield func(*xds.Resource) bool) {
	for _, l := range u.leaving {
		if !l.released && l.body != nil && !yield(l.body) {
			return
		}
	}
}

// lingeringStamps is lingering without bodies.
func (u *subscription) lingeringStamps(yield func(*xds.Stamp) bool) {
	for r := range u.lingering {
		if !yield(r.Stamp) {
			return
		}
	}
}

// A referrer is a type that may refer to another. It has the references of all resources of the
// type that the client may hold and the view no longer has.
type referrer struct {
	by    *xds.Type
	sub   *subscription // nil: the client has not opened it yet
	firm  refSet        // of refused resources
	loose refSet        // of resources that wait for an answer, which may never come
	until time.Time     // until then, unknown resources of it may refer to anything; zero: there are none
}

// A refSet is a set of references to resources of one type.
type refSet struct {
	typ   *xds.Type // the type referred to; nil: the set is empty
	all   bool
	names map[string]bool
}

func (s *refSet) add(t *xds.Type, st *xds.Stamp) {
	s.typ = t
	if st.Refs == nil {
		s.all = true
	}
	for _, ref := range st.Refs {
		switch {
		case !ref.Type.Is(t):
		case ref.Name == xds.Wildcard:
			s.all = true
		default:
			if s.names == nil {
				s.names = map[string]bool{}
			}
			s.names[ref.Name] = true
		}
	}
}

// has reports whether the set refers to a resource: by its name, an alias, or its collection, as
// assignments refer to endpoints.
func (s *refSet) has(name string, body *xds.Resource) bool {
	return s.all || len(s.names) > 0 && (s.names[name] || s.names[s.typ.Collection(name)] || body != nil && slices.ContainsFunc(body.Aliases, func(a string) bool { return s.names[a] }))
}

// referrers returns the types that may refer to resources of a type on the client.
func (s *Session) referrers(t *xds.Type) (all []referrer) {
	for _, by := range t.ReferredBy() {
		r := referrer{by: by, sub: s.sub(by)}
		if r.sub == nil {
			if !s.mayOpen() {
				continue
			}
			r.loose.all = true // it holds its resources from before, with their references
			r.until = s.began.Add(s.opts.Grace)
		} else {
			if s.vague(r.sub) && s.now.Before(r.sub.vague) {
				r.until = r.sub.vague
			}
			s.mayHold(r.sub, func(st *xds.Stamp, firm bool) bool {
				if firm {
					r.firm.add(t, st)
				} else {
					r.loose.add(t, st)
				}
				return !r.firm.all
			})
		}
		if r.firm.all || r.loose.all || len(r.firm.names)+len(r.loose.names) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// mayOpen reports whether a resuming client may still open a type and hold resources of it (ADS-9).
func (s *Session) mayOpen() bool { return s.resumes && s.now.Before(s.began.Add(s.opts.Grace)) }

// holds reports whether a referrer keeps a name that was lost at since, and until when at most;
// zero: until the client answers.
func (r *referrer) holds(name string, body *xds.Resource, since time.Time) (holds bool, until time.Time) {
	switch {
	case r.firm.has(name, body):
		return true, time.Time{}
	case !r.loose.has(name, body):
		return false, time.Time{}
	case r.sub == nil || !r.sub.unacked:
		return true, r.until // zero: until a newer state is sent
	}
	until = r.sub.waitsUntil(since)
	if !r.until.IsZero() && r.until.Before(until) {
		until = r.until // its unknown references end then
	}
	return true, until
}

// waitsUntil returns the end of a wait that began at since: the client has then answered nothing
// for the duration silence, before and after since.
func (u *subscription) waitsUntil(since time.Time) time.Time {
	if u.silent.After(since) {
		since = u.silent
	}
	return since.Add(silence)
}

// withdrawsLate reports whether resources of u are kept for a while when the view loses them.
func (s *Session) withdrawsLate(u *subscription) bool {
	if len(u.typ.ReferredBy()) == 0 {
		return false
	}
	// On a per-type SotW stream, a type without full state has no removals.
	return s.only == nil || s.opts.Grace > 0 && (s.variant == xds.Delta || u.typ.FullState)
}

// retain finds the names that the client holds and the view has lost, and keeps those that
// something may still refer to. Names without references go with the next response. It looks at
// dirty names and, of those that only the wildcard covers, at touched; nil: at all.
func (s *Session) retain(u *subscription, touched []xds.Names) {
	if !s.withdrawsLate(u) {
		return
	}
	t := s.table(u.typ)
	var refs []referrer
	asked, blocked := false, s.blocked(u)
	unheld := false // nothing refers to any of them
	var extra []entry
	look := func(n string, e *entry) {
		if unheld && !s.undecided(u.typ, n) {
			return
		}
		told := u.toldBy(e, n)
		if !s.lost(u, t, n, e, told) {
			return
		}
		if !asked {
			asked, refs = true, s.referrers(u.typ)
			unheld = !blocked && s.only == nil && len(refs) == 0
		}
		switch kept := s.keep(u, refs, n, told); {
		case e != nil:
		case kept:
			extra = append(extra, entry{name: n, told: told, sent: true, again: u.anew && !u.typ.FullState})
		case blocked: // until its removal is sent, something may come to refer to it
			gone := entry{name: n, told: told, sent: true, again: u.anew && !u.typ.FullState}
			u.mark(&gone)
			extra = append(extra, gone)
		}
	}
	covered := func(names []string) {
		for _, n := range names {
			if u.entry(n) == nil { // otherwise it is dirty
				look(n, nil)
			}
		}
	}
	if u.wildcard && touched == nil && u.base != t.Versions() {
		covered(t.Since(u.base).Removed)
	}
	for _, names := range touched {
		if u.wildcard {
			covered(names[u.typ.URL])
		}
	}
	for _, n := range u.dirty {
		if e := u.entry(n); e != nil || u.wildcard {
			look(n, e)
		}
		s.retainFound(u, t, n)
	}
	u.add(extra...)
}

// retainFound keeps resources that a name matched and that no subscription of this client would
// match in the present view. For the client they are as good as lost.
func (s *Session) retainFound(u *subscription, t *xds.Table, name string) {
	was := u.matches[name]
	if was.Len() == 0 {
		return
	}
	var refs []referrer
	asked := false
	for r := range was.All() {
		e, is := u.entry(r.Name), t.Lookup(r.Name)
		if is == nil || u.leaving[r.Name] != nil || !stands(e.told) || u.findable(t, is) {
			continue
		}
		if !asked {
			asked, refs = true, s.referrers(u.typ)
			if s.blocked(u) { // until its removal is sent, something may come to refer to it
				refs = append(refs, referrer{loose: refSet{all: true}})
			}
		}
		s.keep(u, refs, r.Name, e.told)
	}
}

// lost reports whether the view has lost a name, so that the client may need the state it was told.
func (s *Session) lost(u *subscription, t *xds.Table, n string, e *entry, told *xds.Stamp) bool {
	switch {
	case u.leaving[n] != nil || u.shows(t.Lookup(n)):
		return false
	case e != nil && !u.wants(e) && (u.dropped[n] && t.Lookup(n) != nil || !u.wildcard && (!u.lapsed[n] || !u.collects(n))):
		return false // the client has dropped it, and the wildcard does not cover it
	}
	return stands(told) || e != nil && s.awaits(u, e)
}

// awaits reports whether a client has subscribed to a name, was not sent it, and may need it for an
// ACK of another type.
func (s *Session) awaits(u *subscription, e *entry) bool {
	return e.named && e.again && u.matches[e.name] == nil && s.warms(u.typ)
}

// hopes reports whether the view recently had a name that awaits applies to, and it cannot be sent
// now. A new reference to it makes it kept, so it stays listed as dirty.
func (s *Session) hopes(u *subscription, t *xds.Table, e *entry) bool {
	return s.awaits(u, e) && s.lost(u, t, e.name, e, e.told) && s.body(u.typ, e.name, e.told) != nil
}

// warms reports whether the client ACKs other types only after resources of this type have come:
// "nothing that an ACK depends on may wait for that ACK" (ADS-7). Then a name is sent even if the
// client subscribes after the view has lost it, since something it holds may refer to the name.
func (s *Session) warms(t *xds.Type) bool {
	return s.only == nil && slices.ContainsFunc(t.ReferredBy(), func(by *xds.Type) bool { return t.Is(by.Warms) })
}

// keep keeps a lost resource if something may refer to it.
func (s *Session) keep(u *subscription, refs []referrer, name string, told *xds.Stamp) bool {
	body := s.body(u.typ, name, told)
	if body == nil && (s.variant == xds.SotW || told == absent) {
		return false // no longer known
	}
	// A name that the view is looking for is lost, too: new references to it count from now.
	untold := stands(told) && s.undecided(u.typ, name)
	if s.only == nil && !untold && !slices.ContainsFunc(refs, func(r referrer) bool { holds, _ := r.holds(name, body, s.now); return holds }) {
		return false
	}
	if u.leaving == nil {
		u.leaving = map[string]*leaver{}
	}
	u.leaving[name] = &leaver{stamp: told, body: body}
	u.stir(name)
	return true
}

// body returns the resource in the state told, or the last resource with the name; nil if both were
// too long ago.
func (s *Session) body(typ *xds.Type, name string, told *xds.Stamp) *xds.Resource {
	t := s.table(typ)
	last := t.Departed(name)
	if r := t.Lookup(name); r != nil { // on demand: the wildcard has lost it
		last = r
	}
	if last != nil && (told == absent || same(last.Stamp, told)) {
		return last
	}
	if told != absent && !known(told) {
		return last // no table has it, and a client may state many of these
	}
	recent := s.recent(typ)
	if told == absent { // tables after the view do not count
		recent = s.past(typ, t)
	}
	for _, t := range recent {
		if r := t.Lookup(name); r != nil && (told == absent || same(r.Stamp, told)) {
			return r
		}
	}
	return last
}

// withdraw releases the kept names that nothing refers to any more, and reports whether there were
// any. A name whose removal is not sent in this step is kept again (holdAgain).
func (s *Session) withdraw() (progress bool) {
	for _, u := range s.subs {
		if len(u.leaving) == 0 {
			continue
		}
		t, refs, blocked := s.table(u.typ), s.referrers(u.typ), s.blocked(u)
		var free []string
		for name, l := range u.leaving {
			if !l.released && s.free(u, refs, name, l) && !blocked {
				free = append(free, name)
			}
		}
		slices.Sort(free)
		for _, name := range free {
			u.leaving[name].released = true
			u.stir(name)
			u.rematch(t, name)
			u.mark(u.entry(name))
			progress = true
		}
	}
	return progress
}

// holdAgain keeps all released names whose removal was not sent, until withdraw looks at them
// again.
func (u *subscription) holdAgain(t *xds.Table) {
	for name, l := range u.leaving {
		if l.released {
			u.stir(name)
		}
		l.released = false
		u.returned(t, name) // also a name to which the client has subscribed by another name
	}
}

// leaveNot forgets a kept name because the client has unsubscribed from it.
func (w *withdrawing) leaveNot(name string) { delete(w.leaving, name) }

// departed notes that the removal of a kept name is sent.
func (s *Session) departed(u *subscription, name string) {
	l := u.leaving[name]
	if l == nil {
		return
	}
	u.stir(name)
	delete(u.leaving, name)
	for _, by := range l.waived {
		s.event(Event{Kind: Waived, Type: u.typ, By: by, Name: name})
	}
	s.event(Event{Kind: Departed, Type: u.typ, Name: name, Version: l.stamp.Version})
}

// free reports whether a kept name may be removed: no type refers to it, or those that do have been
// silent for too long. A stream of one type sees no other types, so "eventual consistency" must be
// enough after the grace period.
func (s *Session) free(u *subscription, refs []referrer, name string, l *leaver) bool {
	l.due = time.Time{}
	if l.since.IsZero() { // not when the view lost it: hints would change that time
		l.since = s.now
	}
	wait := func(until time.Time) bool {
		if l.due.IsZero() || until.Before(l.due) {
			l.due = until
		}
		return false
	}
	if s.only != nil {
		until := l.since.Add(s.opts.Grace)
		return !s.now.Before(until) || wait(until)
	}
	free := true
	l.waived = nil
	for i := range refs {
		switch holds, until := refs[i].holds(name, l.body, l.since); {
		case !holds:
			continue
		case until.IsZero():
			free = false
		case s.now.Before(until):
			free = wait(until)
		default:
			l.waived = append(l.waived, refs[i].by)
		}
		l.referred = l.referred || refs[i].sub != nil
	}
	if until := l.since.Add(silence); l.referred && u.dropsByItself() && s.now.Before(until) {
		free = wait(until)
	}
	return free
}

// dropsByItself reports whether the client goes from routes to clusters by name, as gRPC does. It
// ACKs the routes first, then subscribes to the new cluster, and drops the old one itself.
func (u *subscription) dropsByItself() bool { return u.typ.FullState && !u.wildcard }

// returned forgets a kept name that the view has again.
func (u *subscription) returned(t *xds.Table, name string) {
	if r := t.Lookup(name); u.leaving[name] != nil && u.shows(r) && u.findable(t, r) {
		delete(u.leaving, name)
		u.stir(name)
		u.suspect(name)
		if e := u.entry(name); e != nil {
			u.mark(e)
		}
	}
}

// withdrawBy yields the times at which a kept name is removed even without an answer.
func (u *subscription) withdrawBy(yield func(time.Time)) {
	for _, l := range u.leaving {
		yield(l.due)
	}
}
