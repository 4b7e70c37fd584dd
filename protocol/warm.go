package protocol

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// A warming lists the new clusters of a per-type stream, with the times at which they were sent. On such a
// stream the client ACKs a cluster before the cluster is warm, and opens a stream for its assignment. So what
// refers to the cluster waits for the ACK of the assignment (ADS-11). The
// first response is left out: then the client has no streams for assignments yet.
type warming struct {
	fresh map[string]time.Time
}

// freshen adds the new clusters of a response, and drops those that nothing waits for any more.
func (s *Session) freshen(u *subscription, clusters []*xds.Resource) {
	maps.DeleteFunc(u.fresh, func(_ string, at time.Time) bool { return !s.within(delay.Warming, at).holds })
	if s.siblings == nil || s.other(u.typ.Warms) == nil {
		return
	}
	refers := func(ref xds.Ref) bool { return ref.Type.Is(u.typ.Warms) }
	for _, c := range clusters {
		if u.told(c.Name) != absent || !slices.ContainsFunc(c.Refs, refers) {
			continue
		}
		if u.fresh == nil {
			u.fresh = map[string]time.Time{}
		}
		u.fresh[c.Name] = s.now
	}
}

// isWarming is the condition that a cluster was new on a per-type stream, and that the client has not
// acknowledged its assignments.
func (s *Session) isWarming(first *subscription, c *xds.Resource) condition {
	at, isFresh := first.fresh[c.Name]
	if !isFresh {
		return condition{}
	}
	is, _ := s.cold(first, c)
	return s.within(delay.Warming, at).and(is)
}

// anyWarming is the condition that any cluster is warming.
func (s *Session) anyWarming(first *subscription, t *xds.Table) (is condition) {
	for name := range first.fresh {
		if c := t.Lookup(name); first.shows(c) {
			is = is.or(s.isWarming(first, c))
		}
	}
	return is
}

// warm is called when clusters are being sent. It marks their assignments to be sent again, changed
// or not (WARM-2): "Warming of Cluster is completed only when a new ClusterLoadAssignment response
// is supplied by management server even if there is no change in endpoints." The result stuck
// reports whether any of these assignments does not exist.
func (s *Session) warm(u *subscription, clusters []*xds.Resource, world bool) (stuck bool) {
	if u.typ.Warms == nil {
		return false
	}
	if s.only != nil {
		s.freshen(u, clusters)
		return false
	}
	for _, c := range clusters {
		// The ACK of a kept cluster does not matter: no resource that is sent now refers to the
		// cluster.
		if lacks := s.warmOne(u, c); lacks && u.Kept(c.Name) == nil {
			stuck = true
		}
	}
	return world && s.warmWorld(u) || stuck
}

// warmOne marks the assignments of one cluster to be sent again, and reports whether one does not
// exist.
func (s *Session) warmOne(u *subscription, c *xds.Resource) (lacks bool) {
	eds, t := s.sub(u.typ.Warms), s.table(u.typ.Warms)
	for _, ref := range c.Refs {
		if !ref.Type.Is(u.typ.Warms) || ref.Name == xds.Wildcard {
			continue
		}
		exists := t.Lookup(ref.Name) != nil || t.Aliased(ref.Name).Len() > 0 || eds != nil && eds.Lingers(ref.Name) != nil
		lacks = lacks || !exists
		if eds != nil && (exists || s.variant == xds.Delta) { // in SotW, nothing can be sent for a missing assignment
			eds.refresh(t, ref.Name)
		}
	}
	return lacks
}

// warmWorld calls warmOne for the clusters that a full state repeats and that may be new for the
// client all the same.
func (s *Session) warmWorld(u *subscription) (stuck bool) {
	t := s.table(u.typ)
	substitutes := map[string]*xds.Resource{}
	for _, r := range s.substitutes(u) {
		substitutes[r.Name] = r
		if e := u.Entry(r.Name); u.Anew || e != nil && e.Again {
			s.warmOne(u, r)
		}
	}
	// The client may refuse a response in flight. The clusters in that response are then new in the
	// present full state.
	for d := range u.underWay() {
		for name, it := range d.Each {
			if r := substitutes[name]; r != nil {
				s.warmOne(u, r) // lost assignments are sent when the client asks for them (awaits)
			} else if c := t.Lookup(name); stands(it.Is) && u.shows(c) && u.covers(name) && s.warmOne(u, c) {
				stuck = true
			}
		}
	}
	for r := range u.lingering {
		if e := u.Entry(r.Name); u.Anew || e.Again || differs(e.Told, r) {
			s.warmOne(u, r)
		}
	}
	return stuck
}

// warming is called when the client opens a type, u. If that is EDS and clusters are in flight,
// warming marks their assignments to be sent again, even those that the client states to hold.
func (s *Session) warming(u *subscription) {
	if s.only != nil {
		return
	}
	for _, cds := range s.subs {
		if !u.typ.Is(cds.typ.Warms) {
			continue
		}
		for d := range cds.underWay() {
			for _, it := range d.Each {
				if !stands(it.Is) {
					continue
				}
				for _, ref := range it.Is.Refs {
					if ref.Type.Is(u.typ) {
						u.refresh(s.table(u.typ), ref.Name)
					}
				}
			}
		}
	}
}

// refresh marks the resource with a name, or the resources that the name matches, to be sent again.
// For a collection of endpoints it does not matter whether the client subscribes to the collection
// or to the endpoints.
func (u *subscription) refresh(t *xds.Table, name string) {
	found := t.Aliased(name)
	if t.Lookup(name) != nil || found.Len() == 0 {
		u.repeat(name)
		return
	}
	for r := range found.All() {
		if u.shows(r) {
			u.repeat(r.Name)
		}
	}
}

// repeat marks a name to be sent again, although the client was told its present state.
func (u *subscription) repeat(name string) {
	if l := u.Lingers(name); !u.covers(name) || u.matches[name] != nil || l != nil && l.Body == nil {
		return
	}
	e := u.row(name)
	e.Repeat(true)
	u.Touch(e)
}
