package protocol

import (
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
	return first != nil && (len(first.flights) > 0 || first.pending(s.table(first.typ)))
}

// waits reports whether r must not be sent before the client has answered for
// the clusters it refers to.
func (s *Session) waits(u *subscription, r *xds.Resource) bool {
	first := s.sub(u.typ.After)
	if s.overdue(u) {
		return false
	}
	for i := range first.flights {
		// Envoy withholds the ACK while any cluster warms: one that has no
		// assignment to give says nothing about the others.
		if first.flights[i].stuck {
			return false
		}
	}
	t := s.table(first.typ)
	if r.Refs == nil {
		return first.open && s.fresh(&first.flights[len(first.flights)-1]) || first.pending(t)
	}
	for _, ref := range r.Refs {
		if ref.Type.Is(first.typ) && s.unanswered(first, t, ref.Name) {
			return true
		}
	}
	return false
}

// overdue reports whether something has waited for another type long enough.
func (s *Session) overdue(u *subscription) bool {
	return !u.waiting.IsZero() && !s.now.Before(u.waiting.Add(silence))
}

// unanswered reports whether the client has yet to be told of name, or to
// answer for it.
func (s *Session) unanswered(u *subscription, t *xds.Table, name string) bool {
	if !u.covers(name) {
		return false
	}
	for i := range u.flights {
		if s.fresh(&u.flights[i]) && u.flights[i].carries(name) != nil {
			return true
		}
	}
	r := u.current(t, name)
	return r != nil && differs(u.told(name), r)
}

// fresh reports whether a response is young enough for others to wait for it.
func (s *Session) fresh(f *flight) bool { return s.now.Before(f.sent.Add(silence)) }

// warm sees to it that the client gets the assignments of the clusters it is
// sent, changed or not: "Warming of Cluster is completed only when a new
// ClusterLoadAssignment response is supplied by management server even if
// there is no change in endpoints." It reports whether one does not exist.
func (s *Session) warm(clusters []*xds.Resource) (stuck bool) {
	if s.only != nil {
		return false
	}
	eds, t := s.sub(xds.Endpoint), s.table(xds.Endpoint)
	for _, c := range clusters {
		for _, ref := range c.Refs {
			if !ref.Type.Is(xds.Endpoint) {
				continue
			}
			stuck = stuck || t.Lookup(ref.Name) == nil
			if eds != nil && eds.covers(ref.Name) {
				eds.touch(func(yield func(string) bool) { yield(ref.Name) })
			}
		}
	}
	return stuck
}

// warming makes a client that opens EDS while clusters are on their way get
// their assignments, even those it states to have.
func (s *Session) warming(u *subscription) {
	cds := s.sub(xds.Cluster)
	if s.only != nil || cds == nil || !u.typ.Is(xds.Endpoint) {
		return
	}
	t := s.table(xds.Cluster)
	for i := range cds.flights {
		for name := range cds.flights[i].all {
			r := t.Lookup(name)
			if r == nil {
				continue
			}
			for _, ref := range r.Refs {
				if ref.Type.Is(u.typ) && u.covers(ref.Name) {
					u.touch(func(yield func(string) bool) { yield(ref.Name) })
				}
			}
		}
	}
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
