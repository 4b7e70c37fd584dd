package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A refusing is the time during which the client refuses resources of a type (HEAL-5). It begins
// with a NACK. It ends when the client accepts each refused resource or its successor, or when the
// resource reverts, is removed, or leaves the view. A retry in flight does not end it.
type refusing struct {
	since  time.Time // the first NACK
	solved bool      // each refused resource has changed or is accepted, and the newest state is sent
	last   uint64    // valid if solved: the newest message at that time; the client must still answer it
	acked  bool      // the client has accepted the newest response after the last NACK
}

// answerRefusing records an answer: a NACK begins a refusal.
func (u *subscription) answerRefusing(e *Event, now time.Time) {
	if e.Kind == Nacked && e.Refuses && u.refusing == nil {
		u.refusing = &refusing{since: now}
	}
	if f := u.refusing; f != nil {
		f.acked = e.Kind == Acked && (e.Settled || f.acked)
	}
}

// refuses reports whether the client wants a resource that it has refused, and has not accepted a
// newer state of this resource. withheld reports that the only refused resources are those that the
// view withholds.
func (s *Session) refuses(u *subscription) (is, withheld bool) {
	if s.refusesTold(u) {
		return true, false
	}
	withheld = s.opts.Withholds != nil && s.opts.Withholds(u.typ)
	return withheld, withheld
}

// refusesTold reports whether the client refuses a resource that was sent. In SotW, a removed
// resource of a type without full state does not count, because no response reports the removal.
func (s *Session) refusesTold(u *subscription) bool {
	if len(u.refusals) == 0 || !s.forsakes(u) {
		return len(u.refusals) > 0
	}
	t := s.table(u.typ)
	return slices.ContainsFunc(u.refusals, func(r refusal) bool {
		for name := range r.members {
			if stands(u.told(name)) || t.Lookup(name) != nil {
				return true
			}
		}
		return false
	})
}

// endRefusing ends the refusal of a type, and returns it, when the client accepts each refused resource or its
// successor (HEAL-5). Call it after Responses: only then all changes of the view are sent or wait. The client
// must answer if it has subscriptions (subscribed). The function rests reports whether something is still to be sent.
func (s *Session) endRefusing(u *subscription, subscribed bool, rests func() bool) *refusing {
	f := u.refusing
	if f == nil {
		return nil
	}
	if is, _ := s.refuses(u); is {
		f.solved = false
		return nil
	}
	if subscribed {
		if !f.solved && rests() {
			return nil
		}
		if !f.solved {
			f.solved, f.last = true, u.nonce
		}
		if s.unansweredUntil(u, f.last) {
			return nil
		}
	}
	u.refusing = nil
	return f
}

// unansweredUntil reports whether the client may still answer a message, or an older one.
func (s *Session) unansweredUntil(u *subscription, nonce uint64) bool {
	for i := range u.deliveries {
		for _, p := range u.deliveries[i].parts {
			if p.nonce <= nonce && s.mayAnswer(u, p) {
				return true
			}
		}
	}
	return false
}

// mayAnswer reports whether the client may still answer a message. In SotW a client answers in
// order.
func (s *Session) mayAnswer(u *subscription, p part) bool {
	return p.fate == unanswered && (s.variant == xds.Delta || p.nonce > u.heard)
}
