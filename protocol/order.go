package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// "LDS updates must arrive after corresponding CDS/EDS updates. RDS updates
// related to the newly added listeners must arrive after CDS/EDS/LDS updates."
// Envoy ACKs a CDS response when its clusters are warm, which takes EDS: so
// EDS waits for nothing, and what refers to a cluster waits for that ACK.

// ordered reports whether resources of u may have to wait for another type.
func (s *Session) ordered(u *subscription) bool {
	if s.only != nil || u.typ.After == nil {
		return false
	}
	first := s.sub(u.typ.After)
	if first == nil {
		return s.opensLater()
	}
	return len(first.deliveries)+len(first.refusals) > 0 || first.pending(s.table(first.typ))
}

// opensLater reports whether a client that resumes may have clusters, and has
// only not opened their type yet. Seen with Envoy 1.40: it opens CDS up to 15 s
// late when a CDS response from before is still warming, and all others at once.
func (s *Session) opensLater() bool { return s.resumes && s.before(s.began.Add(silence)) }

// before reports whether a time is still to come, and notes it: then what waits for
// it may wait no longer. So a wait has its Deadline from the rule that it obeys.
func (s *Session) before(t time.Time) bool {
	if !s.now.Before(t) {
		return false
	}
	if s.turns.IsZero() || t.Before(s.turns) {
		s.turns = t
	}
	return true
}

// readyOr reports whether r may be sent, and if not, what waits, and until when.
func (s *Session) readyOr(u *subscription, any *anyReady, r *xds.Resource) (bool, waiter) {
	s.turns, s.patient = time.Time{}, false
	if s.ready(u, any, r) {
		return true, waiter{}
	}
	return false, waiter{r.Name, s.turns, s.patient}
}

// ready reports whether r may be sent: whether the client has all that it refers
// to of the type that comes first.
func (s *Session) ready(u *subscription, any *anyReady, r *xds.Resource) bool {
	first := s.sub(u.typ.After)
	if first == nil {
		refers := r.Refs == nil || slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(u.typ.After) })
		return !refers || !s.opensLater()
	}
	t := s.table(first.typ)
	if r.Refs == nil {
		return s.readyForAny(any, first, t) || s.overdue(u, first, r.Name)
	}
	for _, ref := range r.Refs {
		switch {
		case !ref.Type.Is(first.typ):
		case ref.Name == xds.Wildcard:
			if !s.readyForAny(any, first, t) && !s.overdue(u, first, r.Name) {
				return false
			}
		case s.variant == xds.Delta && t.Lookup(ref.Name) == nil && t.Aliased(ref.Name).Len() > 0:
			for c := range t.Aliased(ref.Name).All() { // it refers to them by an alias
				if first.covers(c.Name) && !s.has(u, first, t, c.Name, r.Name) {
					return false
				}
			}
		case first.covers(ref.Name) && !s.has(u, first, t, ref.Name, r.Name):
			return false
		}
	}
	return true
}

