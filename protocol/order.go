package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// "LDS updates must arrive after corresponding CDS/EDS updates. RDS updates related to the newly
// added listeners must arrive after CDS/EDS/LDS updates." (ADS-2, ADS-6)
//
// Envoy ACKs a CDS response when all clusters in it are warm, and a cluster becomes warm only with
// its EDS assignment. So EDS waits for no other type (ADS-7). Resources that refer to a cluster
// wait for the ACK of that CDS response. Terms: see doc.go.

// A condition is the answer to a question of which time may change the answer. The zero value: the
// condition does not hold.
type condition struct {
	holds   bool // if not set, the other fields are zero
	why     delay.Reason
	until   time.Time // the condition may end at this time; zero: no time ends it
	patient bool      // the condition may also end when the client is silent for too long (see canWait)
}

// and returns the condition that a and b hold. It ends with the first of the two.
func (a condition) and(b condition) condition {
	if !a.holds || !b.holds {
		return condition{}
	}
	a.until, a.patient = sooner(a.until, b.until), a.patient || b.patient
	return a
}

// or returns the condition that a or b holds. It ends with the last of the two.
func (a condition) or(b condition) condition {
	patient := a.patient || b.patient
	if b.end().After(a.end()) {
		a = b
	}
	a.patient = patient
	return a
}

// end returns the time until which a condition holds. It is for comparisons: never is the last time.
func (a condition) end() time.Time {
	if a.holds && a.until.IsZero() {
		return never
	}
	return a.until
}

var never = time.Unix(1<<40, 0)

// because is the condition that no time ends.
func because(why delay.Reason) condition { return condition{holds: true, why: why} }

// within is the condition that the limit of a reason, counted from the time since, has not passed.
func (s *Session) within(why delay.Reason, since time.Time) condition {
	until := since.Add(why.Limit(s.opts.Grace))
	if !s.now.Before(until) {
		return condition{}
	}
	return condition{holds: true, why: why, until: until}
}

// ordered reports whether resources of u may have to wait for another type.
func (s *Session) ordered(u *subscription) bool {
	if u.ordersItself() {
		return true // mustWait looks at references first
	}
	if !s.ordersTypes() {
		return false
	}
	first := s.other(u.typ.After)
	if first == nil {
		return s.opensLater(u.typ.After).holds
	}
	return len(first.deliveries)+len(first.refusals)+len(first.fresh) > 0 || first.pending(s.table(first.typ))
}

// opensLater is the condition that a client may have clusters and open their type t, CDS, only later: it
// resumes, or its stream of the type has just ended. While clusters of an earlier stream are warming, Envoy 1.40
// opens CDS on an aggregated stream up to 15 s late, and all other types at once. It opens streams of single types
// after a random pause.
func (s *Session) opensLater(t *xds.Type) (is condition) {
	switch {
	case s.resumes && s.only == nil:
		is = s.within(delay.UnopenedClusters, s.began)
	case s.resumes:
		is = s.within(delay.Unopened, s.began)
	}
	return is.or(s.opensAgain(t))
}

// mustWait is the condition that the client may lack a cluster, or a member, to which r refers, so that
// r must wait (ADS-2, ADS-6, ADS-10). The result of mayAnyCome is stored in any for the other resources of a diff.
func (s *Session) mustWait(u *subscription, any *anyComing, r *xds.Resource) condition {
	if u.ordersItself() {
		return s.mustWaitInside(u, r)
	}
	first := s.other(u.typ.After)
	if first == nil {
		if r.Refs == nil || slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(u.typ.After) }) {
			return s.opensLater(u.typ.After)
		}
		return condition{}
	}
	if r.Refs == nil {
		return s.mustWaitForAny(u, first, any, r.Name)
	}
	for _, ref := range r.Refs {
		if !ref.Type.Is(first.typ) {
			continue
		}
		if is := s.mustWaitFor(u, first, any, ref.Name, r.Name); is.holds {
			return is
		}
	}
	return condition{}
}

