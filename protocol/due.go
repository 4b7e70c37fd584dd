package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// This file decides for each name whether something is to be sent, and for each type whether
// anything is. The rooms of order and responses ask these questions.

// owed returns the change to send for the name of an entry: a resource, a removal (gone), or
// nothing.
func (s *Session) owed(u *subscription, t *xds.Table, e *entry) (r *xds.Resource, gone bool) {
	l := u.Lingers(e.Name)
	switch {
	case u.matches[e.Name] != nil:
		// The name matches other resources, which have their own entries. The client may still hold
		// an earlier resource with this name itself.
		return nil, e.Told != others && l == nil
	case !u.wants(e) && !u.wildcard: // no subscription matches the name any more
		reported := (e.Again || u.dropped[e.Name]) && !s.undecided(u.typ, e.Name)
		return nil, (e.Told != absent || reported) && l == nil
	case l != nil:
		return s.owedKept(u, e, l)
	}
	r = t.Lookup(e.Name)
	switch {
	case !u.shows(r):
		return nil, s.owesAbsence(u, e)
	case e.Again || differs(e.Told, r):
		return r, false
	}
	return nil, false
}

// owedKept is owed for a kept resource. It need not be sent until nothing refers to it, unless the
// client asks for it: either the client has a copy, or the name is only matched, so the client did
// not request it. A SotW client on a new stream may lack a name that it requests. There the resource
// is sent only for types that clusters need to become warm.
func (s *Session) owedKept(u *subscription, e *entry, l *names.Kept) (r *xds.Resource, gone bool) {
	asked := e.Named || u.dropped[e.Name] // the client has just subscribed or unsubscribed
	requested := e.Matched == 0 || e.Named || u.wildcard
	switch {
	case !e.Again:
		return nil, false
	case l.Body == nil: // only the removal can be sent
		return nil, asked && !s.undecided(u.typ, e.Name)
	case s.variant == xds.Delta && requested, s.warms(u.typ):
		return l.Body, false
	}
	return nil, false
}

// owesAbsence reports whether the client is to be sent that a name does not exist.
func (s *Session) owesAbsence(u *subscription, e *entry) bool {
	onlyMatched := e.Matched > 0 && !e.Named
	switch {
	case e.Told == absent && (!e.Again || onlyMatched && e.Untold()):
		// The client knows that the name does not exist. A matched resource that was removed before
		// it was sent is not reported, either.
		return false
	case s.mutes(u, e):
		return false
	case s.undecided(u.typ, e.Name): // the view is still looking; in SotW no response reports unsubscribed names
		return s.variant == xds.SotW && !u.wants(e)
	}
	return true
}

func differs(told *xds.Stamp, r *xds.Resource) bool { return told.Sum != r.Sum }

// lists reports whether an entry belongs in the list of dirty names. A difference also counts if it
// cannot be sent yet because the view is looking for the name: the client may hold the old state.
func (s *Session) lists(u *subscription, t *xds.Table, e *entry) bool {
	return s.owes(u, t, e) || u.Kept(e.Name) == nil && u.outdated(t, e.Name, e.Told)
}

// owes reports whether something is to be sent for the name of an entry.
func (s *Session) owes(u *subscription, t *xds.Table, e *entry) bool {
	r, gone := s.owed(u, t, e)
	return r != nil || gone
}

// hopes reports whether the client awaits a name (see awaits) that the view has lost and had
// recently. If a new reference to the name comes, the name is kept and sent. So until then it stays
// in the list of dirty names.
func (s *Session) hopes(u *subscription, t *xds.Table, e *entry) bool {
	return s.awaits(u, e) && s.lost(u, t, e.Name, e, e.Told) && s.body(u.typ, e.Name, e.Told) != nil
}

// owesAny reports whether something is to be sent for the type. Names that the view is still looking
// for do not count, because the view may never find them.
func (s *Session) owesAny(u *subscription, t *xds.Table) bool {
	return u.news(t) || slices.ContainsFunc(u.Dirty, func(n string) bool {
		e := u.Entry(n)
		return e != nil && s.owes(u, t, e)
	})
}

// pending reports whether the type may have something to send.
func (u *subscription) pending(t *xds.Table) bool {
	return len(u.Dirty) > 0 || u.waiting.parks() || u.news(t)
}

// news reports whether the type may have something to send other than dirty and waiting names. The
// table is the one that the view has.
func (u *subscription) news(t *xds.Table) bool {
	return u.Due || u.All || u.Anew || u.wildcard && u.base != t.Versions()
}

// blocked reports whether nothing may be sent before the client has answered the newest response.
// Meanwhile changes collect (SOTW-3). "The management server should not send a DiscoveryResponse
// for any DiscoveryRequest that has a stale nonce."
func (s *Session) blocked(u *subscription) bool {
	d := u.newest(s.variant)
	if d == nil || !s.within(delay.Behind, d.sent).holds || u.stuck() {
		return false
	}
	// Delta: "the server must honor changes to the subscription state even if the nonce is stale"
	// (DELTA-3).
	return s.variant == xds.SotW || !u.asked || u.crowded()
}

// mayHold yields the stamps that the client may hold and the view no longer has (see held).
func (s *Session) mayHold(u *subscription, yield func(st *xds.Stamp, why delay.Reason)) {
	s.held(u, s.unsent(u), yield)
}

// vague reports whether the client may hold names from an earlier stream with unknown content.
func (s *Session) vague(u *subscription) bool { return s.isVague(u, s.unsent(u)) }

// unsent returns what is still to be sent for a type, for the questions of the sent states.
func (s *Session) unsent(u *subscription) unsent {
	var lists func(*entry) bool
	if len(u.brought) > 0 {
		lists = func(e *entry) bool { return s.lists(u, s.table(u.typ), e) }
	}
	return unsent{waits: u.waiting.len() > 0, parked: u.parked(), lists: lists}
}

// undecided reports whether the view is still looking for a name and has no resource with this name
// yet.
func (s *Session) undecided(t *xds.Type, name string) bool {
	v, ok := s.view.(xds.Undecided)
	return ok && v.Undecided(t, name) && s.table(t).Lookup(name) == nil
}
