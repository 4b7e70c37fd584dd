package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// message returns the message with a nonce, and the delivery of this message. It returns nil if the
// message is not listed or has already got its own answer.
func (u *subscription) message(nonce uint64) (d *delivery, p *part) {
	for i := range u.deliveries {
		for j := range u.deliveries[i].parts {
			if q := &u.deliveries[i].parts[j]; q.nonce == nonce && (q.fate == unanswered || q.fate == passed) {
				return &u.deliveries[i], q
			}
		}
	}
	return nil, nil
}

// acceptUnlisted handles the ACK of a message that is no longer listed. If no ACK was expected
// because a cluster had no assignment (stuck), the cluster has become warm after all. If the message was joined to a later delivery,
// its names are accepted. If it was a full state, it ends older refusals and vague states. Terms:
// see doc.go.
func (s *Session) acceptUnlisted(u *subscription, nonce uint64) {
	if s.tellsWorld(u) {
		u.vagueAll = false
		u.noteAll()
		u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.nonce < nonce })
	}
	for i := range u.deliveries {
		d := &u.deliveries[i]
		if d.stuck <= nonce {
			d.stuck = 0
		}
		if d.joined == nonce {
			s.belated(u, d, func(name string, is *xds.Stamp) bool { return !d.tells(name, is) })
			u.forgive(nonce, d.unlisted)
			d.without(d.unlisted) // the client keeps these names even if it refuses this delivery
			u.finish(s.variant, d)
			return
		}
	}
}

// refuseUnlisted handles the NACK of a message that is no longer listed, but was joined to a later
// delivery. Names that only the older message has are sent again, because the client may hold any
// of them. For its other names there is no record of the older message: the later delivery has them, too.
func (u *subscription) refuseUnlisted(v xds.Variant, nonce uint64) {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		if d.joined < nonce {
			continue
		}
		var items []item
		for _, it := range d.unlisted {
			// The removal of a name that did not exist is not recorded as refused. In SotW no
			// removal is.
			if stands(it.is) || v == xds.Delta && stands(it.was) {
				items = append(items, it)
			}
		}
		d.overtaken(d.unlisted)
		u.finish(v, d)
		if len(items) == 0 {
			return
		}
		r := list(items, nonce, false)
		r.moved = true
		u.remember(v, r)
		return
	}
}

// settle pairs the client's answer with the response that it answers (SOTW-4, SOTW-3, DELTA-3).
func (u *subscription) settle(s *Session, req xds.Request) {
	n := ParseNonce(req.Nonce)
	d, p := u.message(n)
	if p == nil {
		if n > 0 && n == u.nonce {
			return // the client repeats its answer with the newest nonce (SOTW-17)
		}
		// The answer is for a message that is no longer listed. In SotW the client may also repeat
		// its last answer with other names.
		if n > 0 && n <= u.evicted && (s.variant == xds.Delta || n > u.heard) {
			if req.Error == nil {
				s.acceptUnlisted(u, n)
			} else {
				u.refuseUnlisted(s.variant, n)
			}
			u.silent, u.heard = s.now, max(u.heard, n)
		}
		s.event(Event{Kind: Stale, Type: u.typ, Nonce: req.Nonce})
		return
	}
	newest := d.last() == u.nonce
	u.silent, u.heard = s.now, max(u.heard, n)
	e := Event{Kind: Acked, Type: u.typ, Retry: d.retry || d.tried, Nonce: req.Nonce, Version: d.version, Took: s.now.Sub(d.sent), Settled: newest}
	// "NACK [...] is indicated by the presence of the error_detail field." (SOTW-4)
	if req.Error != nil {
		e.Kind, e.Error, e.InUse = Nacked, req.Error, req.Version
		e.Names, e.Count = u.blamed(d, p, req.Error.Message), d.upserts(p)
		p.fate = refused
		u.toldAll(d)
		e.Repeated = s.refuse(u, d, p, req.Error.Message) || d.tried
	} else {
		p.fate = accepted
		if d.accepted() {
			s.passBefore(u, d)
		}
		s.accept(u, d, p)
		e.Accepted = u.acceptedIn(d, p)
	}
	e.Refuses, e.Withheld = s.refuses(u)
	u.answerRefusing(&e, s.now)
	s.event(e)
	u.noteContent(&d.cargo)
	if !d.settled() {
		return
	}
	u.unacked = u.unacked && !newest
	u.finish(s.variant, d)
}

// acceptedIn returns the states that the client has accepted with message p of delivery d.
func (u *subscription) acceptedIn(d *delivery, p *part) Acceptance {
	if d.beats != nil {
		return Acceptance{}
	}
	if u.wildcard && d.to == u.base && d.last() == u.nonce && d.accepted() && len(u.refusals)+u.waiting.len() == 0 {
		return Acceptance{All: d.to, items: d.items, in: p}
	}
	return Acceptance{items: d.items, in: p}
}

// finish forgets a delivery whose parts are all answered. It keeps the delivery if the client may still
// refuse a passed part, or, in delta, may still answer an older message that was joined to it (DELTA-13).
func (u *subscription) finish(v xds.Variant, d *delivery) {
	if !d.settled() {
		return
	}
	d.superseded = d.superseded || d.accepted()
	if slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == passed }) {
		return // the client may still refuse a passed message
	}
	if v == xds.SotW || d.joined == 0 || !d.keepUnlisted() {
		u.gone(d)
	}
}

// excuse records that no answer is expected: a client without subscriptions may leave responses
// unanswered.
func (u *subscription) excuse() {
	u.unacked = false
	u.note("")
}

// gone removes a delivery from the list.
func (u *subscription) gone(d *delivery) {
	for i := range u.deliveries {
		if d == &u.deliveries[i] {
			u.deliveries = slices.Delete(u.deliveries, i, i+1)
			break
		}
	}
	if len(u.deliveries) == 0 {
		u.deliveries = nil
	}
}

// passBefore marks the deliveries before d as superseded, because the client has accepted d. In SotW they
// also count as accepted.
func (s *Session) passBefore(u *subscription, d *delivery) {
	for i := range u.deliveries {
		o := &u.deliveries[i]
		if o.last() == d.last() {
			return
		}
		if !o.superseded {
			u.noteContent(&o.cargo)
		}
		s.pass(u, o)
		o.superseded = true
	}
}

// pass counts a delivery as accepted because the client has accepted a later delivery (SotW). In
// SotW an answer also answers all earlier responses.
func (s *Session) pass(u *subscription, d *delivery) {
	for i := range d.parts {
		if p := &d.parts[i]; s.variant == xds.SotW && p.fate == unanswered {
			p.fate = passed
			s.accept(u, d, p)
		}
	}
}

// accept records that the client has accepted message p of delivery d.
func (s *Session) accept(u *subscription, d *delivery, p *part) {
	if d.beats != nil && !p.world { // a heartbeat changes no state, except a heartbeat with the full state
		return
	}
	s.belated(u, d, func(name string, is *xds.Stamp) bool { return d.answers(p, name, is) })
	u.learned(s.variant, d, p)
	told := func(yield func(string, item) bool) {
		for name, it := range d.each {
			if p.within(name, it.is) && !yield(name, it) {
				return
			}
		}
	}
	for i := range u.deliveries {
		if o := &u.deliveries[i]; o.last() < p.nonce {
			o.overtaken(told)
		}
	}
	s.hasten(u, d, p)
	if s.tellsWorld(u) { // a full state replaces all earlier states
		u.noteAll()
		u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.nonce < p.nonce })
		return
	}
	u.forgive(p.nonce, told)
}
