package protocol

import (
	"slices"
	"strconv"

	"github.com/chancery-xds/chancery/xds"
)

// message returns the message with a nonce that still needs its own answer, and its delivery.
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

// acceptUnlisted handles the ACK of a message that is no longer listed. Clusters without an
// assignment have become warm after all. Names of a joined delivery are accepted. A full state
// replaces older refusals and vague states.
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
			d.without(d.unlisted) // the client keeps these even if it refuses this delivery
			u.finish(s.variant, d)
			return
		}
	}
}

// refuseUnlisted handles the NACK of a message that is no longer listed, but is included in a later
// delivery. The client may hold any of the names that only the older one had, so they are sent
// again. Other names that were refused with them are unknown.
func (u *subscription) refuseUnlisted(v xds.Variant, nonce uint64) {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		if d.joined < nonce {
			continue
		}
		var items []item
		for _, it := range d.unlisted {
			// A removal of a name that did not exist leaves nothing. In SotW no response removes a
			// name.
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

// settle pairs an answer with its response (SOTW-4, SOTW-3, DELTA-3).
func (u *subscription) settle(s *Session, req xds.Request) {
	n, err := strconv.ParseUint(req.Nonce, 10, 64)
	var d *delivery
	var p *part
	if err == nil {
		d, p = u.message(n)
	}
	if p == nil {
		if err == nil && n == u.nonce {
			return // a repeat with the newest nonce (SOTW-17)
		}
		// A message that is no longer listed. In SotW it may also be the last answered one,
		// repeated with other names.
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
	// "NACK [...] is indicated by the presence of the error_detail field." (SOTW-4)
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

// finish forgets an answered delivery, unless an answer to it may still come. "Each nonce is
// settled by itself": in delta its answer does not answer an older, joined delivery.
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

// excuse notes that the client owes no answer: without subscriptions, it may leave responses
// unanswered.
func (u *subscription) excuse() {
	u.unacked = false
	u.stir("")
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

// passBefore settles the deliveries before d, which the client has accepted: nothing waits for them
// any more.
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

// pass counts a delivery as accepted because a later one was (SotW): an answer also answers all
// responses before it.
func (s *Session) pass(u *subscription, d *delivery) {
	for i := range d.parts {
		if p := &d.parts[i]; s.variant == xds.SotW && p.fate == unanswered {
			p.fate = passed
			s.accept(u, d, p)
		}
	}
}

// accept notes that the client has accepted a message.
func (s *Session) accept(u *subscription, d *delivery, p *part) {
	if d.beats != nil && !p.world { // a heartbeat with the full state counts as one
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
	if s.tellsWorld(u) { // a full state replaces all before
		u.moveAll()
		u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.nonce < p.nonce })
		return
	}
	u.forgive(p.nonce, told)
}