// mustWaitFor is the condition that the resource waiter of u must wait for the clusters of one of
// its references: a name, an alias, or "*".
func (s *Session) mustWaitFor(u, first *subscription, any *anyComing, ref, waiter string) condition {
	if ref == xds.Wildcard {
		return s.mustWaitForAny(u, first, any, waiter)
	}
	t := s.table(first.typ)
	alias := s.variant == xds.Delta && t.Lookup(ref) == nil && t.Aliased(ref).Len() > 0
	if !alias {
		return s.mayLackWithMembers(u, first, t, ref, waiter)
	}
	for c := range t.Aliased(ref).All() {
		if is := s.mayLackWithMembers(u, first, t, c.Name, waiter); is.holds {
			return is
		}
	}
	return condition{}
}

// mustWaitForAny is the condition that the resource waiter of u, which may refer to any cluster,
// must wait.
func (s *Session) mustWaitForAny(u, first *subscription, any *anyComing, waiter string) condition {
	if !any.known {
		*any = anyComing{known: true, condition: s.mayAnyCome(first)}
	}
	if !any.holds {
		return condition{}
	}
	return any.and(s.canWait(u, first, waiter))
}

// lacks returns the references of r that keep r waiting, for state reports.
func (s *Session) lacks(u *subscription, r *xds.Resource) (refs []xds.Ref) {
	if r.Refs == nil && s.mustWait(u, &anyComing{}, r).holds {
		return []xds.Ref{{Type: u.first(), Name: xds.Wildcard}}
	}
	for _, ref := range r.Refs {
		one := &xds.Resource{Stamp: &xds.Stamp{Name: r.Name, Refs: []xds.Ref{ref}}}
		if ref.Type.Is(u.first()) && s.mustWait(u, &anyComing{}, one).holds {
			refs = append(refs, ref)
		}
	}
	return refs
}

// An anyComing is the result of mayAnyCome for one diff.
type anyComing struct {
	known bool
	condition
}

// mayAnyCome is the condition that any cluster is in flight or still to be sent. Resources that may
// refer to any cluster wait for its end.
func (s *Session) mayAnyCome(first *subscription) condition {
	t := s.table(first.typ)
	switch {
	case s.owesAny(first, t), first.waiting.len() > 0:
		return because(delay.Unsent)
	case first.stuck(): // no ACK of the clusters is expected, so only existing assignments matter
		return s.anyCold(first, t)
	case !first.unacked:
		return s.anyWarming(first, t)
	}
	for d := range first.underWay() {
		if first.brings(d) {
			if is := s.awaited(d); is.holds {
				return is
			}
		}
	}
	return s.anyWarming(first, t)
}

// brings reports whether a delivery has any state that the client may not hold yet. A delivery that
// only repeats what the client was told has none.
func (u *subscription) brings(d *delivery) bool {
	if !u.wildcard || !u.typ.FullState {
		return true
	}
	for name, it := range d.Each {
		if !same(it.Was, it.Is) || u.refusedNew(name) {
			return true
		}
	}
	return false
}

// anyCold is the condition that any cluster in flight is new to the client and has assignments that
// the client has not acknowledged.
func (s *Session) anyCold(first *subscription, t *xds.Table) condition {
	for d := range first.underWay() {
		awaited := s.awaited(d)
		if !awaited.holds {
			continue
		}
		for name, it := range d.Each {
			c, added := t.Lookup(name), !stands(it.Was) && stands(it.Is)
			if !added || !first.covers(name) || !first.shows(c) {
				continue
			}
			if cold, _ := s.cold(first, c); cold.holds {
				return awaited.and(cold)
			}
		}
	}
	return condition{}
}

// mayLack is the condition that the resource waiter of u must wait for a cluster, because the
// client may lack it.
func (s *Session) mayLack(u, first *subscription, t *xds.Table, name, waiter string) condition {
	if !first.covers(name) {
		return condition{}
	}
	c := t.Lookup(name)
	shown := first.shows(c)
	comes := shown && first.Kept(name) == nil // a leaving cluster is as good as lost: no subscription matches it
	told := first.told(name)
	var is condition
	switch {
	case comes && told == absent:
		return because(delay.Unsent) // see delay.Behind
	case comes && differs(told, c):
		is = because(delay.Unsent).and(s.canWait(u, first, waiter))
	case !first.stuck():
		if flies := s.flies(first, name, false); flies.holds {
			is = flies.and(s.canWait(u, first, waiter))
		}
	}
	if is.holds || !shown || !first.wildcard {
		return is
	}
	return s.doubtful(u, first, waiter, c)
}

