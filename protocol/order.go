package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// "LDS updates must arrive after corresponding CDS/EDS updates. RDS updates related to the newly
// added listeners must arrive after CDS/EDS/LDS updates." (ADS-2, ADS-6)
//
// Envoy ACKs a CDS response when all clusters in it are warm, and a cluster becomes warm only with
// its EDS assignment. So EDS waits for no other type (ADS-7). Resources that refer to a cluster
// wait for the ACK of that CDS response. Terms: see doc.go.

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

// opensLater reports whether a resuming client may have clusters and open CDS only later. While
// clusters of an earlier stream are warming, Envoy 1.40 opens CDS up to 15 s late, and all other
// types at once.
func (s *Session) opensLater() bool { return s.resumes && s.before(s.began.Add(silence)) }

// before reports whether the time t is still in the future, and records the earliest such time in
// turns. So each rule that waits for a time also sets the Deadline of its wait.
func (s *Session) before(t time.Time) bool {
	if !s.now.Before(t) {
		return false
	}
	if s.turns.IsZero() || t.Before(s.turns) {
		s.turns = t
	}
	return true
}

// readyOr reports whether r may be sent. If not, it also returns the name with the limits of its
// wait.
func (s *Session) readyOr(u *subscription, any *anyReady, r *xds.Resource) (bool, waiter) {
	s.turns, s.patient = time.Time{}, false
	if s.ready(u, any, r) {
		return true, waiter{}
	}
	return false, waiter{r.Name, s.turns, s.patient}
}

// ready reports whether r may be sent, because the client has all clusters to which r refers. It
// stores the limits of the wait in turns and patient, so call it through readyOr.
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
			for c := range t.Aliased(ref.Name).All() { // the reference is an alias of these clusters
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

// lacks returns the references of r that keep r waiting. It is for state reports and changes
// nothing.
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

// An anyReady is the result of readyForAny for one diff, and the time at which the result may
// change.
type anyReady struct {
	known, is bool
	turns     time.Time
}

// readyForAny reports whether a resource that may refer to any cluster can be sent. That is so if
// no cluster is in flight or still to be sent.
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
	case first.stuck(): // no ACK of the clusters is expected, so only existing assignments matter
		return !s.cold(first, t)
	}
	for d := range first.underWay() {
		if first.unacked && first.brings(d) && s.awaited(d) {
			return false
		}
	}
	return true
}

// owes reports whether something is to be sent for the type. Names that the view is still looking
// for do not count, because the view may never find them.
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

// brings reports whether a delivery has any state that the client may not hold yet. A delivery that
// only repeats what the client was told has none.
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

// cold reports whether any cluster in flight is new to the client and has assignments that the
// client has not acknowledged.
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

// has reports whether the client has the cluster with a name, or need not be waited for any longer.
// Then the resource of u with the name waiter may be sent.
func (s *Session) has(u, first *subscription, t *xds.Table, name, waiter string) bool {
	is := t.Lookup(name)
	comes := first.shows(is) && first.leaving[name] == nil // a leaving cluster is as good as lost: no subscription matches it
	switch {
	case comes && first.told(name) == absent:
		return false // the cluster is sent after at most the duration patience
	case comes && differs(first.told(name), is), !first.stuck() && s.flies(first, name, false):
		if !s.overdue(u, first, waiter) {
			return false
		}
	}
	return !first.shows(is) || !first.wildcard || !s.doubtful(u, first, waiter, is)
}

// doubtful reports whether the resource waiter of u must wait, because the client may lack cluster
// c although c was sent. That is so if the client has refused the response with c, or if no ACK of
// this response is expected. Then the assignment of c decides: a client that has the cluster
// subscribes to the assignment and acknowledges it.
func (s *Session) doubtful(u, first *subscription, waiter string, c *xds.Resource) bool {
	switch {
	case first.refusedNew(c.Name):
		if !stands(u.told(waiter)) {
			return false // the client has no earlier state of the waiter that it could go on using
		}
		if r := s.table(u.typ).Lookup(waiter); r != nil && u.hasRefused(waiter, r.Stamp) && !first.retrying(c.Name) {
			return false // a retry, and no answer about c is expected
		}
		warm, told := s.warmed(first, c)
		return !warm && (told && !s.overdue(u, first, waiter) || s.before(s.waitsSince(u, waiter).Add(silence)))
	case first.stuck() && s.flies(first, c.Name, true):
		warm, told := s.warmed(first, c)
		return !warm && told && !s.overdue(u, first, waiter)
	}
	return false
}

// warmed reports whether the client has acknowledged the assignments of cluster c since c was sent
// (warm). The result told reports whether c has assignments to acknowledge. An assignment that the
// view is still looking for counts.
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

// flies reports whether a response in flight, for whose answer other names still wait, has a name.
// With novel set, only a response that adds the name counts.
func (s *Session) flies(u *subscription, name string, novel bool) bool {
	var last *delivery
	for d := range u.underWay() {
		is := d.carries(name)
		switch {
		case is == nil, novel && stands(d.had(name)):
		case !novel && u.wildcard && u.typ.FullState && same(d.before(name), is):
			// A full state repeats a state that the client was told. A subscription by name is
			// different: a resuming client may not have subscribed to the name before.
		default:
			last = d
		}
	}
	return last != nil && s.awaited(last)
}

// awaited reports whether other names still wait for the answer to a response: it was sent less
// than the duration silence ago.
func (s *Session) awaited(d *delivery) bool {
	return s.before(d.sent.Add(silence))
}

// stuck reports whether no ACK is expected for a response in flight. Envoy withholds the ACK while
// any of the clusters is warming, and one of the clusters has no assignment (ADS-6).
func (u *subscription) stuck() bool {
	return slices.ContainsFunc(u.deliveries, func(d delivery) bool { return d.stuck > 0 && !d.superseded })
}

// overdue reports whether a name of u has waited long enough for answers of the type first. Each
// answer of this type moves the end of the wait, so the session computes one Deadline for all
// waiting names (waitEnds).
func (s *Session) overdue(u, first *subscription, name string) bool {
	s.patient = true
	return first.unacked && !s.now.Before(first.waitsUntil(s.waitsSince(u, name)))
}
