package protocol

import (
	"slices"
	"strconv"

	"github.com/chancery-xds/chancery/xds"
)

// message returns the message with a nonce that was not answered by itself, and its
// delivery.
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

// acceptUnlisted notes that the client has taken what is not listed any more: what could
// not warm has warmed, what had become one with another is told, and a world takes the
// place of those refused before it, and of what it had from before.
func (s *Session) acceptUnlisted(u *subscription, nonce uint64) {
	if s.tellsWorld(u) {
		u.vagueAll = false
		u.moveAll()
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
			d.without(d.unlisted) // it has all of that, also if it refuses this one
			u.finish(s.variant, d)
			return
		}
	}
}

// refuseUnlisted notes that the client has refused what is not listed any more, but has
// become one with another: of what that does not tell by itself it may have any, and its
// answer does not say. What else was refused with it nobody knows, so it is told again.
func (u *subscription) refuseUnlisted(v xds.Variant, nonce uint64) {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		if d.joined < nonce {
			continue
		}
		var items []item
		for _, it := range d.unlisted {
			// Of what is not there, and was not, it may have nothing; and in SotW no response
			// makes a client lose what is gone.
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

// settle pairs an answer with its response.
func (u *subscription) settle(s *Session, req xds.Request) {
	n, err := strconv.ParseUint(req.Nonce, 10, 64)
	var d *delivery
	var p *part
	if err == nil {
		d, p = u.message(n)
	}
	if p == nil {
		if err == nil && n == u.nonce {
			return // a repeat at the newest nonce
		}
		// Of a message that is not listed any more. In SotW it may be the one that was
		// answered last, with other names.
		if n > 0 && n <= u.evicted && (s.variant == xds.Delta || n > u.heard) { // no message has the nonce 0
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
	e := Event{Kind: Acked, Type: u.typ, Nonce: req.Nonce, Version: d.version, Took: s.now.Sub(d.sent), Settled: newest}
	// "NACK [...] is indicated by the presence of the error_detail field."
	if req.Error != nil {
		e.Kind, e.Error, e.InUse = Nacked, req.Error, req.Version
		e.Names = u.blamed(d, p, req.Error.Message)
		p.fate = refused
		u.toldAll(d)
		u.refuse(s.variant, d, p)
	} else {
		p.fate = accepted
		if d.accepted() {
			s.passBefore(u, d)
		}
		s.accept(u, d, p)
	}
	e.Refuses = len(u.refusals) > 0
	s.event(e)
	u.stirAll(d)
	if !d.settled() {
		return
	}
	u.unacked = u.unacked && !newest
	u.finish(s.variant, d)
}

// finish forgets a delivery that is answered, if nothing more is to be learned of it. "Each
// nonce is settled by itself": its answer is none to what has become one with it (delta).
func (u *subscription) finish(v xds.Variant, d *delivery) {
	if !d.settled() {
		return
	}
	d.superseded = d.superseded || d.accepted()
	if slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == passed }) {
		return // some of it may still be refused
	}
	if v == xds.SotW || d.joined == 0 || !d.keepUnlisted() {
		u.gone(d)
	}
}

// excuse notes that no answer is owed: a client may drop unanswered what it no longer wants.
func (u *subscription) excuse() {
	u.unacked = false
	u.stir("")
}

// gone forgets a delivery.
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

// passBefore notes that what was sent before a delivery has been dealt with, and before
// that: what it left open the later one may have settled.
func (s *Session) passBefore(u *subscription, d *delivery) {
	for i := range u.deliveries {
		o := &u.deliveries[i]
		if o.last() == d.last() {
			return
		}
		if !o.superseded {
			u.stirAll(o)
		}
		s.pass(u, o)
		o.superseded = true
	}
}

// pass notes that the client has taken a delivery, for it has accepted a later one
// (SotW): "the last one stands for all".
func (s *Session) pass(u *subscription, d *delivery) {
	for i := range d.parts {
		if p := &d.parts[i]; s.variant == xds.SotW && p.fate == unanswered {
			p.fate = passed
			s.accept(u, d, p)
		}
	}
}

// accept notes that the client has taken what a message carried.
func (s *Session) accept(u *subscription, d *delivery, p *part) {
	if d.beats != nil && !p.world { // a heartbeat of a world is a world
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
	if s.tellsWorld(u) { // a world takes the place of all before
		u.moveAll()
		u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.nonce < p.nonce })
		return
	}
	u.forgive(p.nonce, told)
}
