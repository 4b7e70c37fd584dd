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
	return first != nil && (len(first.flights) > 0 || first.refuses() || first.pending(s.table(first.typ)))
}

// waits reports whether r must not be sent before the client has answered for
// the clusters it refers to.
func (s *Session) waits(u *subscription, r *xds.Resource) bool {
	first := s.sub(u.typ.After)
	t := s.table(first.typ)
	overdue := s.overdue(u, first, r.Name)
	if r.Refs == nil {
		return !overdue && (first.pending(t) || first.open && !first.stuck() && s.fresh(&first.flights[len(first.flights)-1]))
	}
	for _, ref := range r.Refs {
		if !ref.Type.Is(first.typ) || !first.covers(ref.Name) {
			continue
		}
		if first.shows(t.Lookup(ref.Name)) && first.told(ref.Name) == absent {
			return true // it leaves within the patience of its type
		}
		if !overdue && s.unanswered(first, t, ref.Name) {
			return true
		}
		if s.doubts(u, first, r.Name, t.Lookup(ref.Name)) {
			return true
		}
	}
	return false
}

// doubts reports whether name of u must wait because it is doubtful that the
// client has the cluster c that it was sent: it has refused the response, or its
// answer is not to be expected. The assignment tells: a client asks for it, and
// acknowledges it, when it has the cluster.
func (s *Session) doubts(u, first *subscription, name string, c *xds.Resource) bool {
	if c == nil || !first.wildcard {
		return false
	}
	since, waits := u.waiting[name]
	switch {
	case first.refusedNew(c.Name):
		if !real(u.told(name)) {
			return false // it has nothing that would go on meanwhile
		}
		has, told := s.supplied(first, c)
		return !has && (told || !waits || s.now.Before(since.Add(silence)))
	case first.stuck() && s.flies(first, c.Name):
		has, told := s.supplied(first, c)
		return !has && told && !s.overdue(u, first, name)
	}
	return false
}

// supplied reports whether the client has acknowledged the assignments of a
// cluster since it was sent that cluster, and whether these tell anything.
func (s *Session) supplied(first *subscription, c *xds.Resource) (has, told bool) {
	if first.typ.Warms == nil || s.sub(first.typ.Warms) == nil {
		return false, false
	}
	eds, t := s.sub(first.typ.Warms), s.table(first.typ.Warms)
	for _, ref := range c.Refs {
		if !ref.Type.Is(eds.typ) || eds.current(t, ref.Name) == nil {
			continue
		}
		told = true
		e := eds.entry(ref.Name)
		if e == nil || !eds.wants(e) || e.again || !real(e.told) || s.flies(eds, ref.Name) {
			return false, true
		}
	}
	return told, told
}

// flies reports whether a response that others wait for carries something new.
func (s *Session) flies(u *subscription, name string) bool {
	return slices.ContainsFunc(u.flights, func(f flight) bool { return s.fresh(&f) && f.carries(name) != nil && f.from.Get(name) == nil })
}

// refusedNew reports whether the client has refused a response that brought the
// name for the first time.
func (u *subscription) refusedNew(name string) bool {
	fresh := func(g group) bool { return g.has(name) && g.from.Get(name) == nil }
	return slices.ContainsFunc(u.refused, fresh) || slices.ContainsFunc(u.spurned, fresh)
}

// stuck reports whether no answer is to be expected: Envoy withholds the ACK
// while any cluster warms, and one has no assignment to give.
func (u *subscription) stuck() bool {
	return slices.ContainsFunc(u.flights, func(f flight) bool { return f.stuck && !f.passed })
}

// overdue reports whether a name of u has waited long enough for a client that
// does not answer first.
func (s *Session) overdue(u, first *subscription, name string) bool {
	since, ok := u.waiting[name]
	return ok && first.open && !s.now.Before(first.until(since))
}

// wait notes which names of u wait, and since when.
func (s *Session) wait(u *subscription, names []string) {
	was := u.waiting
	u.waiting = nil
	for _, n := range names {
		if u.waiting == nil {
			u.waiting = map[string]time.Time{}
		}
		since, ok := was[n]
		if !ok {
			since = s.now
		}
		u.waiting[n] = since
	}
	if first := s.sub(u.typ.After); first != nil {
		for n := range was {
			if _, still := u.waiting[n]; !still && !s.now.Before(first.until(was[n])) && first.open {
				s.event(Event{Kind: Waived, Type: u.typ, By: first.typ, Name: n})
			}
		}
	}
}

