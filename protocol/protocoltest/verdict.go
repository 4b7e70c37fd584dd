package protocoltest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// begun notes that the session is asked for its responses.
func (l *ledger) begun() {
	for _, a := range l.accounts {
		for n, v := range a.leaving {
			if !v.asked {
				v.at, v.asked = l.now, true
				a.leaving[n] = v
			}
		}
	}
	l.release()
	l.drain, l.rank, l.falling, l.telling = l.drain+1, -1, math.MaxInt, nil
	for _, a := range l.accounts {
		clear(a.follows)
		if a.drained.IsZero() {
			a.drained = l.now
		}
		// Of what was given up under the wildcard of its route, and is not decided, nothing is
		// told: if it exists, that finds it.
		maps.DeleteFunc(a.owe, func(n string, _ bool) bool { return a.scopes != nil && !a.covers(n) && l.undecided(a, n) })
	}
}

// sent judges a response and takes it into account.
func (l *ledger) sent(r *xds.Response) error {
	a := l.account(r.Type)
	if a == nil {
		return fmt.Errorf("SOTW-6: a response of a type nobody asked for")
	}
	if err := l.wellFormed(a, r); err != nil {
		return err
	}
	if f := a.newest; f != nil && f.drain != l.drain && !l.overtakes(a, f) {
		return fmt.Errorf("SOTW-3: nonce %s is unanswered since %v, and another response left", f.nonce, l.now.Sub(f.at))
	}
	f := &flight{nonce: r.Nonce, at: l.now, drain: l.drain, seq: len(l.nonces), carried: map[string]fact{}, beats: map[string]fact{}, news: map[string]bool{}, fresh: map[string]bool{}, found: map[string]bool{}}
	if err := l.beating(a, r, f); err != nil {
		return err
	}
	if err := l.errors(a, r); err != nil {
		return err
	}
	if err := l.needed(a, r, f); err != nil {
		return err
	}
	if err := l.ordered(a, r, f); err != nil {
		return err
	}
	if err := l.small(a, r); err != nil {
		return err
	}
	if err := l.named(a, r); err != nil {
		return err
	}
	l.book(a, r, f)
	return nil
}

// overtakes reports whether a response may leave behind the newest one: one is
// in flight per type, unless its answer is not to be expected soon, or a delta
// client has asked for more since ("the server must honor changes to the
// subscription state even if the nonce is stale").
func (l *ledger) overtakes(a *account, f *flight) bool {
	beat := len(f.beats) > 0 && len(f.carried) == 0
	return f.done || f.excused || beat || l.assignless(a) || l.now.Sub(f.at) >= patience || l.variant == xds.Delta && a.asked
}

