package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// "LDS updates must arrive after corresponding CDS/EDS updates. RDS updates related to the newly
// added listeners must arrive after CDS/EDS/LDS updates." (ADS-2, ADS-6)
//
// Envoy ACKs a CDS response when its clusters are warm, which needs EDS. So EDS waits for nothing
// (ADS-7), and resources that refer to a cluster wait for that ACK.

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

// opensLater reports whether a resuming client may have clusters and still open CDS. Seen with
// Envoy 1.40: it opens CDS up to 15 s late while an earlier CDS response is warming, and all other
// types at once.
func (s *Session) opensLater() bool { return s.resumes && s.before(s.began.Add(silence)) }

// before reports whether a time is still to come, and notes the earliest such time in turns. So
// each rule that waits for a time also sets the Deadline of its wait.
func (s *Session) before(t time.Time) bool {
	if !s.now.Before(t) {
		return false
	}
	if s.turns.IsZero() || t.Before(s.turns) {
		s.turns = t
	}
	return true
}

// readyOr reports whether r may be sent. If not, it returns the wait: the name, and until when.
func (s *Session) readyOr(u *subscription, any *anyReady, r *xds.Resource) (bool, waiter) {
	s.turns, s.patient = time.Time{}, false
	if s.ready(u, any, r) {
		return true, waiter{}
	}
	return false, waiter{r.Name, s.turns, s.patient}
}

// ready reports whether r may be sent: the client has all clusters that r refers to. Its time
// limits go to turns and patient, so call it through readyOr.
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
			for c := range t.Aliased(ref.Name).All() { // the reference is an alias
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

// lacks returns the references of r that the client has to answer for before r is sent. It is for
// state reports and changes nothing.
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

// An anyReady is the result of readyForAny for one diff, and the time at which it may change.
type anyReady struct {
	known, is bool
	turns     time.Time
}

// readyForAny reports whether a resource that may refer to any cluster can be sent: no cluster is
// in flight or to be sent.
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
	case first.stuck(): // only the assignments that exist will be answered
		return !s.cold(first, t)
	}
	for d := range first.underWay() {
		if first.unacked && first.brings(d) && s.awaited(d) {
			return false
		}
	}
	return true
}

// owes reports whether something is to be sent for the type. Names that the view is looking for do
// not count: they may stay listed for ever.
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

// brings reports whether a delivery has anything that the client may not hold. It has not if all
// was told before and is only sent again.
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

// cold reports whether a cluster in flight is new to the client, and the client has not
// acknowledged its assignments.
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

// has reports whether the client has the cluster with a name, so that waiter of u may be sent.
func (s *Session) has(u, first *subscription, t *xds.Table, name, waiter string) bool {
	is := t.Lookup(name)
	comes := first.shows(is) && first.leaving[name] == nil // otherwise no subscribed name matches it
	switch {
	case comes && first.told(name) == absent:
		return false // it is sent within the patience of its type
	case comes && differs(first.told(name), is), !first.stuck() && s.flies(first, name, false):
		if !s.overdue(u, first, waiter) {
			return false
		}
	}
	return !first.shows(is) || !first.wildcard || !s.doubtful(u, first, waiter, is)
}

// doubtful reports whether waiter of u must wait because the client may lack cluster c, which it
// was sent: it has refused the response, or its ACK is not expected. The assignment decides: a
// client subscribes to it and acknowledges it when it has the cluster.
func (s *Session) doubtful(u, first *subscription, waiter string, c *xds.Resource) bool {
	switch {
	case first.refusedNew(c.Name):
		if !stands(u.told(waiter)) {
			return false // the client has no earlier state to go on with
		}
		warm, told := s.warmed(first, c)
		return !warm && (told && !s.overdue(u, first, waiter) || s.before(s.waitsSince(u, waiter).Add(silence)))
	case first.stuck() && s.flies(first, c.Name, true):
		warm, told := s.warmed(first, c)
		return !warm && told && !s.overdue(u, first, waiter)
	}
	return false
}

// warmed reports whether the client has acknowledged the assignments of a cluster since it was sent
// the cluster. told reports whether there are assignments to acknowledge; one that the view is
// looking for counts.
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

// flies reports whether a response that others still wait for has a name. With novel set, only a
// response that adds the name counts.
func (s *Session) flies(u *subscription, name string, novel bool) bool {
	var last *delivery
	for d := range u.underWay() {
		is := d.carries(name)
		switch {
		case is == nil, novel && stands(d.had(name)):
		case !novel && u.wildcard && u.typ.FullState && same(d.before(name), is):
			// Sent again in a full state. For a subscription by name this does not hold: a resuming
			// client may not have subscribed to the name before.
		default:
			last = d
		}
	}
	return last != nil && s.awaited(last)
}

// awaited reports whether others still wait for the answer to a response.
func (s *Session) awaited(d *delivery) bool {
	return s.before(d.sent.Add(silence))
}

// stuck reports whether no ACK is expected: Envoy withholds it while any cluster warms, and one of
// them has no assignment (ADS-6).
func (u *subscription) stuck() bool {
	return slices.ContainsFunc(u.deliveries, func(d delivery) bool { return d.stuck > 0 && !d.superseded })
}

// overdue reports whether a name of u has waited long enough for a client that does not answer
// first. Each answer moves that time, so it is a Deadline of all that wait (waitEnds).
func (s *Session) overdue(u, first *subscription, name string) bool {
	s.patient = true
	return first.unacked && !s.now.Before(first.waitsUntil(s.waitsSince(u, name)))
}
