package protocoltest

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// settle pairs an answer with its response.
func (l *ledger) settle(a *account, req xds.Request, stale bool) *flight {
	i := slices.IndexFunc(a.flights, func(f *flight) bool { return !f.done && f.nonce == req.Nonce })
	if i < 0 {
		if seq, known := l.nonces[req.Nonce]; l.variant == xds.Delta && known {
			a.repeated = l.now
			// That it is another type's, or was answered before, nobody need know when later
			// ones need not be listed any more.
			if refused := (&flight{seq: seq}); req.Error != nil && a.newer(refused) >= listed {
				a.doubt(refused)
			}
		}
		return nil
	}
	f := a.flights[i]
	f.done, a.quiet, a.stirred = true, l.now, true
	a.answered = max(a.answered, f.seq)
	a.nacked = req.Error != nil || a.nacked && f != a.newest
	// The parts of a split response are one flight, settled by all.
	if !slices.ContainsFunc(a.flights, func(o *flight) bool { return o.drain == f.drain && !o.done }) {
		a.flights = slices.DeleteFunc(a.flights, func(o *flight) bool { return o.drain == f.drain })
	}
	joined := a.instead(f)
	beat := l.ttl && len(f.news) == 0
	unlisted := stale && f != a.newest && (len(l.nonces)-f.seq >= listed || beat)
	if req.Error == nil {
		a.accepted, a.opaque = max(a.accepted, f.seq), false // a NACK says nothing of what was told before
		unheard := map[string]bool{}
		for n, k := range f.carried {
			if unlisted {
				a.doubted[n] = append(a.doubted[n], a.refused[n]...)
				unheard[n] = a.before[n] || a.unsure[n] || a.unheard[n]
			}
			k.merged = stale && a.merged(f, n)
			k.late = stale && a.newer(f) > listed && a.preceded(f, n)
			f.carried[n] = k
		}
		a.ack(f)
		maps.Copy(a.unheard, unheard)
	} else {
		for n, k := range f.carried {
			if a.opaque && a.wildcard && !a.world && !k.absent() {
				a.before[n] = true // what came by "*", too
			}
		}
		a.refuse(f)
		for n, k := range f.carried { // the world that it has refused has fed nothing of the one that it has
			if a.world && l.ttl && k.res != nil && k.res.TTL > 0 && a.acked[n].is(k.res) {
				a.may[n] = true
			}
		}
	}
	for n, k := range f.dropped {
		// Asked for again, it may have been before the response came: refused or not,
		// the client may have that.
		if k.dropped = true; a.keeps(n) || a.finding(n, k) {
			a.refused[n] = append(a.refused[n], k)
		}
	}
	if unlisted {
		// It need not be listed any more, but be one with the next; what the client has of
		// it is true all the same.
		if i := slices.IndexFunc(a.flights, func(o *flight) bool { return o.seq > f.seq }); i >= 0 {
			a.flights[i].stuck = a.flights[i].stuck || f.stuck
			was := a.flights[i].joined // of another part, which was answered before
			if was == nil {
				was = map[string][]fact{}
			}
			for n, ks := range joined {
				was[n] = append(was[n], ks...)
			}
			a.flights[i].joined = was
		}
		// A heartbeat carries nothing that it could lack, and a later one that was accepted
		// stands for those before.
		if req.Error != nil && len(f.beats) == 0 && !f.superseded {
			l.group(a, f)
			a.doubt(f)
		}
		return nil
	}
	if req.Error == nil {
		for n, k := range f.carried {
			a.doubted[n] = slices.DeleteFunc(a.doubted[n], func(r fact) bool { return r.seq < k.seq })
		}
	}
	for _, o := range a.flights {
		o.mixed = o.mixed || o.drain == f.drain && (f.mixed || req.Error != nil)
	}
	if req.Error == nil && !f.mixed && !slices.ContainsFunc(a.flights, func(o *flight) bool { return o.drain == f.drain }) {
		a.passed = max(a.passed, f.seq)
	}
	for _, o := range a.flights {
		if o.seq >= f.seq {
			break
		}
		was := a.instead(o)
		if l.variant == xds.SotW && !o.done { // a part that it has refused it has refused
			for n := range o.carried {
				if a.before[n] || a.unsure[n] {
					o.undone = append(o.undone, n)
				}
			}
			if !o.superseded {
				o.superseded, o.was, o.refused = true, was, map[string][]fact{}
				for n := range o.carried {
					o.refused[n] = slices.Clone(a.refused[n])
				}
			}
			a.ack(o)
			for n := range o.carried {
				if k := a.acked[n]; req.Error != nil && k.seq == o.seq {
					k.unsaid = slices.ContainsFunc(was[n], func(w fact) bool { return w.absent() || w.unsaid })
					a.acked[n] = k
				}
			}
			for _, n := range o.undone { // who refuses a later one has not said that it accepted this
				a.unheard[n] = req.Error != nil
			}
		}
		if o.joined = nil; req.Error != nil && !o.done {
			o.joined = was // what it has of that it has not said
		}
	}
	if req.Error != nil {
		l.group(a, f)
	}
	return f
}