// lacks returns to what r refers that the client has to answer for before r is sent. It is for
// whoever asks, and changes nothing.
func (s *Session) lacks(u *subscription, r *xds.Resource) (refs []xds.Ref) {
	turns, patient := s.turns, s.patient
	defer func() { s.turns, s.patient = turns, patient }()
	if r.Refs == nil && !s.ready(u, &anyReady{}, r) {
		return []xds.Ref{{Type: u.typ.After, Name: xds.Wildcard}}
	}
	for _, ref := range r.Refs {
		one := &xds.Resource{Stamp: &xds.Stamp{Name: r.Name, Refs: []xds.Ref{ref}}}
		if ref.Type.Is(u.typ.After) && !s.ready(u, &anyReady{}, one) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// An anyReady is what readyForAny has found out for one diff, and when it may turn.
type anyReady struct {
	known, is bool
	turns     time.Time
}

// readyForAny reports whether what may refer to anything of the type that comes first may
// be sent: nothing of that is on its way to the client.
func (s *Session) readyForAny(any *anyReady, first *subscription, t *xds.Table) bool {
	if !any.known {
		*any = s.findAny(first, t)
	}
	s.before(any.turns)
	return any.is
}

func (s *Session) findAny(first *subscription, t *xds.Table) anyReady {
	turns := s.turns
	s.turns = time.Time{}
	is := anyReady{known: true, is: s.nothingComes(first, t), turns: s.turns}
	s.turns = turns
	return is
}

func (s *Session) nothingComes(first *subscription, t *xds.Table) bool {
	switch {
	case s.owes(first, t):
		return false
	case first.stuck(): // no answer is to be expected, but to the assignments that there are
		return !s.cold(first, t)
	}
	for d := range first.underWay() {
		if first.unacked && first.brings(d) && s.awaited(d) {
			return false
		}
	}
	return true
}

// owes reports whether there is something to say. What the view is looking for may stay
// listed for ever, and is nothing to wait for.
func (s *Session) owes(u *subscription, t *xds.Table) bool {
	return u.news(t) || slices.ContainsFunc(u.dirty, func(n string) bool {
		e := u.entry(n)
		if e == nil {
			return false
		}
		r, gone := s.owed(u, t, e)
		return r != nil || gone
	})
}

// brings reports whether a delivery tells anything that the client does not have, as far
// as is known: not if all of it was told before, and is told again.
func (u *subscription) brings(d *delivery) bool {
	if !u.wildcard || !u.typ.FullState {
		return true
	}
	for name, it := range d.each {
		if !same(it.was, it.is) || u.refusedNew(name) {
			return true
		}
	}
	return false
}

// cold reports whether a cluster is on its way, new to the client, that it has not
// acknowledged the assignments of.
func (s *Session) cold(first *subscription, t *xds.Table) bool {
	for d := range first.underWay() {
		for name, it := range d.each {
			c := t.Lookup(name)
			if stands(it.was) || !stands(it.is) || !first.covers(name) || !first.shows(c) {
				continue
			}
			if warm, told := s.warmed(first, c); told && !warm && s.awaited(d) {
				return true
			}
		}
	}
	return false
}

// has reports whether the client has what is called name of the type that comes
// first, so that waiter of u may be sent.
func (s *Session) has(u, first *subscription, t *xds.Table, name, waiter string) bool {
	is := t.Lookup(name)
	comes := first.shows(is) && first.leaving[name] == nil // else it is found by no name that the client asks for
	switch {
	case comes && first.told(name) == absent:
		return false // it leaves within the patience of its type
	case comes && differs(first.told(name), is), !first.stuck() && s.flies(first, name, false):
		if !s.overdue(u, first, waiter) {
			return false
		}
	}
	return !first.shows(is) || !first.wildcard || !s.doubtful(u, first, waiter, is)
}

// doubtful reports whether waiter of u must wait because it is doubtful that the
// client has the cluster c that it was sent: it has refused the response, or its
// answer is not to be expected. The assignment tells: a client asks for it, and
// acknowledges it, when it has the cluster.
func (s *Session) doubtful(u, first *subscription, waiter string, c *xds.Resource) bool {
	switch {
	case first.refusedNew(c.Name):
		if !stands(u.told(waiter)) {
			return false // it has nothing that would go on meanwhile
		}
		warm, told := s.warmed(first, c)
		return !warm && (told && !s.overdue(u, first, waiter) || s.before(s.waitsSince(u, waiter).Add(silence)))
	case first.stuck() && s.flies(first, c.Name, true):
		warm, told := s.warmed(first, c)
		return !warm && told && !s.overdue(u, first, waiter)
	}
	return false
}

// warmed reports whether the client has acknowledged the assignments of a
// cluster since it was sent that cluster, and whether these tell anything. One that the
// view is looking for may come, and tell.
func (s *Session) warmed(first *subscription, c *xds.Resource) (warm, told bool) {
	if first.typ.Warms == nil || s.sub(first.typ.Warms) == nil {
		return false, false
	}
	eds, t := s.sub(first.typ.Warms), s.table(first.typ.Warms)
	for _, ref := range c.Refs {
		if !ref.Type.Is(eds.typ) || t.Lookup(ref.Name) == nil && eds.lingers(ref.Name) == nil {
			if ref.Type.Is(eds.typ) && s.undecided(eds.typ, ref.Name) {
				return false, true
			}
			continue
		}
		told = true
		e := eds.entry(ref.Name)
		if e == nil || !eds.wants(e) || e.again || !known(e.told) || s.flies(eds, ref.Name, true) {
			return false, true
		}
	}
	return told, told
}

// flies reports whether a response that others wait for carries a name; if novel
// is set, one that brings it for the first time.
func (s *Session) flies(u *subscription, name string, novel bool) bool {
	var last *delivery
	for d := range u.underWay() {
		is := d.carries(name)
		switch {
		case is == nil, novel && stands(d.had(name)):
		case !novel && u.wildcard && u.typ.FullState && same(d.before(name), is):
			// Told again in a world. Of names nobody knows whether a client that
			// resumes had asked for them before.
		default:
			last = d
		}
	}
	return last != nil && s.awaited(last)
}

// awaited reports whether a response is one that others wait for.
func (s *Session) awaited(d *delivery) bool {
	return s.before(d.sent.Add(silence))
}

// stuck reports whether no answer is to be expected: Envoy withholds the ACK
// while any cluster warms, and one has no assignment to give.
func (u *subscription) stuck() bool {
	return slices.ContainsFunc(u.deliveries, func(d delivery) bool { return d.stuck > 0 && !d.superseded })
}

// overdue reports whether a name of u has waited long enough for a client that
// does not answer first. When that is moves with each answer, so the Deadline is of all
// that ask (waitEnds).
func (s *Session) overdue(u, first *subscription, name string) bool {
	s.patient = true
	return first.unacked && !s.now.Before(first.waitsUntil(s.waitsSince(u, name)))
}