// wellFormed checks what needs no memory.
func (l *ledger) wellFormed(a *account, r *xds.Response) error {
	if _, used := l.nonces[r.Nonce]; used || r.Nonce == "" {
		return fmt.Errorf("SOTW-2: nonce %q is empty or was used before", r.Nonce)
	}
	l.nonces[r.Nonce] = len(l.nonces) + 1
	seen := map[string]bool{}
	for _, x := range r.Upserts {
		if seen[x.Name] {
			return fmt.Errorf("SOTW-14: %s twice in one response", x.Name)
		}
		seen[x.Name] = true
		// Of what the client states to have, and of what it gave up on its way, it holds what
		// its names would find.
		had := func() bool { return a.strays(x.Name) && l.grants(stray) || a.comes(x.Name) && l.grants(back) }
		if !a.covers(x.Name) && (!a.calls(x) || !l.lets(had, stray, back)) {
			return fmt.Errorf("SOTW-9: %s is not subscribed", x.Name)
		}
		if is := l.shown(a, x.Name); !same(is, x) && (is != nil || !l.lets(func() bool { return l.stale(a, x) }, aging...)) {
			return fmt.Errorf("ADS-4: %s is not what the view has, nor what was told and is leaving (%s)", show(x), textOf(a.told[x.Name].res))
		}
	}
	if l.variant == xds.SotW && len(r.Removed)+len(r.Absent) > 0 {
		return fmt.Errorf("a DiscoveryResponse cannot remove %v", r.Removed)
	}
	gone := slices.Concat(r.Removed, r.Absent)
	for _, n := range gone {
		if seen[n] {
			return fmt.Errorf("DELTA-1: %s is both present and removed, or removed twice", n)
		}
		seen[n] = true
		// What was given up under a wildcard is answered for, whether that covers it or not.
		if was := func() bool { return a.heard[n] && l.grants(heard) || a.may[n] && l.grants(may) }; !a.covers(n) && !l.lets(was, heard, may) {
			return fmt.Errorf("DELTA-6: removes %s, which is not subscribed", n)
		}
		if l.shown(a, n) != nil {
			return fmt.Errorf("ADS-4: removes %s, which the view has", n)
		}
		if a.told[n].absent() && a.wants(n) && l.resolves(a, n) && (!a.strays(n) || !l.excuses(stray)) {
			return fmt.Errorf("DELTA-11: removes %s, which finds another", n)
		}
		if k, told := a.told[n]; l.undecided(a, n) && (!told || k.absent()) && (!a.strays(n) || !l.excuses(stray)) {
			return fmt.Errorf("DELTA-7: removes %s, which may exist: that is not decided", n)
		}
		for x, k := range a.told { // what is called so itself and gone is removed, whatever else the name finds
			if a.told[n].absent() && k.res != nil && x != n && slices.Contains(k.res.Aliases, n) && l.lookup(a, x) == nil && a.names[n] && !a.asks(k.res, n) {
				if f, is := a.follows[x]; !is || f.precedes {
					a.follows[x] = following{n, l.precedes(a, n, x)}
				}
			}
		}
	}
	for _, b := range r.Beats {
		if seen[b.Name] {
			return fmt.Errorf("SOTW-14: %s twice in one response", b.Name)
		}
		seen[b.Name] = true
	}
	for _, n := range r.Absent {
		if !l.bodyless(a) {
			return fmt.Errorf("DELTA-7: %s is told absent to a client that wants it removed", n)
		}
	}
	for _, n := range r.Removed {
		if a.names[n] && !a.scopes[n] && !a.heard[n] && len(a.knownAs(n)) == 0 && !l.knewAs(a, n) && l.bodyless(a) {
			return fmt.Errorf("DELTA-7: %s is removed, and this client wants it told absent", n)
		}
	}
	if a.world {
		for x := range a.table.All() {
			if l.shown(a, x.Name) != nil && !seen[x.Name] {
				return fmt.Errorf("SOTW-8: the world lacks %s", x.Name)
			}
		}
	}
	return nil
}

// knewAs reports whether the client had something by a name before a part of this same
// response told it of that anew: that the response is split says nothing of the name.
func (l *ledger) knewAs(a *account, name string) bool {
	for _, part := range a.flights {
		if part.drain != l.drain {
			continue
		}
		for x := range part.carried {
			before := a.acked[x]
			for _, f := range a.flights {
				if k, ok := f.carried[x]; ok && f.drain != l.drain && k.seq > before.seq {
					before = k
				}
			}
			if x != name && before.res != nil && finds(a.typ, before.res, name) {
				return true
			}
		}
	}
	return false
}

// precedes reports whether an alias may go before what is about to leave: it was asked for
// after that was lost, so it has found nothing and is answered at once (DELTA-7), while
// something still refers to the other (ADS-8).
func (l *ledger) precedes(a *account, alias, name string) bool {
	return !a.turned[alias] && !l.overdue(a, name)
}

// asks reports whether a resource is asked for by another name than this.
func (a *account) asks(r *xds.Resource, but string) bool {
	return a.wildcard || slices.ContainsFunc(append([]string{r.Name, a.typ.Collection(r.Name)}, r.Aliases...), func(n string) bool { return n != "" && n != but && a.names[n] })
}

