package protocoltest

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// settle matches an answer with its response, and returns the response.
func (l *ledger) settle(a *account, req xds.Request, stale bool) *flight {
	i := slices.IndexFunc(a.flights, func(f *flight) bool { return !f.done && f.nonce == req.Nonce })
	if i < 0 {
		if seq, known := l.nonces[req.Nonce]; l.variant == xds.Delta && known {
			a.repeated = l.now
			// A nonce of another type, or of an answered response, may refuse an earlier response
			// of this type, if later responses may no longer be tracked.
			if refused := (&flight{seq: seq}); req.Error != nil && a.newerResponses(refused) >= maxTracked {
				a.doubtMerged(refused)
			}
		}
		return nil
	}
	f := a.flights[i]
	f.done, a.unansweredSince, a.unsettled = true, l.now, true
	a.answered = max(a.answered, f.seq)
	a.nacked = req.Error != nil || a.nacked && f != a.newest
	// The parts of a split response are settled together, when all are answered.
	if !slices.ContainsFunc(a.flights, func(o *flight) bool { return o.batch == f.batch && !o.done }) {
		a.flights = slices.DeleteFunc(a.flights, func(o *flight) bool { return o.batch == f.batch })
	}
	joined := a.alternatives(f)
	beat := l.ttl && len(f.news) == 0
	unlisted := stale && f != a.newest && (len(l.nonces)-f.seq >= maxTracked || beat)
	if req.Error == nil {
		a.accepted, a.opaque = max(a.accepted, f.seq), false // a NACK does not accept the responses before it
		unheard := map[string]bool{}
		for n, k := range f.carried {
			if unlisted {
				a.doubted[n] = append(a.doubted[n], a.refused[n]...)
				unheard[n] = a.heldBefore[n] || a.unsure[n] || a.unheard[n]
			}
			k.merged = stale && a.merged(f, n)
			k.late = stale && a.newerResponses(f) > maxTracked && a.preceded(f, n)
			f.carried[n] = k
		}
		a.recordACK(f)
		maps.Copy(a.unheard, unheard)
	} else {
		for n, k := range f.carried {
			if a.opaque && a.wildcard && !a.world && !k.absent() {
				a.heldBefore[n] = true // including names that the client got through "*"
			}
		}
		a.recordNACK(f)
		for n, k := range f.carried { // a refused full-state response does not extend the TTLs of the accepted response
			if a.world && l.ttl && k.res != nil && k.res.TTL > 0 && a.acked[n].is(k.res) {
				a.maySend[n] = true
			}
		}
	}
	for n, k := range f.dropped {
		// The client may have subscribed again before the response came. Then it may hold the resource,
		// whether it refused the response or not.
		k.dropped = true
		if a.keepsName(n) || a.matchesSubscription(n, k) {
			a.refused[n] = append(a.refused[n], k)
		}
	}
	if unlisted {
		// The response may be merged with the next one and no longer tracked. The resources of it
		// that the client holds still count.
		if i := slices.IndexFunc(a.flights, func(o *flight) bool { return o.seq > f.seq }); i >= 0 {
			a.flights[i].stuck = a.flights[i].stuck || f.stuck
			was := a.flights[i].joined // the state of another part, which was answered before
			if was == nil {
				was = map[string][]fact{}
			}
			for n, ks := range joined {
				was[n] = append(was[n], ks...)
			}
			a.flights[i].joined = was
		}
		// A heartbeat has no content that the client could lack, and a later accepted heartbeat
		// covers earlier heartbeats.
		if req.Error != nil && len(f.beats) == 0 && !f.superseded {
			l.recordRefusal(a, f)
			a.doubtMerged(f)
		}
		return nil
	}
	if req.Error == nil {
		for n, k := range f.carried {
			a.doubted[n] = slices.DeleteFunc(a.doubted[n], func(r fact) bool { return r.seq < k.seq })
		}
	}
	for _, o := range a.flights {
		o.mixed = o.mixed || o.batch == f.batch && (f.mixed || req.Error != nil)
	}
	if req.Error == nil && !f.mixed && !slices.ContainsFunc(a.flights, func(o *flight) bool { return o.batch == f.batch }) {
		a.passed = max(a.passed, f.seq)
	}
	for _, o := range a.flights {
		if o.seq >= f.seq {
			break
		}
		was := a.alternatives(o)
		if l.variant == xds.SotW && !o.done { // a part that the client refused stays refused
			for n := range o.carried {
				if a.heldBefore[n] || a.unsure[n] {
					o.undone = append(o.undone, n)
				}
			}
			if !o.superseded {
				o.superseded, o.was, o.refused = true, was, map[string][]fact{}
				for n := range o.carried {
					o.refused[n] = slices.Clone(a.refused[n])
				}
			}
			a.recordACK(o)
			for n := range o.carried {
				if k := a.acked[n]; req.Error != nil && k.seq == o.seq {
					k.unsaid = slices.ContainsFunc(was[n], func(w fact) bool { return w.absent() || w.unsaid })
					a.acked[n] = k
				}
			}
			for _, n := range o.undone { // a NACK of a later response does not accept this one
				a.unheard[n] = req.Error != nil
			}
		}
		o.joined = nil
		if req.Error != nil && !o.done {
			o.joined = was // the client has not shown which content of this response it holds
		}
	}
	if req.Error != nil {
		l.recordRefusal(a, f)
	}
	return f
}

