package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// This file sends refused content again (HEAL-2). The reason of a refusal may pass by itself: a port
// becomes free, a file appears, a cluster is accepted. The document says that the server "should not"
// send the content again, not that it must not. Terms: see doc.go.

const (
	firstRetry = 5 * time.Second // doubled with each refusal of the same content
	lastRetry  = 5 * time.Minute
	minRetry   = time.Second // between a refusal and the next retry of its content

	// maxHastened is the largest refusal that the ACK of a referenced resource retries at once. The search
	// for references costs the size of the refusal.
	maxHastened = 1000
)

// retries reports whether the session sends refused content again.
func (s *Session) retries() bool { return s.opts.Retry != nil }

// RetryDelay returns the time between a refusal and the next retry of its content (HEAL-2), after this number
// of earlier retries. The delay doubles with each refusal of the same content, and is up to a fifth longer,
// so that the retries of many streams spread. Spread is the number of the stream, see [Options].
func RetryDelay(tries int, permanent bool, spread, nonce uint64) time.Duration {
	delay := lastRetry
	if step := min(tries, 6); !permanent && firstRetry<<step < lastRetry {
		delay = firstRetry << step
	}
	spread = (spread ^ nonce*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 >> 40
	return delay + delay/5*time.Duration(spread%1024)/1024
}

// KeepPlanned returns the time between a refusal and the next retry (HEAL-2): the delay of the back-off, or the time
// left until the retry that was planned before a hastened one, if that is less. The hastened retry is a step of the
// back-off, but the planned one remains: the reason of the refusal may pass until then. The zero time means that no
// retry was planned.
func KeepPlanned(delay time.Duration, planned, now time.Time) time.Duration {
	if left := planned.Sub(now); left > 0 {
		return min(delay, max(minRetry, left))
	}
	return delay
}

// schedule sets the time of the next retry of a refusal.
func (s *Session) schedule(r *refusal) {
	delay := KeepPlanned(s.retryDelay(r), r.planned, s.now)
	r.refusedAt, r.retryAt, r.planned = s.now, onSecond(s.now.Add(delay)), time.Time{}
}

func (s *Session) retryDelay(r *refusal) time.Duration {
	return RetryDelay(r.tries, r.permanent, s.opts.Spread, r.nonce)
}

// onSecond returns the first full second that is not before a time. Retries are due at full seconds, so that
// those of many streams wake the process together. Alone, a retry takes up to four times the CPU.
func onSecond(at time.Time) time.Time {
	return at.Add((time.Second - time.Duration(at.Nanosecond())) % time.Second)
}

// tries reports whether changes have the resource that the view shows again after its refusal.
func (s *Session) tries(t *xds.Type, c *cargo) bool {
	if s.opts.Tried == nil {
		return false
	}
	name, ok := s.opts.Tried(t)
	return ok && stands(c.Carries(name))
}

// tried returns the resource that the view shows again after its refusal, if the client has refused it once more.
func (s *Session) tried(u *subscription) []string {
	if s.opts.Tried == nil || s.tellsWorld(u) {
		return nil
	}
	name, ok := s.opts.Tried(u.typ)
	if d, _ := u.unanswered(name, 0); !ok || d != nil || !u.hasRefused(name, u.told(name)) {
		return nil
	}
	return []string{name}
}

// hasRetried reports whether changes have content of a refusal that is sent again.
func (u *subscription) hasRetried(c *cargo) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool {
		if !r.retried {
			return false
		}
		for name, it := range r.members {
			if is := c.Carries(name); is != nil && same(is, it.Is) {
				return true
			}
		}
		return false
	})
}

// retrying reports whether refused content with a name is sent again, and the client has not answered yet.
func (u *subscription) retrying(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.retried && r.has(name) })
}

// countTries counts the earlier refusals of the content of r. It reports whether the client has refused
// the same content with the same text before.
func (u *subscription) countTries(r *refusal) (repeated bool) {
	for i := range u.refusals {
		if o := &u.refusals[i]; o.nonce > 0 && o.shares(r) {
			r.tries = max(r.tries, o.tries+1)
			r.planned = sooner(r.planned, o.planned)
			repeated = repeated || o.text == r.text
		}
	}
	return repeated
}

// shares reports whether another refusal has a member in the same state.
func (r *refusal) shares(o *refusal) bool {
	for name, it := range r.members {
		if stands(it.Is) && o.has(name) && same(it.Is, o.Carries(name)) {
			return true
		}
	}
	return false
}

// includedIn reports whether another refusal has all members in the same state.
func (r *refusal) includedIn(o *refusal) bool {
	if r.left > o.left {
		return false
	}
	for name, it := range r.members {
		if !o.has(name) || !same(it.Is, o.Carries(name)) {
			return false
		}
	}
	return true
}

// keepTries copies the schedule of another refusal.
func (r *refusal) keepTries(o *refusal) {
	r.tries, r.text, r.permanent, r.refusedAt, r.retryAt, r.planned = o.tries, o.text, o.permanent, o.refusedAt, o.retryAt, o.planned
}

