package protocoltest

import (
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// beating judges heartbeats: "a Resource with the resource unset and version
// matching the most recently sent version".
func (l *ledger) beating(a *account, r *xds.Response, f *flight) error {
	if len(r.Beats) > 0 && a.world {
		return fmt.Errorf("TTL-4: a heartbeat without bodies would empty the world")
	}
	expires := func(x *xds.Resource) bool { return x.TTL > 0 }
	if told := r.TTL && slices.ContainsFunc(slices.Concat(r.Upserts, r.Beats), expires); told && !l.ttl {
		return fmt.Errorf("TTL-1, TTL-4: a TTL is told to a client that does not support it")
	}
	if l.ttl && !r.TTL && (len(r.Beats) > 0 || slices.ContainsFunc(r.Upserts, expires)) {
		return fmt.Errorf("TTL-1: the TTL is not told")
	}
	for _, b := range r.Beats {
		k, told := a.told[b.Name]
		if !told {
			k = a.stray[b.Name] // "what [it] has not been told otherwise counts as held" (ADS-9), also once a name finds it
		}
		switch {
		case !told && b.TTL > 0 && l.lets(func() bool {
			return l.brought(a, b) && l.grants(hadBefore) || l.hadLast(a, b) && l.grants(opaque) || a.cameBack(b) && l.grants(back)
		}, keeping...):
			f.beats[b.Name] = fact{res: b}
		case b.TTL == 0 || !same(b, l.stays(a, b.Name)) && (!k.is(b) || l.shown(a, b.Name) == nil):
			return fmt.Errorf("TTL-3: a heartbeat of %s, which is not what is subscribed and expires", show(b))
		case !k.is(b) || !l.lets(func() bool { return l.accepted(a, b.Name, surely) }, doubted):
			return fmt.Errorf("TTL-5: a heartbeat of %s, which the client has not acknowledged", show(b))
		default:
			f.beats[b.Name] = fact{res: b, seq: k.seq}
			// One that comes so late does not bring back what was dropped, which may
			// have to wait until it can be told.
			a.may[b.Name] = a.may[b.Name] || l.unfed(a, b)
			a.fed[b.Name] = l.now
		}
	}
	return nil
}

// stays is what the client should keep of a name: what the view has, what it was
// told while that waits, or was told and lingers. "What stays keeps its TTL alive", and
// what has left does not stay, though it returns as another.
func (l *ledger) stays(a *account, n string) *xds.Resource {
	if r := l.shown(a, n); r != nil {
		if k := a.told[n]; k.res != nil && !k.left && !same(k.res, r) && l.tied(a, r) {
			return k.res
		}
		return r
	}
	if _, leaves := a.leaving[n]; !leaves {
		return nil
	}
	return l.content(a, n, a.told[n])
}

// brought reports whether a client has from before what the view has lost and what
// something that it may hold refers to: a SotW client that was told it, or a delta client
// that states it, and has not asked for it by a name that finds it now.
func (l *ledger) brought(a *account, r *xds.Resource) bool {
	states := a.strays(r.Name) && same(a.leaving[r.Name].res, r)
	return l.shown(a, r.Name) == nil && (states || slices.ContainsFunc(l.past.of(a.typ, r.Name), func(p *xds.Resource) bool { return same(p, r) })) && l.held(a, r.Name, possibly)
}

// cameBack reports whether the client has answered for what it gave up on its way and had
// asked for again: it may have that.
func (a *account) cameBack(r *xds.Resource) bool {
	return slices.ContainsFunc(a.refused[r.Name], func(k fact) bool { return k.dropped && k.is(r) })
}

// hadLast reports whether a SotW client has from before just what it is told to keep,
// while what else there is to say of the type has to wait; or may have, for the version
// that it states has it, and nobody knows what it had asked for.
func (l *ledger) hadLast(a *account, r *xds.Resource) bool {
	if l.variant == xds.Delta || a.world || !l.resumes || !a.covers(r.Name) {
		return false
	}
	return slices.ContainsFunc(l.past.of(a.typ, r.Name), func(p *xds.Resource) bool { return same(p, r) }) ||
		a.stated != "" && slices.ContainsFunc(slices.Concat(l.opts.Recent(a.typ), []*xds.Table{a.table}), func(t *xds.Table) bool {
			return t.Version() == a.stated && same(t.Lookup(r.Name), r)
		})
}

// feeds reports whether something that the view does not have has to be kept alive: what
// outstays it, for as long as the client holds what refers to it, and what is in force
// while its successor waits for a refused cluster.
func (l *ledger) feeds() bool {
	return l.ttl && slices.ContainsFunc(l.accounts, func(a *account) bool {
		for _, rs := range l.past[a.typ.URL] { // what it was not told here, too
			if slices.ContainsFunc(rs, func(r *xds.Resource) bool { return r.TTL > 0 && a.covers(r.Name) && l.brought(a, r) }) {
				return true
			}
		}
		for n, v := range a.leaving { // also what is not acknowledged yet, and may be at any time
			if v.res != nil && v.res.TTL > 0 && (l.brought(a, v.res) || a.told[n].is(v.res)) {
				return true
			}
		}
		outdated := func(r *xds.Resource) bool {
			return l.shown(a, r.Name) == nil || !same(l.shown(a, r.Name), r) && l.tiedToRefused(a, r.Name)
		}
		for _, facts := range a.refused { // also what it may have, though it has asked for it anew
			if slices.ContainsFunc(facts, func(k fact) bool { return k.dropped && k.res != nil && k.res.TTL > 0 && outdated(k.res) }) {
				return true
			}
		}
		return slices.ContainsFunc(l.expiring(a), outdated)
	})
}

// expiring lists what the client may drop unless it hears of it.
func (l *ledger) expiring(a *account) []*xds.Resource {
	var out []*xds.Resource
	for _, n := range l.known(a) {
		if r := l.stays(a, n); r != nil && r.TTL > 0 && a.told[n].is(r) && l.accepted(a, n, possibly) {
			out = append(out, r)
		}
	}
	return out
}

// accepted reports whether the client has acknowledged what it was told of a
// name: nothing new of it is in flight since, and nothing refused. If d is surely, it
// reports so, too, of what need not be listed any more, if a later one was acknowledged:
// a client may be taken to have dealt with that.
func (l *ledger) accepted(a *account, n string, d doubt) bool {
	if a.heldBack(n) {
		return false
	}
	return !slices.ContainsFunc(a.flights, func(f *flight) bool {
		past := d == surely && l.grants(doubted) && f.seq < a.accepted && len(l.nonces)-f.seq >= listed
		return f.news[n] && !f.done && !f.superseded && !past && f.seq > a.acked[n].seq
	})
}

// expires reports whether a world may be told again because something of it
// expires.
func (l *ledger) expires(a *account) bool {
	return l.ttl && len(l.expiring(a)) > 0
}

// unfed reports whether nothing was heard of a resource for so long that the client
// may have dropped it.
func (l *ledger) unfed(a *account, r *xds.Resource) bool {
	return 3*l.now.Sub(a.fed[r.Name]) >= 2*r.TTL
}

// lapsed reports whether that is so of what the client was told of a name.
func (l *ledger) lapsed(a *account, n string) bool {
	r := a.told[n].res
	return r != nil && r.TTL > 0 && l.ttl && l.unfed(a, r)
}

// starving names what has had no heartbeat for longer than a third of its TTL,
// though nothing was in the way, or "".
func (l *ledger) starving(a *account) string {
	if a.stirred {
		a.calm, a.stirred = l.now, false
	}
	if !l.ttl || a.nacked && a.world || len(a.flights) > 0 {
		return ""
	}
	for _, r := range l.expiring(a) {
		n := r.Name
		if a.told[n].left || l.shown(a, n) == nil && l.mayLeave(a, n) {
			continue
		}
		if !a.fed[n].IsZero() && l.unfed(a, r) {
			continue // it has to be told anew
		}
		// While it was to be something else, which waited, nothing was due of it.
		if since := latest(a.fed[n], a.calm, a.leaving[n].at); l.now.Sub(since) > r.TTL/3 {
			return fmt.Sprintf("TTL-3: %s has had no heartbeat for %v", show(r), l.now.Sub(since))
		}
	}
	return ""
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// errors judges resource_errors: of names that were asked for and do not exist,
// once for each time that they were asked for or have vanished.
func (l *ledger) errors(a *account, r *xds.Response) error {
	gone := slices.Concat(r.Removed, r.Absent)
	for i, n := range r.Missing {
		switch {
		case !l.opts.ResourceErrors:
			return fmt.Errorf("gRFC A88: nobody wants errors, and one is told of %s", n)
		case !a.names[n] || l.shown(a, n) != nil || l.resolves(a, n) || slices.Contains(r.Missing[:i], n):
			return fmt.Errorf("gRFC A88: %s is told missing, which is not asked for, or exists, or told twice", n)
		case l.undecided(a, n):
			return fmt.Errorf("gRFC A88: %s is told missing, and it is not decided whether it is", n)
		case l.variant == xds.Delta && !slices.Contains(gone, n):
			return fmt.Errorf("gRFC A88: %s is told missing, and not removed", n)
		case l.variant == xds.SotW && a.missed[n] && !a.turned[n]:
			return fmt.Errorf("gRFC A88: %s is told missing again", n)
		}
	}
	for _, n := range gone {
		// What was called so is gone, and the name may find another, if only for a while: it is missing after that.
		finds := func() bool { return l.resolves(a, n) || l.stillFinds(a, n) }
		if l.opts.ResourceErrors && a.names[n] && !a.scopes[n] && n != "" && !slices.Contains(r.Missing, n) && !l.lets(finds, keeping...) {
			return fmt.Errorf("gRFC A88: %s is removed, and not told missing", n)
		}
	}
	return nil
}
