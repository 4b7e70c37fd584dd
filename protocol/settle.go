package protocol

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// An answering has what the sent states need from the rooms above for an answer.
type answering struct {
	waits   bool                   // a name of the type waits for another type
	accepts func(*delivery, *part) // called just before the client's acceptance of a message is recorded
}

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

// pairAnswer pairs the client's answer with the response that it answers (SOTW-4, SOTW-3, DELTA-3).
func (u *subscription) pairAnswer(s *Session, req xds.Request, with answering) {
	n := ParseNonce(req.Nonce)
	d, p := u.message(n)
	if p == nil {
		if n > 0 && n == u.nonce {
			return // the client repeats its answer with the newest nonce (SOTW-17)
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
			s.passBefore(u, d, with)
		}
		s.accept(u, d, p, with)
		e.Accepted = u.acceptedIn(d, p, with.waits)
	}
	e.Refuses, e.Withheld = s.refuses(u)
	u.answerRefusing(&e, s.now)
	s.event(e)
	u.noteContent(&d.cargo)
	if !d.settled() {
		return
	}
	u.unacked = u.unacked && !newest
	u.finish(d)
}

// acceptedIn returns the states that the client has accepted with message p of delivery d.
func (u *subscription) acceptedIn(d *delivery, p *part, waits bool) Acceptance {
	var all *xds.Versions
	if u.base != nil && d.To == u.base && d.last() == u.nonce && d.accepted() && len(u.refusals) == 0 && !waits {
		all = d.To
	}
	return Acceptance{All: all, items: d.Items, in: p}
}

// finish forgets a delivery whose parts are all answered.
func (u *subscription) finish(d *delivery) {
	d.superseded = d.superseded || d.accepted()
	if slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == passed }) {
		return // the client may still refuse a passed message
	}
	u.gone(d)
}

// excuse records that no answer is expected: a client without subscriptions may leave responses
// unanswered.
func (u *subscription) excuse() {
	u.unacked = false
	u.Note("")
}

// gone removes a delivery from the list.
func (u *subscription) gone(d *delivery) {
	last := d.last()
	u.deliveries = slices.DeleteFunc(u.deliveries, func(o delivery) bool { return o.last() == last })
	if len(u.deliveries) == 0 {
		u.deliveries = nil
	}
}

// passBefore marks the deliveries before d as superseded, because the client has accepted d. In SotW they
// also count as accepted.
func (s *Session) passBefore(u *subscription, d *delivery, with answering) {
	for i := range u.deliveries {
		o := &u.deliveries[i]
		if o.last() == d.last() {
			return
		}
		if !o.superseded {
			u.noteContent(&o.cargo)
		}
		for j := range o.parts {
			if p := &o.parts[j]; s.variant == xds.SotW && p.fate == unanswered { // the answer answers this message, too
				p.fate = passed
				s.accept(u, o, p, with)
			}
		}
		o.superseded = true
	}
}

// accept records that the client has accepted message p of delivery d.
func (s *Session) accept(u *subscription, d *delivery, p *part, with answering) {
	with.accepts(d, p)
	if d.beats != nil && !p.world { // a heartbeat changes no state, except a heartbeat with the full state
		u.forgive(p.nonce, d.beatsOf(p)) // refusals of earlier heartbeats end: the client has the resources (TTL-5)
		return
	}
	u.learned(s.variant, d, p, with.waits)
	told := d.in(p)
	for i := range u.deliveries {
		if o := &u.deliveries[i]; o.last() < p.nonce {
			o.overtaken(told)
		}
	}
	s.hasten(u, d, p)
	if s.tellsWorld(u) { // a full state replaces all earlier states
		u.NoteAll()
		u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.nonce < p.nonce })
		return
	}
	u.forgive(p.nonce, told)
}

// beatsOf yields the names of a message of heartbeats.
func (d *delivery) beatsOf(p *part) func(func(string, item) bool) {
	return func(yield func(string, item) bool) {
		for _, r := range d.beats {
			if p.within(r.Name, r.Stamp) && !yield(r.Name, item{}) {
				return
			}
		}
	}
}
