package protocol

import "github.com/chancery-xds/chancery/xds"

// warm sees to it that the client gets the assignments of the clusters it is
// sent, changed or not: "Warming of Cluster is completed only when a new
// ClusterLoadAssignment response is supplied by management server even if
// there is no change in endpoints." It reports whether one does not exist.
func (s *Session) warm(u *subscription, clusters []*xds.Resource, world bool) (stuck bool) {
	if s.only != nil || u.typ.Warms == nil {
		return false
	}
	for _, c := range clusters {
		// To what leaves nothing refers that is sent now.
		if lacks := s.warmOne(u, c); lacks && u.leaving[c.Name] == nil {
			stuck = true
		}
	}
	return world && s.warmWorld(u) || stuck
}

// warmOne tells the assignments of a cluster again, and reports whether one does not
// exist.
func (s *Session) warmOne(u *subscription, c *xds.Resource) (lacks bool) {
	eds, t := s.sub(u.typ.Warms), s.table(u.typ.Warms)
	for _, ref := range c.Refs {
		if !ref.Type.Is(u.typ.Warms) || ref.Name == xds.Wildcard {
			continue
		}
		exists := t.Lookup(ref.Name) != nil || t.Aliased(ref.Name).Len() > 0 || eds != nil && eds.lingers(ref.Name) != nil
		lacks = lacks || !exists
		if eds != nil && (exists || s.variant == xds.Delta) { // else there is nothing to repeat
			eds.refresh(t, ref.Name)
		}
	}
	return lacks
}

// warmWorld does so for what else is news to the client in a world.
func (s *Session) warmWorld(u *subscription) (stuck bool) {
	t := s.table(u.typ)
	// It may refuse what it did not answer for yet: then that is news in this world.
	for d := range u.underWay() {
		for name, it := range d.each {
			if c := t.Lookup(name); stands(it.is) && u.shows(c) && u.covers(name) && s.warmOne(u, c) {
				stuck = true
			}
		}
	}
	for r := range u.lingering {
		if e := u.entry(r.Name); u.anew || e.again || differs(e.told, r) {
			s.warmOne(u, r)
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
		for d := range cds.underWay() {
			for _, it := range d.each {
				if !stands(it.is) {
					continue
				}
				for _, ref := range it.is.Refs {
					if ref.Type.Is(u.typ) {
						u.refresh(s.table(u.typ), ref.Name)
					}
				}
			}
		}
	}
}

// refresh repeats what is called so, or what the name finds: endpoints by their
// collection, whether the client asked for that or for them.
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

// repeat makes the server tell a name again, though the client has it.
func (u *subscription) repeat(name string) {
	if l := u.lingers(name); !u.covers(name) || u.matches[name] != nil || l != nil && l.body == nil {
		return
	}
	if u.entry(name) == nil {
		told := u.told(name)
		u.add(entry{name: name, told: told, sent: told != absent})
	}
	e := u.entry(name)
	e.repeat(true)
	u.mark(e)
}