// doubtful is the condition that the resource waiter of u must wait, because the client may lack
// cluster c although c was sent. That is so if the client has refused the response with c, or if no
// ACK of this response is expected. Then the assignment of c decides: a client that has the cluster
// subscribes to the assignment and acknowledges it.
func (s *Session) doubtful(u, first *subscription, waiter string, c *xds.Resource) condition {
	switch {
	case first.refusedNew(c.Name):
		if !stands(u.told(waiter)) {
			return condition{} // the client has no earlier state of the waiter that it could go on using
		}
		if r := s.table(u.typ).Lookup(waiter); r != nil && u.hasRefused(waiter, r.Stamp) && !first.retrying(c.Name) {
			return condition{} // a retry, and no answer about c is expected
		}
		cold, exists := s.cold(first, c)
		if !exists {
			return s.within(delay.Unassigned, s.waitsSince(u, waiter))
		}
		return because(delay.Refused).and(cold).and(s.canWait(u, first, waiter))
	case first.stuck():
		flies := s.flies(first, c.Name, true)
		if !flies.holds {
			return condition{}
		}
		cold, _ := s.cold(first, c)
		return flies.and(cold).and(s.canWait(u, first, waiter))
	}
	return s.isWarming(first, c)
}

// cold is the condition that the client has not acknowledged all assignments of cluster c since c
// was sent (warm). The result exists reports whether c has assignments to acknowledge. An
// assignment that the view is still looking for counts.
func (s *Session) cold(first *subscription, c *xds.Resource) (is condition, exists bool) {
	eds := first.typ.Warms
	if eds == nil || s.other(eds) == nil {
		return condition{}, false
	}
	t := s.table(eds)
	for _, ref := range c.Refs {
		switch {
		case !ref.Type.Is(eds):
			continue
		case t.Lookup(ref.Name) == nil && !s.lingersAt(eds, ref.Name):
			if s.undecided(eds, ref.Name) {
				return because(delay.Undecided), true
			}
			continue
		}
		exists = true
		if is := s.lacksAddresses(eds, ref.Name); is.holds {
			return is, true
		}
	}
	return condition{}, exists
}

// lacksAddresses is the condition that the client has not acknowledged an assignment. If it subscribes to the
// assignment on several streams, the ACK on one of them suffices.
func (s *Session) lacksAddresses(t *xds.Type, name string) condition {
	is := because(delay.Unsent)
	for eds := range s.subscribers(t, name) {
		if !eds.toldWanted(name) {
			continue
		}
		flies := s.flies(eds, name, true)
		if !flies.holds {
			return condition{}
		}
		is = flies.and(is)
	}
	return is
}

// lingersAt reports whether the client keeps a name of a type that the view has lost.
func (s *Session) lingersAt(t *xds.Type, name string) bool {
	for u := range s.clientOf(t) {
		if u.Lingers(name) != nil {
			return true
		}
	}
	return false
}

// toldWanted reports whether the client wants a name, and was told a resource of this name since it
// subscribed.
func (u *subscription) toldWanted(name string) bool {
	e := u.Entry(name)
	return e != nil && u.wants(e) && !e.Again && known(e.Told)
}

// flies is the condition that a response in flight, for whose answer other names still wait, has a
// name. With novel set, only a response that adds the name counts.
func (s *Session) flies(u *subscription, name string, novel bool) condition {
	var last *delivery
	for d := range u.underWay() {
		is := d.Carries(name)
		switch {
		case is == nil, novel && stands(d.Had(name)):
		case !novel && u.wildcard && u.typ.FullState && same(d.Before(name), is):
			// A full state repeats a state that the client was told. A subscription by name is
			// different: a resuming client may not have subscribed to the name before.
		default:
			last = d
		}
	}
	if last == nil {
		return condition{}
	}
	return s.awaited(last)
}

// awaited is the condition that other names still wait for the answer to a response.
func (s *Session) awaited(d *delivery) condition { return s.within(delay.Unanswered, d.sent) }

// canWait is the condition that a name of u can wait longer for answers of the type first. Each
// answer of this type moves the end of the wait, so the session computes one Deadline for all
// waiting names (waitEnds).
func (s *Session) canWait(u, first *subscription, name string) condition {
	if first.unacked && !s.now.Before(first.silentUntil(delay.Unanswered, s.waitsSince(u, name))) {
		return condition{}
	}
	return condition{holds: true, why: delay.Unanswered, patient: true}
}
