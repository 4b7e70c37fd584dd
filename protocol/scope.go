package protocol

import "github.com/chancery-xds/chancery/xds"

// A wildcard of a type that comes under another ("route/host") covers, on an
// aggregated stream, what is under the names that the stream subscribes to of
// that type: a collection for each. These are scopes, which are no
// subscriptions of the client: it cannot drop one of them, nor does it keep one
// by asking for the same collection.

// begin makes a wildcard that was just opened one of scopes.
func (s *Session) beginScopes(u *subscription) {
	if u.typ.Under == nil || s.variant == xds.SotW || !u.wildcard || u.nonce != 0 {
		return
	}
	if s.only != nil {
		s.tellEmpty(u)
		return
	}
	over := s.sub(u.typ.Under)
	if over == nil || over.wildcard {
		return
	}
	u.wildcard, u.anew, u.base = false, false, nil
	u.due = over.named == 0
	u.scopes = map[string]bool{}
	t := s.table(u.typ)
	for e := range over.entries() {
		if e.named {
			u.enterScope(t, e.name+"/*")
		}
	}
}

// scope makes the scopes follow what the stream subscribes to.
func (s *Session) scope(over *subscription) {
	toggled := over.toggled
	over.toggled = nil
	for _, u := range s.subs {
		if !over.typ.Is(u.typ.Under) || s.variant == xds.SotW {
			continue
		}
		if u.scopes == nil { // the type above may have been opened only now
			s.beginScopes(u)
			continue
		}
		t := s.table(u.typ)
		for _, n := range toggled {
			e, c := over.entry(n), n+"/*"
			switch named := e != nil && e.named; {
			case named && !u.scopes[c]:
				u.enterScope(t, c)
			case !named && u.scopes[c]:
				delete(u.scopes, c)
				u.leaveScope(c, false)
			}
		}
	}
}

func (u *subscription) enterScope(t *xds.Table, c string) {
	e := u.entry(c)
	if e == nil {
		u.add(entry{name: c, told: absent})
		e = u.entry(c)
	}
	was := u.wants(e)
	u.scopes[c] = true
	u.notice(e, was)
	u.asked, e.again = true, true
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
	if asked {
		u.dropUnwanted()
	}
}

// tellEmpty makes the first answer to a wildcard on a stream of its own name
// every collection that is empty. Seen with Envoy 1.40: it waits 15 s for
// something of its own; the stream does not say which that is.
func (s *Session) tellEmpty(u *subscription) {
	var extra []entry
	for r := range s.table(u.typ.Under).All() {
		if c := r.Name + "/*"; s.table(u.typ).Aliased(c) == nil && u.entry(c) == nil {
			extra = append(extra, entry{name: c, told: absent, again: true})
		}
	}
	for i := range extra {
		u.mark(&extra[i])
	}
	u.add(extra...)
}