// doubt notes that what has become one with a response that was refused counts as refused
// with it, and may be told again.
func (a *account) doubt(f *flight) {
	for _, o := range a.flights {
		if o.seq > f.seq && a.newer(o) >= listed {
			for n, k := range o.carried {
				a.doubted[n] = append(a.doubted[n], k)
			}
		}
	}
	for n, k := range a.told {
		a.may[n] = a.may[n] || a.covers(n) && k.seq > a.passed && a.newer(&flight{seq: k.seq}) >= listed
	}
}

// group notes what was refused together.
func (l *ledger) group(a *account, f *flight) {
	late := f != a.newest
	g := &group{was: map[string]*xds.Resource{}, rest: map[string]bool{}, moved: f.moved, found: f.found}
	refuse := func(n string, k fact) {
		g.was[n] = k.res
		// What it has refused to let go it has, though no name finds it any more.
		g.rest[n] = (a.covers(n) || k.absent() && (a.wildcard || a.hadFound(n, k.seq))) && a.told[n].seq == k.seq
		// What was asked for while it flew is owed all the same, and so is
		// what goes with something that has moved since, or found others for a while.
		if late && (a.covers(n) || g.rest[n]) {
			a.may[n] = true // nobody can tell what the client made of both
		}
		if _, owed := a.owe[n]; !g.rest[n] || owed || a.turned[n] || !l.unchanged(a, g, n, k.res) {
			g.moved = true
		}
	}
	for n, k := range f.carried {
		refuse(n, k)
	}
	for n, k := range f.beats { // as if it were the resource itself
		refuse(n, k)
	}
	maps.DeleteFunc(g.rest, func(_ string, in bool) bool { return !in })
	if len(g.rest) > 0 {
		a.groups = append(a.groups, g)
	}
}

// hadFound reports whether the client may have had something of a name before a response, by
// what it asks for still.
func (a *account) hadFound(n string, seq int) bool {
	return a.finding(n, a.acked[n]) || slices.ContainsFunc(a.flights, func(f *flight) bool { return f.seq < seq && a.finding(n, f.carried[n]) })
}

// crossed reports whether a world left while the client did not ask for a name: it says
// nothing of that.
func (a *account) crossed(nonce, name string) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool {
		_, said := f.carried[name]
		return f.nonce == nonce && !said
	})
}

// instead returns what may be in force instead of what a response carries.
func (a *account) instead(f *flight) map[string][]fact {
	was := map[string][]fact{}
	for n, ks := range f.joined {
		was[n] = slices.Clone(ks)
	}
	for n := range f.carried {
		was[n] = append(was[n], a.acked[n])
	}
	return was
}

// refuse notes that the client may have what a response carried, or any of it.
func (a *account) refuse(f *flight) {
	for n, k := range f.carried {
		// What a wildcard of scopes has found it may have, though it was told since that it is gone.
		if k.dropped = a.scopes != nil && a.outside(n); (a.covers(n) || a.scopes != nil) && a.acked[n].seq <= k.seq {
			a.refused[n] = append(a.refused[n], k)
		}
	}
	for _, was := range []map[string][]fact{f.joined, f.was} { // though an answer to a later one has passed it
		for n, ks := range was {
			for _, k := range ks {
				if a.covers(n) && !k.absent() && a.acked[n].seq <= f.seq {
					a.refused[n] = append(a.refused[n], k)
				}
			}
		}
	}
	for n, ks := range f.refused { // who passes it need not remember these
		if a.covers(n) && a.acked[n].seq <= f.seq {
			a.doubted[n] = append(a.doubted[n], ks...)
		}
	}
	for _, n := range f.undone {
		a.unsure[n] = a.acked[n].seq <= f.seq && a.covers(n)
	}
}

// ack notes that the client has what a response carried.
func (a *account) ack(f *flight) {
	for n, k := range f.carried {
		if (a.wildcard || a.covers(n) || k.absent() || a.finding(n, k)) && a.acked[n].seq <= k.seq {
			a.acked[n] = k
			if a.refused[n] = slices.DeleteFunc(a.refused[n], func(r fact) bool { return r.seq < k.seq }); len(a.refused[n]) == 0 {
				delete(a.refused, n)
			}
			delete(a.before, n)
			delete(a.unsure, n)
			delete(a.unheard, n)
		}
	}
}

// interests checks what the session says it is interested in.
func (l *ledger) interests(i protocol.Interest) {
	a := l.account(i.Type)
	a.interestStar = i.Wildcard
	for _, n := range i.Added {
		a.interest[n] = n != ""
	}
	for _, n := range i.Removed {
		delete(a.interest, n)
	}
}