// unanswered reports whether the client has yet to be told of name, or to
// answer for it.
func (s *Session) unanswered(u *subscription, t *xds.Table, name string) bool {
	if r := t.Lookup(name); u.shows(r) && differs(u.told(name), r) {
		return true
	}
	if u.stuck() {
		return false
	}
	for i := range u.flights {
		if s.fresh(&u.flights[i]) && u.flights[i].carries(name) != nil {
			return true
		}
	}
	return false
}

// fresh reports whether a response is one that others wait for.
func (s *Session) fresh(f *flight) bool {
	return !f.passed && f.beats == nil && s.now.Before(f.sent.Add(silence))
}

// warm sees to it that the client gets the assignments of the clusters it is
// sent, changed or not: "Warming of Cluster is completed only when a new
// ClusterLoadAssignment response is supplied by management server even if
// there is no change in endpoints." It reports whether one does not exist.
func (s *Session) warm(u *subscription, clusters []*xds.Resource, world bool) (stuck bool) {
	if s.only != nil || u.typ.Warms == nil {
		return false
	}
	if world {
		for name, l := range u.leaving {
			if differs(u.told(name), l.Resource) {
				clusters = append(slices.Clip(clusters), l.Resource)
			}
		}
	}
	eds, t, current := s.sub(u.typ.Warms), s.table(u.typ.Warms), s.table(u.typ)
	exists := func(name string) bool {
		return t.Lookup(name) != nil || t.Aliased(name).Len() > 0 || eds != nil && eds.lingers(name) != nil
	}
	for _, c := range clusters {
		leaves := current.Lookup(c.Name) == nil // then nothing that is sent now refers to it
		for _, ref := range c.Refs {
			if !ref.Type.Is(u.typ.Warms) {
				continue
			}
			stuck = stuck || !leaves && !exists(ref.Name)
			if eds == nil || s.variant == xds.SotW && !exists(ref.Name) {
				continue // there is nothing to repeat
			}
			eds.repeat(ref.Name)
		}
	}
	return stuck
}

// warming makes a client that opens EDS while clusters are on their way get
// their assignments, even those it states to have.
func (s *Session) warming(u *subscription) {
	if s.only != nil {
		return
	}
	for _, cds := range s.subs {
		if !u.typ.Is(cds.typ.Warms) {
			continue
		}
		t := s.table(cds.typ)
		for i := range cds.flights {
			for name := range cds.flights[i].all {
				r := t.Lookup(name)
				if r == nil {
					continue
				}
				for _, ref := range r.Refs {
					if ref.Type.Is(u.typ) {
						u.repeat(ref.Name)
					}
				}
			}
		}
	}
}

// undecided reports whether the view is still looking for a name.
func (s *Session) undecided(t *xds.Type, name string) bool {
	v, ok := s.view.(xds.Undecided)
	return ok && v.Undecided(t, name)
}

// searching reports whether the view is still looking for a subscribed name.
func (s *Session) searching(u *subscription) bool {
	if _, ok := s.view.(xds.Undecided); !ok {
		return false
	}
	return slices.ContainsFunc(u.entries, func(e entry) bool { return e.named && s.undecided(u.typ, e.name) })
}

// bodyless reports whether the client is to be told of a name that does not
// exist by a Resource without body.
func (s *Session) bodyless(u *subscription) bool {
	return s.variant == xds.Delta && (s.opts.Bodyless || slices.Contains(u.typ.Bodyless, s.agent))
}

// mutes reports whether the absence of a name is to be kept from the client
// for now.
func (s *Session) mutes(u *subscription, e *entry) bool {
	return !e.sent && s.now.Before(u.muteUntil)
}

// muteFor is how long this client must not be told of absences of the type.
func (s *Session) muteFor(t *xds.Type) time.Duration {
	if s.variant == xds.SotW {
		return 0
	}
	return t.Mute[s.agent]
}