// retry marks the names that a refusal holds back to be sent again, if the time has come and the server
// permits it. The answer decides about the next retry.
func (s *Session) retry(u *subscription) {
	if !s.retries() || u.demand.idle() {
		return
	}
	for i := range u.refusals {
		r := &u.refusals[i]
		if r.retryAt.IsZero() || s.now.Before(r.retryAt) {
			continue
		}
		world := s.tellsWorld(u)
		if r.retold && (world || !u.holdsTold(r)) || world && r.nonce < u.nonce {
			// Nothing is held back, the table lacks it, or the answer to a later full state decides.
			r.retryAt = time.Time{}
			continue
		}
		if world && s.isOutdated(u, r) || !s.opts.Retry(u.typ, s.bytes(u, r)) {
			r.retryAt = onSecond(s.now.Add(s.retryDelay(r) / 5)) // slow retries ask less often, so that their number does not matter
			continue
		}
		r.retryAt = time.Time{}
		u.retryNames(s, r)
	}
}

// isOutdated reports whether the view lacks content that was new in a refused full state, such as a reverted
// resource whose removal is delayed on a per-type stream. The change of the view is sent then, and needs no
// retry. A resource that is kept because others refer to it is not outdated: these may wait for the retry.
func (s *Session) isOutdated(u *subscription, r *refusal) bool {
	t := s.table(u.typ)
	for name, it := range r.members {
		if !stands(it.Is) || same(it.Was, it.Is) {
			continue
		}
		if in := t.Lookup(name); in != nil && same(in.Stamp, it.Is) {
			continue
		}
		l := u.Lingers(name)
		kept := s.ordersTypes() && l != nil && l.Body != nil && same(l.Body.Stamp, it.Is)
		if !kept {
			return true
		}
	}
	return false
}

// retryNames marks the names that a refusal holds back to be sent again.
func (u *subscription) retryNames(s *Session, r *refusal) {
	world := s.tellsWorld(u)
	apart := r.apart
	r.apart = nil
	u.retell(r, func(name string, it item) bool {
		if world {
			return (len(apart) == 0 || apart[name]) && !u.toldGone(name)
		}
		return (len(apart) == 0 || apart[name]) && same(u.told(name), it.Is) && !u.refusedLater(r, name)
	})
	r.apart, r.retried = apart, true
	u.Owe(u.Due || world)
}

// refusedLater reports whether a newer refusal than r has the same state of a name, and so its own schedule.
func (u *subscription) refusedLater(r *refusal, name string) bool {
	return slices.ContainsFunc(u.refusals, func(o refusal) bool {
		return o.nonce > r.nonce && o.has(name) && same(o.Carries(name), r.Carries(name))
	})
}

// bytes returns the approximate size of the refused resources.
func (s *Session) bytes(u *subscription, r *refusal) (n int) {
	t := s.table(u.typ)
	for name := range r.members {
		if is := t.Lookup(name); is != nil {
			n += len(is.Body)
		}
	}
	return n
}

// hasten retries refused resources for which the client has just accepted a reason to retry them, see helps.
// A retry follows a refusal by at least minRetry.
func (s *Session) hasten(first *subscription, d *delivery, p *part) {
	if !s.retries() {
		return
	}
	for _, u := range s.subs {
		for i := range u.refusals {
			r := &u.refusals[i]
			if r.retryAt.IsZero() || r.left > maxHastened || !r.helpedBy(d, p, first.typ, u.typ) {
				continue
			}
			if at := r.refusedAt.Add(minRetry); at.Before(r.retryAt) {
				if r.planned.IsZero() {
					r.planned = r.retryAt
				}
				r.retryAt = at
			}
		}
	}
	if s.opts.Hasten != nil {
		s.opts.Hasten(func(t *xds.Type, refused *xds.Stamp, counts func(string, *xds.Stamp) bool) bool {
			return d.helps(p, first.typ, t, refused, counts)
		})
	}
}

// helpedBy reports whether a message of type t is a reason to retry a member of a refusal of type by.
func (r *refusal) helpedBy(d *delivery, p *part, t, by *xds.Type) bool {
	for _, it := range r.members {
		if stands(it.Is) && d.helps(p, t, by, it.Is, func(string, *xds.Stamp) bool { return true }) {
			return true
		}
	}
	return false
}

// helps reports whether message p, of type t, is a reason to retry a refused resource of type by. The message
// has a new version of a resource to which the refused one refers, or a resource in it releases an address that
// the refused one takes. The function counts selects the resources.
func (d *delivery) helps(p *part, t, by *xds.Type, refused *xds.Stamp, counts func(string, *xds.Stamp) bool) bool {
	for _, ref := range refused.Refs {
		if !ref.Type.Is(t) {
			continue
		}
		if is := d.Carries(ref.Name); stands(is) && p.within(ref.Name, is) && !same(d.Before(ref.Name), is) && counts(ref.Name, is) {
			return true
		}
	}
	if refused.Addresses == nil || !by.Is(t) {
		return false
	}
	for name, it := range d.in(p) {
		if it.Was.Addresses != nil && !same(it.Was, it.Is) && it.Was.Frees(it.Is, refused) && counts(name, it.Is) {
			return true
		}
	}
	return false
}

// retryOf returns the time of the next retry of a refused name; the zero time: none.
func (u *subscription) retryOf(name string) (at time.Time) {
	for i := range u.refusals {
		if r := &u.refusals[i]; r.has(name) && !r.retryAt.IsZero() {
			at = r.retryAt
		}
	}
	return at
}

// retryBy yields the times of the next retries.
func (u *subscription) retryBy(yield func(time.Time)) {
	for i := range u.refusals {
		yield(u.refusals[i].retryAt)
	}
}
