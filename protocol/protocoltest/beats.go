package protocoltest

import (
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// checkHeartbeats checks heartbeats: "a Resource with the resource unset and version matching the most recently sent
// version".
func (l *ledger) checkHeartbeats(a *account, r *xds.Response, f *flight) error {
	if len(r.Beats) > 0 && a.world {
		return fmt.Errorf("TTL-4: a full-state response with heartbeats would remove every resource")
	}
	expires := func(x *xds.Resource) bool { return x.TTL > 0 }
	if told := r.TTL && slices.ContainsFunc(slices.Concat(r.Upserts, r.Beats), expires); told && !l.ttl {
		return fmt.Errorf("TTL-1, TTL-4: a TTL is sent to a client that does not support TTLs")
	}
	if l.ttl && !r.TTL && (len(r.Beats) > 0 || slices.ContainsFunc(r.Upserts, expires)) {
		return fmt.Errorf("TTL-1: the TTL is missing")
	}
	for _, b := range r.Beats {
		k, told := a.lastSent[b.Name]
		if !told {
			k = a.stray[b.Name] // a stated resource counts as held until a response replaces it (ADS-9), also when a name matches it later
		}
		switch {
		case !told && b.TTL > 0 && l.allows(func() bool {
			return l.heldAndRemoved(a, b) && l.accepts(hadBefore) || l.holdsStated(a, b) && l.accepts(opaque) || a.mayHoldDropped(b) && l.accepts(back)
		}, keeping...):
			f.beats[b.Name] = fact{res: b}
		case b.TTL == 0 || !same(b, l.inForce(a, b.Name)) && (!k.is(b) || l.shown(a, b.Name) == nil):
			return fmt.Errorf("TTL-3: a heartbeat of %s, which is not subscribed or does not expire", show(b))
		case !k.is(b) || !l.allows(func() bool { return l.accepted(a, b.Name, surely) }, doubted):
			return fmt.Errorf("TTL-5: a heartbeat of %s, which the client has not ACKed", show(b))
		default:
			f.beats[b.Name] = fact{res: b, seq: k.seq}
			// A heartbeat after the TTL does not bring back a dropped resource. The resource is sent again,
			// which may have to wait.
			a.maySend[b.Name] = a.maySend[b.Name] || l.heartbeatLate(a, b)
			a.ttlBegan[b.Name] = l.now
		}
	}
	return nil
}

// inForce returns the resource that the client should keep by a name: the resource in the view, the
// last sent resource while a newer state waits, or a kept resource. A resource that stays gets
// heartbeats (TTL-3). A removed resource does not stay, even if its name returns with another
// state.
func (l *ledger) inForce(a *account, n string) *xds.Resource {
	if r := l.shown(a, n); r != nil {
		if k := a.lastSent[n]; k.res != nil && !k.left && !same(k.res, r) && l.waitsForClusters(a, r) {
			return k.res
		}
		return r
	}
	if _, leaves := a.removed[n]; !leaves {
		return nil
	}
	return l.content(a, n, a.lastSent[n])
}

// heldAndRemoved reports whether the client holds a resource from an earlier stream that the view
// has removed and to which another resource may refer. A SotW client got the resource in a
// response. A delta client states the resource, and no subscription matches it.
func (l *ledger) heldAndRemoved(a *account, r *xds.Resource) bool {
	states := a.statedOnly(r.Name) && same(a.removed[r.Name].res, r)
	return l.shown(a, r.Name) == nil && (states || slices.ContainsFunc(l.past.of(a.typ, r.Name), func(p *xds.Resource) bool { return same(p, r) })) && l.isReferred(a, r.Name, possibly)
}

// mayHoldDropped reports whether the client has answered for a resource after it had unsubscribed
// and subscribed again in flight. The client may hold such a resource.
func (a *account) mayHoldDropped(r *xds.Resource) bool {
	return slices.ContainsFunc(a.refused[r.Name], func(k fact) bool { return k.dropped && k.is(r) })
}

// holdsStated reports whether a SotW client holds, from an earlier stream, exactly the resource
// that the heartbeat keeps alive while other news of the type waits. If the stated version contains
// the resource, the client may hold it, too, because its subscriptions at that time are unknown.
func (l *ledger) holdsStated(a *account, r *xds.Resource) bool {
	if l.variant == xds.Delta || a.world || !l.resumes || !a.covers(r.Name) {
		return false
	}
	return slices.ContainsFunc(l.past.of(a.typ, r.Name), func(p *xds.Resource) bool { return same(p, r) }) ||
		a.stated != "" && slices.ContainsFunc(slices.Concat(l.opts.Recent(a.typ), []*xds.Table{a.table}), func(t *xds.Table) bool {
			return t.Version() == a.stated && same(t.Lookup(r.Name), r)
		})
}

// keepsAlive reports whether a resource that the view does not have must be kept alive: a kept resource while
// something refers to it, or a resource in force while its successor waits for a refused cluster.
func (l *ledger) keepsAlive() bool {
	return l.ttl && slices.ContainsFunc(l.accounts, func(a *account) bool {
		for _, rs := range l.past[a.typ.URL] { // also if this stream did not send it
			if slices.ContainsFunc(rs, func(r *xds.Resource) bool { return r.TTL > 0 && a.covers(r.Name) && l.heldAndRemoved(a, r) }) {
				return true
			}
		}
		for n, v := range a.removed { // also if it is not ACKed yet
			if v.res != nil && v.res.TTL > 0 && (l.heldAndRemoved(a, v.res) || a.lastSent[n].is(v.res)) {
				return true
			}
		}
		outdated := func(r *xds.Resource) bool {
			return l.shown(a, r.Name) == nil || !same(l.shown(a, r.Name), r) && l.waitsForRefused(a, r.Name)
		}
		for _, facts := range a.refused { // also if the client subscribed again and may hold it
			if slices.ContainsFunc(facts, func(k fact) bool { return k.dropped && k.res != nil && k.res.TTL > 0 && outdated(k.res) }) {
				return true
			}
		}
		return slices.ContainsFunc(l.expiring(a), outdated)
	})
}

// expiring returns the resources that the client may drop without a heartbeat.
func (l *ledger) expiring(a *account) []*xds.Resource {
	var out []*xds.Resource
	for _, n := range l.knownNames(a) {
		if r := l.inForce(a, n); r != nil && r.TTL > 0 && a.lastSent[n].is(r) && l.accepted(a, n, possibly) {
			out = append(out, r)
		}
	}
	return out
}

// accepted reports whether the client has ACKed the last state of a name that it was sent: no
// response with news of the name is in flight or refused. If d is surely, a response that may no
// longer be tracked counts as ACKed with a later response, because the session may assume so.
func (l *ledger) accepted(a *account, n string, d doubt) bool {
	if a.heldBack(n) {
		return false
	}
	return !slices.ContainsFunc(a.flights, func(f *flight) bool {
		past := d == surely && l.accepts(doubted) && f.seq < a.accepted && len(l.nonces)-f.seq >= maxTracked
		return f.news[n] && !f.done && !f.superseded && !past && f.seq > a.acked[n].seq
	})
}

// expires reports whether a full-state response may be sent again because one of its resources
// expires.
func (l *ledger) expires(a *account) bool {
	return l.ttl && len(l.expiring(a)) > 0
}

// heartbeatLate reports whether a resource has had no heartbeat for so long that the client may have dropped it.
func (l *ledger) heartbeatLate(a *account, r *xds.Resource) bool {
	return 3*l.now.Sub(a.ttlBegan[r.Name]) >= 2*r.TTL
}

// mayHaveExpired reports the same for the resource that was sent to the client with a name.
func (l *ledger) mayHaveExpired(a *account, n string) bool {
	r := a.lastSent[n].res
	return r != nil && r.TTL > 0 && l.ttl && l.heartbeatLate(a, r)
}

// missingHeartbeat returns a complaint if a resource has had no heartbeat for longer than a third of its TTL, although
// nothing delayed it, or "".
func (l *ledger) missingHeartbeat(a *account) string {
	if a.unsettled {
		a.processedAt, a.unsettled = l.now, false
	}
	if !l.ttl || a.nacked && a.world || len(a.flights) > 0 {
		return ""
	}
	for _, r := range l.expiring(a) {
		n := r.Name
		if a.lastSent[n].left || l.shown(a, n) == nil && l.mayBeRemoved(a, n) {
			continue
		}
		if !a.ttlBegan[n].IsZero() && l.heartbeatLate(a, r) {
			continue // the resource must be sent again
		}
		// No heartbeat was due while a new state of the resource waited.
		if since := latest(a.ttlBegan[n], a.processedAt, a.removed[n].at); l.now.Sub(since) > r.TTL/3 {
			return fmt.Sprintf("TTL-3: %s has had no heartbeat for %v", show(r), l.now.Sub(since))
		}
	}
	return ""
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// checkResourceErrors checks resource_errors: only for subscribed names that do not exist, once for each time that they
// were subscribed or removed. A refused response that is sent again may have them again.
func (l *ledger) checkResourceErrors(a *account, r *xds.Response) error {
	gone := slices.Concat(r.Removed, r.Absent)
	for i, n := range r.Missing {
		switch {
		case !l.opts.ResourceErrors:
			return fmt.Errorf("gRFC A88: %s is reported missing to a client without resource errors", n)
		case !a.names[n] || l.shown(a, n) != nil || l.matchesOthers(a, n) || slices.Contains(r.Missing[:i], n):
			return fmt.Errorf("gRFC A88: %s is reported missing, but it is not subscribed, exists or is listed twice", n)
		case l.undecided(a, n):
			return fmt.Errorf("gRFC A88: %s is reported missing, but it is undecided", n)
		case l.variant == xds.Delta && !slices.Contains(gone, n):
			return fmt.Errorf("gRFC A88: %s is reported missing, but not removed", n)
		case l.variant == xds.SotW && a.reportedMissing[n] && !a.matchedSince[n] && !l.resent(a, n):
			return fmt.Errorf("gRFC A88: %s is reported missing again", n)
		}
	}
	for _, n := range gone {
		// The resource with that name is removed, but the name may match another resource for a
		// while. After that the name is missing.
		finds := func() bool { return l.matchesOthers(a, n) || l.matchesOnlyKept(a, n) }
		if l.opts.ResourceErrors && a.names[n] && !a.scopes[n] && n != "" && !slices.Contains(r.Missing, n) && !l.allows(finds, keeping...) {
			return fmt.Errorf("gRFC A88: %s is removed, but not reported missing", n)
		}
	}
	return nil
}
