package protocol

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// Some types have a parent type: a VHDS name is "route/host", and its parent type is the route. On
// an aggregated stream, a wildcard of such a type covers only the routes that the stream subscribes
// to (OND-4). For each of these routes the wildcard has a scope: the collection "route/*". The
// client did not subscribe to the scope, so it cannot unsubscribe from the scope alone. If the
// client also subscribes to the same collection, it keeps the resources when the scope ends.

// narrow replaces a wildcard by scopes if the stream subscribes to names of the parent type
// (OND-4). Names outside the scopes are removed from the client. Names inside the scopes are sent
// again if the wildcard subscription is new.
func (s *Session) narrow(u *subscription) {
	if u.typ.Parent == nil || s.variant == xds.SotW || s.only != nil || !u.wildcard {
		return
	}
	over := s.sub(u.typ.Parent)
	if over == nil || over.wildcard {
		return
	}
	for d := range u.underWay() {
		d.lapse()
	}
	var extra []entry
	for st := range u.base.All() { // names told by way of the wildcard, or listed by the client in initial_resource_versions
		if u.Entry(st.Name) == nil {
			extra = append(extra, entry{Name: st.Name, Told: st})
		}
	}
	anew := u.Anew
	u.wildcard, u.moved = false, true
	u.Renew(false)
	u.rebase(nil)
	u.NoteAll()
	u.quit = append(u.quit, u.remembered()...)
	u.add(extra...)
	for e := range u.Entries() {
		u.lapse(e)
		if !u.wants(e) {
			u.TouchAll()
		}
	}
	u.scopes = map[string]bool{}
	t := s.table(u.typ)
	for _, n := range over.Subscribed() {
		u.enterScope(t, n+"/*", anew)
	}
}

// widen replaces the scopes by a wildcard that covers everything again.
func (s *Session) widen(u *subscription) {
	u.leaveScopes(false)
	// The client made no request for this type, so only resources that the client lacks are sent.
	u.wildcard, u.moved = true, true
	u.rebase(nil)
	u.dropLeftovers()
	u.NoteAll()
}

// scope updates the scopes of all types whose parent is the type of the subscription `over`. Call
// it after `over` has changed.
func (s *Session) scope(over *subscription) {
	toggled := over.toggled
	over.toggled = nil
	for _, u := range s.subs {
		if !over.typ.Is(u.typ.Parent) || s.variant == xds.SotW {
			continue
		}
		if over.wildcard && u.scopes != nil {
			s.widen(u)
		}
		if u.scopes == nil {
			s.narrow(u)
			continue
		}
		t := s.table(u.typ)
		for _, n := range toggled {
			c := n + "/*"
			switch named := over.isNamed(n); {
			case named && !u.scopes[c]:
				u.enterScope(t, c, true)
			case !named && u.scopes[c]:
				delete(u.scopes, c)
				u.leaveScope(c, false)
			}
		}
	}
}

// enterScope adds the scope c. With anew set, all resources in the scope are sent again, otherwise
// only the resources that the client lacks.
func (u *subscription) enterScope(t *xds.Table, c string, anew bool) {
	e := u.row(c)
	was := u.wants(e)
	u.scopes[c] = true
	u.notice(e, was)
	if anew { // otherwise the client made no request for this type
		u.ask(true)
	}
	e.Repeat(anew || t.Aliased(c).Len() == 0)
	u.Touch(e)
	u.match(t, c)
}

// leaveScopes ends all scopes (see leaveScope).
func (u *subscription) leaveScopes(asked bool) {
	scopes := slices.Sorted(maps.Keys(u.scopes))
	u.scopes = nil
	for _, c := range scopes {
		u.leaveScope(c, asked)
	}
}

// leaveScope ends the scope c. The resources of the scope are removed from the client, unless the
// client dropped the wildcard itself (asked).
func (u *subscription) leaveScope(c string, asked bool) {
	e := u.Entry(c)
	u.notice(e, true)
	if e.Named {
		return // the client also subscribes to the collection c
	}
	u.unmatch(c, asked)
}

// tellEmpty adds every empty collection to the first response to a wildcard subscription on a
// per-type stream (OND-4). Envoy 1.40 waits 15 s for the collection of its own route, and the
// server cannot know from the stream which route that is.
func (s *Session) tellEmpty(u *subscription) {
	if u.typ.Parent == nil || s.variant == xds.SotW || s.only == nil || !u.wildcard {
		return
	}
	var extra []entry
	for r := range s.table(u.typ.Parent).All() {
		if c := r.Name + "/*"; s.table(u.typ).Aliased(c) == nil && u.Entry(c) == nil {
			extra = append(extra, entry{Name: c, Told: absent, Again: true})
		}
	}
	u.addTouched(extra)
}