// doubtMerged records that responses merged with a refused response also count as refused, and may
// be sent again.
func (a *account) doubtMerged(f *flight) {
	for _, o := range a.flights {
		if o.seq > f.seq && a.newerResponses(o) >= maxTracked {
			for n, k := range o.carried {
				a.doubted[n] = append(a.doubted[n], k)
			}
		}
	}
	for n, k := range a.lastSent {
		held := a.covers(n) || k.absent() && (a.wildcard || a.hadFound(n, k.seq)) // the client may hold a resource whose removal it refused
		a.maySend[n] = a.maySend[n] || held && k.seq > a.passed && a.newerResponses(&flight{seq: k.seq}) >= maxTracked
	}
}

// recordRefusal records the names of one response, which the client has refused together.
func (l *ledger) recordRefusal(a *account, f *flight) {
	late := f != a.newest
	g := &group{was: map[string]*xds.Resource{}, rest: map[string]bool{}, moved: f.moved, found: f.found, at: l.now}
	refuse := func(n string, k fact) {
		g.was[n] = k.res
		// If the client refused a removal, it holds the resource, even if no name matches it now.
		g.rest[n] = (a.covers(n) || k.absent() && (a.wildcard || a.hadFound(n, k.seq))) && a.lastSent[n].seq == k.seq
		// A name subscribed while the response was in flight is due all the same. Other names of
		// the refusal are due if one of its names has changed since, or matched other resources for
		// a while.
		if late && (a.covers(n) || g.rest[n]) {
			a.maySend[n] = true // the client may hold either state
		}
		if _, owed := a.mustSend[n]; !g.rest[n] || owed || a.matchedSince[n] || !l.unchanged(a, g, n, k.res) {
			g.moved = true
		}
	}
	for n, k := range f.carried {
		refuse(n, k)
	}
	for n, k := range f.beats { // as if the heartbeat were the resource
		refuse(n, k)
	}
	maps.DeleteFunc(g.rest, func(_ string, in bool) bool { return !in })
	if len(g.rest) > 0 {
		a.groups = append(a.groups, g)
	}
	l.withhold(a)
}

// hadFound reports whether a subscribed name may have matched a resource that the client held before a
// response.
func (a *account) hadFound(n string, seq int) bool {
	return a.matchesSubscription(n, a.acked[n]) || slices.ContainsFunc(a.flights, func(f *flight) bool { return f.seq < seq && a.matchesSubscription(n, f.carried[n]) })
}

// crossed reports whether a full-state response was sent while the client did not subscribe to a name. Such a
// response proves nothing about the name.
func (a *account) crossed(nonce, name string) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool {
		_, said := f.carried[name]
		return f.nonce == nonce && !said
	})
}

// alternatives returns the states that may be in force instead of the content of a response.
func (a *account) alternatives(f *flight) map[string][]fact {
	was := map[string][]fact{}
	for n, ks := range f.joined {
		was[n] = slices.Clone(ks)
	}
	for n := range f.carried {
		was[n] = append(was[n], a.acked[n])
	}
	return was
}

// recordNACK records that the client may hold any part of a refused response.
func (a *account) recordNACK(f *flight) {
	for n, k := range f.carried {
		// The client may hold a virtual host that a wildcard of scopes matched, although the
		// removal was sent since.
		k.dropped = a.scopes != nil && a.outsideRoutes(n)
		if (a.covers(n) || a.scopes != nil) && a.acked[n].seq <= k.seq {
			a.refused[n] = append(a.refused[n], k)
		}
	}
	for _, was := range []map[string][]fact{f.joined, f.was} { // although a later answer covers this response
		for n, ks := range was {
			for _, k := range ks {
				if a.covers(n) && !k.absent() && a.acked[n].seq <= f.seq {
					a.refused[n] = append(a.refused[n], k)
				}
			}
		}
	}
	for n, ks := range f.refused { // a session that relies on the later answer need not remember these names
		if a.covers(n) && a.acked[n].seq <= f.seq {
			a.doubted[n] = append(a.doubted[n], ks...)
		}
	}
	for _, n := range f.undone {
		a.unsure[n] = a.acked[n].seq <= f.seq && a.covers(n)
	}
}

// recordACK records that the client holds the content of a response.
func (a *account) recordACK(f *flight) {
	for n, k := range f.carried {
		if (a.wildcard || a.covers(n) || k.absent() || a.matchesSubscription(n, k)) && a.acked[n].seq <= k.seq {
			a.acked[n] = k
			a.refused[n] = slices.DeleteFunc(a.refused[n], func(r fact) bool { return r.seq < k.seq })
			if len(a.refused[n]) == 0 {
				delete(a.refused, n)
			}
			delete(a.heldBefore, n)
			delete(a.unsure, n)
			delete(a.unheard, n)
		}
	}
}

// recordInterest records the interests that the session states.
func (l *ledger) recordInterest(i protocol.Interest) {
	a := l.account(i.Type)
	a.interestStar = i.Wildcard
	for _, n := range i.Added {
		a.interest[n] = n != ""
	}
	for _, n := range i.Removed {
		delete(a.interest, n)
	}
}
