package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A leaver is a resource that the view has no more and the client still has,
// kept since something that the client may hold refers to it: "Stale CDS
// clusters and related EDS endpoints (ones no longer being referenced) can then
// be removed". So is what may not be told to be gone, since the view is looking for it.
type leaver struct {
	stamp    *xds.Stamp    // what the client has of it; absent: nothing, but what it warms needs it
	body     *xds.Resource // what it is told meanwhile; nil: not known any more
	since    time.Time     // when it was first asked whether it may leave; zero: not yet
	due      time.Time     // when it may leave though nobody answers; zero: never
	referred bool          // something that the client has did refer to it
	waived   []*xds.Type   // types that referred to it, and were silent for too long
	released bool          // nothing refers to it any more: it is told to be gone
}

// A withdrawing is what of one type is about to leave.
//
// Invariant: each name in leaving has an entry; what it leaves as is called so, and its due,
// if it has one, is later than since.
type withdrawing struct {
	leaving map[string]*leaver
}

// lingers returns what of a name is about to leave and still told, or nil.
func (u *subscription) lingers(name string) *leaver {
	if l := u.leaving[name]; l != nil && !l.released {
		return l
	}
	return nil
}

// lingering yields what the client has, or is told, besides the view.
func (u *subscription) lingering(yield func(*xds.Resource) bool) {
	for _, l := range u.leaving {
		if !l.released && l.body != nil && !yield(l.body) {
			return
		}
	}
}

// lingeringStamps yields the same, without bodies.
func (u *subscription) lingeringStamps(yield func(*xds.Stamp) bool) {
	for r := range u.lingering {
		if !yield(r.Stamp) {
			return
		}
	}
}

// A referrer is a type that may refer to another: what the client may hold of it
// and that is not what the view has.
type referrer struct {
	by    *xds.Type
	sub   *subscription // nil: not open yet
	firm  refSet        // it refused something
	loose refSet        // waits for answers, which may never come
	until time.Time     // nobody knows what the client has of it, until then; zero: not so
}

