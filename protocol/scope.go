package protocol

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// A wildcard of a type that comes under another ("route/host") covers, on an
// aggregated stream, what is under the names that the stream subscribes to of
// that type: a collection for each. These are scopes, which are no
// subscriptions of the client: it cannot drop one of them, nor does it keep one
// by asking for the same collection.

// narrow makes a wildcard one of scopes, if the stream subscribes to names of the
// type above it. What it was told and they do not cover it is told to be gone; what
// they cover it is told again if it has just asked for everything.
func (s *Session) narrow(u *subscription) {
	if u.typ.Under == nil || s.variant == xds.SotW || s.only != nil || !u.wildcard {
		return
	}
	over := s.sub(u.typ.Under)
	if over == nil || over.wildcard {
		return
	}
	for d := range u.underWay() {
		d.lapse()
	}
	var extra []entry
	for st := range u.base.All() { // what it was told, or states to have
		if u.entry(st.Name) == nil {
			extra = append(extra, entry{name: st.Name, told: st, sent: true})
		}
	}
	anew := u.anew
	u.wildcard, u.moved = false, true
	u.renew(false)
	u.rebase(nil)
	u.moveAll()
	u.quit = append(u.quit, u.remembered()...)
	u.add(extra...)
	for e := range u.entries() {
		u.lapse(e)
		if !u.wants(e) {
			u.doubtAll()
		}
	}
	if u.scopes == nil {
		u.scopes = map[string]bool{}
	}
	t := s.table(u.typ)
	for e := range over.entries() {
		if e.named {
			u.enterScope(t, e.name+"/*", anew)
		}
	}
}

// widen makes scopes a wildcard of everything again.
func (s *Session) widen(u *subscription) {
	scopes := slices.Sorted(maps.Keys(u.scopes))
	u.scopes = nil
	for _, c := range scopes {
		u.leaveScope(c, false)
	}
	// The client has not asked for anything of this type: it is told what it lacks.
	u.wildcard, u.moved = true, true
	u.rebase(nil)
	u.unlapseAll()
	u.moveAll()
}

// scope makes the scopes follow what the stream subscribes to.
func (s *Session) scope(over *subscription) {
	toggled := over.toggled
	over.toggled = nil
	for _, u := range s.subs {
		if !over.typ.Is(u.typ.Under) || s.variant == xds.SotW {
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
			e, c := over.entry(n), n+"/*"
			switch named := e != nil && e.named; {
			case named && !u.scopes[c]:
				u.enterScope(t, c, true)
			case !named && u.scopes[c]:
				delete(u.scopes, c)
				u.leaveScope(c, false)
			}
		}
	}
}

// enterScope adds a scope. What it finds is told again if anew is set, and else
// only what the client lacks.
func (u *subscription) enterScope(t *xds.Table, c string, anew bool) {
	e := u.entry(c)
	if e == nil {
		u.add(entry{name: c, told: absent})
		e = u.entry(c)
	}
	was := u.wants(e)
	u.scopes[c] = true
	u.notice(e, was)
	if anew { // else the client has not asked for anything of this type
		u.ask()
	}
	e.repeat(anew || t.Aliased(c).Len() == 0)
	u.mark(e)
	u.match(t, c)
}

// leaveScope ends what a scope has found that is none any more. Unless the
// client asked for that itself, it is told what it loses.
func (u *subscription) leaveScope(c string, asked bool) {
	e := u.entry(c)
	if e == nil {
		return
	}
	u.notice(e, true)
	if e.named {
		return // the client asked for it, too
	}
	u.unmatch(c, asked)
}

// tellEmpty makes the first answer to a wildcard on a stream of its own name
// every collection that is empty. Seen with Envoy 1.40: it waits 15 s for
// something of its own; the stream does not say which that is.
func (s *Session) tellEmpty(u *subscription) {
	if u.typ.Under == nil || s.variant == xds.SotW || s.only == nil || !u.wildcard {
		return
	}
	var extra []entry
	for r := range s.table(u.typ.Under).All() {
		if c := r.Name + "/*"; s.table(u.typ).Aliased(c) == nil && u.entry(c) == nil {
			extra = append(extra, entry{name: c, told: absent, again: true})
		}
	}
	u.addMarked(extra)
}