// stale reports whether a resource that the view does not have may be shown all
// the same, because it is about to leave: as the client was told of it last.
func (l *ledger) stale(a *account, x *xds.Resource) bool {
	v, leaves := a.leaving[x.Name]
	if !leaves {
		// Who knows what it had? And what it has been told of and is lost may
		// depend on what is lost with it.
		brought := l.variant == xds.SotW && l.resumes && l.held(a, x.Name, possibly)
		// What it gave up and asked for again may have come in between: that lingers
		// like what it was told.
		who := a.vague && l.grants(vague) || brought && l.grants(opaque) || a.comes(x.Name) && l.grants(back) || l.bereft(a, x.Name) && l.grants(bereft)
		return who && l.had(a, x.Name, x.Version) != nil
	}
	k := a.told[x.Name]
	switch {
	case k.res != nil && same(x, k.res):
		return true
	case k.res == nil && k.version != "" && x.Version == k.version:
		return true
	}
	// Of what it has from before, and nobody knows, it may be told the last there was, or
	// what it was told; of what it gave up on its way, and asked for again, just that.
	sotw := l.variant == xds.SotW
	unknown := k.absent() || sotw && k.loose && l.grants(loose)
	one := same(x, v.res) || same(x, a.back(x.Name).res) && l.grants(back) || sotw && l.resumes && l.toldOnce(a, x) && l.grants(opaque)
	return unknown && one || l.bereft(a, x.Name) && l.grants(bereft) && l.had(a, x.Name, x.Version) != nil
}

// toldOnce reports whether a SotW client was told just that, on whatever stream.
func (l *ledger) toldOnce(a *account, x *xds.Resource) bool {
	return slices.ContainsFunc(l.sends[a.typ.URL], func(s sending) bool {
		return slices.ContainsFunc(s.told, func(r *xds.Resource) bool { return r.Name == x.Name && same(r, x) })
	})
}

// bereft reports whether the client was told of something that refers to a name
// and that the view has lost, too, or does not show to it any more: "nothing that a
// type's ACK depends on may wait for that ACK".
func (l *ledger) bereft(a *account, name string) bool {
	for _, by := range a.typ.ReferredBy() {
		b := l.account(by)
		if b == nil {
			if l.unopened(leaver{}, possibly) {
				return true // it has what it had, and refers to what it had
			}
			continue
		}
		lost := func(n string, k fact) bool {
			r := k.res
			if k.version != "" {
				if r = l.had(b, n, k.version); r == nil {
					return true // "unknown references refer to everything"
				}
			}
			return r != nil && r.MayRefer(a.typ, name, a.typ.Collection(name)) && !same(l.shown(b, n), r)
		}
		for _, facts := range []map[string]fact{b.told, b.acked} {
			for n, k := range facts {
				if lost(n, k) {
					return true
				}
			}
		}
		for _, refused := range []map[string][]fact{b.refused, b.doubted} { // it may have applied that all the same
			for n, ks := range refused {
				if slices.ContainsFunc(ks, func(k fact) bool { return lost(n, k) }) {
					return true
				}
			}
		}
		for _, f := range b.flights {
			for n, k := range f.carried {
				// What it has brought along without asking for it, it may hold when it
				// has asked for it since, until it hears that this is gone.
				if lost(n, k) || k.absent() && b.strays(n) && b.claims(n) {
					return true
				}
			}
			for n, before := range f.joined { // or what was before a response that need not be listed any more
				if slices.ContainsFunc(before, func(k fact) bool { return lost(n, k) }) {
					return true
				}
			}
			for n, k := range f.dropped { // or what it gave up, and has asked for since, or may
				if b.covers(n) || lost(n, k) {
					return true
				}
			}
		}
	}
	return false
}

// again reports whether a name may be told again though nothing differs.
func (l *ledger) again(a *account, n string) bool {
	_, owed := a.owe[n]
	if a.may[n] && l.grants(may) || owed || l.warm[[2]string{a.typ.URL, n}] || l.lapsed(a, n) && l.grants(lapsed) {
		return true
	}
	return slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] && (g.moved || g.warmed == l.drain || l.warming(a, g)) })
}

// warming reports whether something of a refused response is sent again with its
// cluster; then all of it may be.
func (l *ledger) warming(a *account, g *group) bool {
	for n := range g.was {
		if l.warm[[2]string{a.typ.URL, n}] {
			return true
		}
	}
	return false
}