// A refSet is what resources refer to of one type.
type refSet struct {
	typ   *xds.Type // of what they refer to; nil: to nothing
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

// has reports whether something is referred to: by its name, an alias, or its
// collection, as assignments refer to endpoints.
func (s *refSet) has(name string, body *xds.Resource) bool {
	return s.all || len(s.names) > 0 && (s.names[name] || s.names[s.typ.Collection(name)] || body != nil && slices.ContainsFunc(body.Aliases, func(a string) bool { return s.names[a] }))
}

// referrers returns what may refer to resources of a type on the client.
func (s *Session) referrers(t *xds.Type) (all []referrer) {
	for _, by := range t.ReferredBy() {
		r := referrer{by: by, sub: s.sub(by)}
		if r.sub == nil {
			if !s.mayOpen() {
				continue
			}
			r.loose.all = true // it has what it had, and refers to what it had
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

// mayOpen reports whether a client that resumes may still open types of which it
// has something.
func (s *Session) mayOpen() bool { return s.resumes && s.now.Before(s.began.Add(s.opts.Grace)) }

// holds reports whether a referrer keeps what is called so and was lost at a
// time, and until when at most; zero: until the client says something.
func (r *referrer) holds(name string, body *xds.Resource, since time.Time) (holds bool, until time.Time) {
	switch {
	case r.firm.has(name, body):
		return true, time.Time{}
	case !r.loose.has(name, body):
		return false, time.Time{}
	case r.sub == nil || !r.sub.unacked:
		return true, r.until // zero: until it is told
	}
	until = r.sub.waitsUntil(since)
	if !r.until.IsZero() && r.until.Before(until) {
		until = r.until // then it may hold less
	}
	return true, until
}

// waitsUntil is when the wait for an answer that began at since ends: the
// client has then answered nothing for as long as silence, before and since.
func (u *subscription) waitsUntil(since time.Time) time.Time {
	if u.silent.After(since) {
		since = u.silent
	}
	return since.Add(silence)
}

// withdrawsLate reports whether resources of u stay for a while when they are
// lost.
func (s *Session) withdrawsLate(u *subscription) bool {
	if len(u.typ.ReferredBy()) == 0 {
		return false
	}
	// On a stream of its own a type without full state has no removals in SotW.
	return s.only == nil || s.opts.Grace > 0 && (s.variant == xds.Delta || u.typ.FullState)
}

// retain finds what the client has of u and the view has lost, and keeps what
// something may still refer to. What nothing refers to goes with the next
// response. It looks at what is dirty, and beyond that, of what the wildcard
// covers, at what was touched; nil: at anything.
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
		case blocked: // until it is told, something may come to refer to it
			gone := entry{name: n, told: told, sent: true, again: u.anew && !u.typ.FullState}
			u.mark(&gone)
			extra = append(extra, gone)
		}
	}
	covered := func(names []string) {
		for _, n := range names {
			if u.entry(n) == nil { // else it is dirty
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

// retainFound keeps what a name has found, and what has no name any more by which
// this client would find it: that is as good as lost.
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
			if s.blocked(u) { // until it is told, something may come to refer to it
				refs = append(refs, referrer{loose: refSet{all: true}})
			}
		}
		s.keep(u, refs, r.Name, e.told)
	}
}

// lost reports whether the view has lost a name, so that the client may need
// what it was told of it.
func (s *Session) lost(u *subscription, t *xds.Table, n string, e *entry, told *xds.Stamp) bool {
	switch {
	case u.leaving[n] != nil || u.shows(t.Lookup(n)):
		return false
	case e != nil && !u.wants(e) && (u.dropped[n] && t.Lookup(n) != nil || !u.wildcard && (!u.lapsed[n] || !u.collects(n))):
		return false // the client has given it up, and the wildcard does not cover it
	}
	return stands(told) || e != nil && s.awaits(u, e)
}

// awaits reports whether a client may need a name for an ACK that it has asked for, and not
// been told of.
func (s *Session) awaits(u *subscription, e *entry) bool {
	return e.named && e.again && u.matches[e.name] == nil && s.warms(u.typ)
}

// hopes reports whether that was in the view not long ago, and nothing of it may be told for
// now. What comes to refer to it makes it linger: so it stays listed.
func (s *Session) hopes(u *subscription, t *xds.Table, e *entry) bool {
	return s.awaits(u, e) && s.lost(u, t, e.name, e, e.told) && s.body(u.typ, e.name, e.told) != nil
}

// warms reports whether other types are not accepted before resources of this
// one have come: "nothing that an ACK depends on may wait for that ACK". Then a
// name is also told that the client asks for after the view has lost it, since
// it was told something that refers to it.
func (s *Session) warms(t *xds.Type) bool {
	return s.only == nil && slices.ContainsFunc(t.ReferredBy(), func(by *xds.Type) bool { return t.Is(by.Warms) })
}

// keep makes a lost resource linger if something may refer to it.
func (s *Session) keep(u *subscription, refs []referrer, name string, told *xds.Stamp) bool {
	body := s.body(u.typ, name, told)
	if body == nil && (s.variant == xds.SotW || told == absent) {
		return false // too long ago
	}
	// What the view is looking for is lost all the same: what comes to refer to it counts from now.
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

// body returns the resource that a client was told, or the last there was of
// that name; nil if that was too long ago.
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
		return last // no table has that, and a client may state many of these
	}
	recent := s.recent(typ)
	if told == absent { // of those after the view it has nothing
		recent = s.past(typ, t)
	}
	for _, t := range recent {
		if r := t.Lookup(name); r != nil && (told == absent || same(r.Stamp, told)) {
			return r
		}
	}
	return last
}

// withdraw releases what nothing refers to any more, and reports whether there
// was anything. What is not told at once is held again.
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

// holdAgain makes all stay that was released and is not told to be gone yet, until it is found
// anew that nothing refers to it.
func (u *subscription) holdAgain(t *xds.Table) {
	for name, l := range u.leaving {
		if l.released {
			u.stir(name)
		}
		l.released = false
		u.returned(t, name) // also what the client has asked for by another name
	}
}

// leaveNot forgets that something is about to leave: the client has dropped it by itself.
func (w *withdrawing) leaveNot(name string) { delete(w.leaving, name) }

// departed notes that the client was told that a leaver is gone.
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

// free reports whether a leaver may leave: no type holds it, or those that do
// have been silent for too long. A stream of one type hears nothing of the
// others: "eventual consistency" has to do.
func (s *Session) free(u *subscription, refs []referrer, name string, l *leaver) bool {
	l.due = time.Time{}
	if l.since.IsZero() { // not when it was found: that depends on hints
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

// dropsByItself reports whether the client walks from routes to clusters by
// name, as gRPC does: it acknowledges the routes first, then asks for the new
// cluster, and drops the old one by itself when it has it.
func (u *subscription) dropsByItself() bool { return u.typ.FullState && !u.wildcard }

// returned forgets the leavers that the view shows again.
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

// withdrawBy yields the times at which something may leave though nobody answers.
func (u *subscription) withdrawBy(yield func(time.Time)) {
	for _, l := range u.leaving {
		yield(l.due)
	}
}