// needed checks that the response says something that had to be said. "The management server should only send updates
// to the Envoy client when the resources in the DiscoveryResponse have changed."
func (l *ledger) needed(a *account, r *xds.Response, f *flight) error {
	reason := len(f.beats) > 0 || len(r.Missing) > 0
	var again []string // of a world, which may tell what it told before
	for _, x := range r.Upserts {
		f.carried[x.Name] = fact{res: x, seq: f.seq}
		k, told := a.told[x.Name]
		switch {
		case !told || !k.is(x):
			f.news[x.Name], f.fresh[x.Name], reason = true, true, true
			f.forward = f.forward || l.shown(a, x.Name) != nil
		case a.world && l.again(a, x.Name), !a.world && l.lets(func() bool { return l.again(a, x.Name) }, may, lapsed):
			f.fresh[x.Name], reason = true, reason || !a.world
			if a.world {
				again = append(again, x.Name)
			}
			if _, owed := a.owe[x.Name]; owed { // in a world what lingers stands beside the news
				f.forward = f.forward || !a.world || l.shown(a, x.Name) != nil
			}
		case a.world:
			f.fresh[x.Name] = a.heldBack(x.Name) // with the news it is told what it has refused
		default:
			return fmt.Errorf("DELTA-12, DELTA-15: %s was told before, unchanged and unasked", x.Name)
		}
	}
	for _, n := range slices.Concat(r.Removed, r.Absent) {
		f.found[n] = l.resolves(a, n)
		f.carried[n] = fact{seq: f.seq, found: f.found[n] || l.stillFinds(a, n) && !slices.Contains(r.Missing, n)}
		k, told := a.told[n]
		switch d := a.typ.AbsenceDelay[l.agent]; {
		case d > 0 && !a.heard[n] && l.now.Sub(a.since[n]) < d:
			return fmt.Errorf("DELTA-7: %s was never told, and this client must not hear that it is gone", n)
		case l.lets(func() bool {
			return told && !k.absent() || l.again(a, n) ||
				!told && a.heard[n] && l.grants(heard) || // it was dropped while something of it was under way
				a.strays(n) && l.grants(stray) || a.wants(n) && (!told || a.turned[n]) || // it has found something, or was never told of
				l.empty(a, n)
		}, may, lapsed, heard, stray):
			reason = true
		default:
			return fmt.Errorf("DELTA-8: removes %s, which the client does not have and did not ask for", n)
		}
	}
	if a.world {
		for n, k := range a.told {
			if _, in := f.carried[n]; !in && a.covers(n) {
				f.carried[n] = fact{seq: f.seq}
				reason = reason || !k.absent()
			}
		}
		for n := range a.names {
			if _, in := f.carried[n]; !in {
				f.carried[n] = fact{seq: f.seq}
			}
		}
	}
	// "The server skips only [...] whose version_info equals the current version": what
	// the client states is so no more, though nothing that it wants has changed.
	older := a.newest == nil && a.version != "" && a.version != r.Version
	if !reason && !a.answer && !older && (!a.world || !l.expires(a)) && !l.lets(func() bool {
		return a.lax && l.grants(lax) || slices.ContainsFunc(again, func(n string) bool { return l.again(a, n) })
	}, lax, may, lapsed) {
		return fmt.Errorf("SOTW-6, SOTW-9, DELTA-15: nothing differs from what was told, and nothing was asked")
	}
	return nil
}

// named checks the version. What lingers counts in that of a world; of what is told by name
// it may count.
func (l *ledger) named(a *account, r *xds.Response) error {
	table := a.table
	want := table.Version()
	switch lost := func(n string) bool { return table.Lookup(n) == nil && l.bereft(a, n) }; {
	case a.world:
		want = table.VersionWith(func(yield func(*xds.Stamp) bool) {
			for _, x := range r.Upserts {
				if !same(l.shown(a, x.Name), x) && !yield(x.Stamp) {
					return
				}
			}
		})
	case r.Version == want, l.lets(func() bool {
		return len(a.leaving) > 0 || l.resumes && l.variant == xds.Delta || a.vague && l.grants(vague) ||
			l.grants(bereft) && slices.ContainsFunc(slices.Collect(maps.Keys(a.names)), lost)
	}, vague, bereft, unopened):
		return nil
	}
	if r.Version != want {
		return fmt.Errorf("SOTW-13: version %q, want %q", r.Version, want)
	}
	return nil
}

// empty reports whether a name is that of a collection with nothing in it, which the
// first answer to a wildcard on a stream of its own says: "Envoy's first VHDS request
// names nothing and waits 15 s unless something under route/ is answered" (OND-4).
func (l *ledger) empty(a *account, n string) bool {
	route, collection := strings.CutSuffix(n, "/*")
	return l.only != nil && a.typ.Parent != nil && a.wildcard && collection && len(a.told) == 0 && l.view.Table(a.typ.Parent).Lookup(route) != nil && !l.resolves(a, n)
}
