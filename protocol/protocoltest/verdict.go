package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// begun notes that the session is asked for its responses.
func (l *ledger) begun() { l.drain, l.rank = l.drain+1, -1 }

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
	f := &flight{nonce: r.Nonce, at: l.now, drain: l.drain, seq: len(l.nonces), carried: map[string]fact{}, news: map[string]bool{}, fresh: map[string]bool{}}
	if err := l.needed(a, r, f); err != nil {
		return err
	}
	if err := l.ordered(a, r, f); err != nil {
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
	return f.done || f.excused || l.assignless(a) || l.now.Sub(f.at) >= patience || l.variant == xds.Delta && a.asked
}

// wellFormed checks what needs no memory.
func (l *ledger) wellFormed(a *account, r *xds.Response) error {
	if r.Nonce == "" || l.nonces[r.Nonce] {
		return fmt.Errorf("SOTW-2: nonce %q is empty or was used before", r.Nonce)
	}
	l.nonces[r.Nonce] = true
	seen := map[string]bool{}
	for _, x := range r.Upserts {
		if seen[x.Name] {
			return fmt.Errorf("SOTW-14: %s twice in one response", x.Name)
		}
		seen[x.Name] = true
		if !a.covers(x.Name) {
			return fmt.Errorf("SOTW-9: %s is not subscribed", x.Name)
		}
		is := l.lookup(a, x.Name)
		if v := a.leaving[x.Name]; is == nil && (same(x, v.res) || slices.ContainsFunc(v.last, func(o *xds.Resource) bool { return same(x, o) })) {
			continue
		}
		if !same(is, x) {
			return fmt.Errorf("ADS-4: %s is not what the view has", show(x))
		}
	}
	if l.variant == xds.SotW && len(r.Removed) > 0 {
		return fmt.Errorf("a DiscoveryResponse cannot remove %v", r.Removed)
	}
	for _, n := range r.Removed {
		if seen[n] {
			return fmt.Errorf("DELTA-1: %s is both present and removed, or removed twice", n)
		}
		seen[n] = true
		if !a.covers(n) {
			return fmt.Errorf("DELTA-6: removes %s, which is not subscribed", n)
		}
		if l.lookup(a, n) != nil {
			return fmt.Errorf("ADS-4: removes %s, which the view has", n)
		}
	}
	if a.world {
		for x := range l.view.Table(a.typ).All() {
			if a.covers(x.Name) && !seen[x.Name] {
				return fmt.Errorf("SOTW-8: the world lacks %s", x.Name)
			}
		}
	}
	return nil
}

// again reports whether a name may be told again though nothing differs.
func (l *ledger) again(a *account, n string) bool {
	_, owed := a.owe[n]
	if a.may[n] || owed || a.typ.Is(xds.Endpoint) && l.warm[n] {
		return true
	}
	return slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] && (g.moved || l.warms(a, g)) })
}

// warms reports whether something of a refused response is sent again with its
// cluster; then all of it may be.
func (l *ledger) warms(a *account, g *group) bool {
	if a.typ.Is(xds.Endpoint) {
		for n := range g.was {
			if l.warm[n] {
				return true
			}
		}
	}
	return false
}

// needed checks that the response says something that had to be said. "The management server should only send updates
// to the Envoy client when the resources in the DiscoveryResponse have changed."
func (l *ledger) needed(a *account, r *xds.Response, f *flight) error {
	reason := a.answer || a.lax
	for _, x := range r.Upserts {
		f.carried[x.Name] = fact{res: x, seq: f.seq}
		k, told := a.told[x.Name]
		switch {
		case !told || !k.is(x):
			f.news[x.Name], f.fresh[x.Name], reason = true, true, true
			f.forward = f.forward || l.lookup(a, x.Name) != nil
		case l.again(a, x.Name):
			f.fresh[x.Name], reason = true, true
			if _, owed := a.owe[x.Name]; owed {
				f.forward = true
			}
		case a.world:
		default:
			return fmt.Errorf("DELTA-12, DELTA-15: %s was told before, unchanged and unasked", x.Name)
		}
	}
	for _, n := range r.Removed {
		f.carried[n] = fact{seq: f.seq}
		k, told := a.told[n]
		switch d := a.typ.Mute[l.agent]; {
		case d > 0 && !a.heard[n] && l.now.Sub(a.since[n]) < d:
			return fmt.Errorf("DELTA-7: %s was never told, and this client must not hear that it is gone", n)
		case told && !k.absent() || l.again(a, n):
			reason = true
		case !told && a.heard[n]:
			reason = true // it was dropped while something of it was under way
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
	if !reason {
		return fmt.Errorf("SOTW-6, SOTW-9, DELTA-15: nothing differs from what was told, and nothing was asked")
	}
	return nil
}

// ordered checks make before break.
func (l *ledger) ordered(a *account, r *xds.Response, f *flight) error {
	if l.only != nil {
		return nil
	}
	var gone []string
	for _, n := range r.Removed {
		if k, told := a.told[n]; told && !k.absent() {
			gone = append(gone, n)
		}
	}
	if a.world {
		for n, k := range a.told {
			if !k.absent() && a.covers(n) && f.carried[n].absent() {
				gone = append(gone, n)
			}
		}
	}
	if f.forward {
		if a.typ.Rank() < l.rank {
			return fmt.Errorf("ADS-2: %s follows a type of rank %d", a.typ, l.rank)
		}
		l.rank = a.typ.Rank()
	}
	for _, n := range slices.Sorted(maps.Keys(f.news)) {
		if err := l.early(a, l.lookup(a, n)); err != nil {
			return err
		}
	}
	for _, n := range gone {
		if err := l.hasty(a, n); err != nil {
			return err
		}
	}
	return nil
}

// early checks that the clusters a resource refers to are with the client:
// "CDS updates (if any) must always be pushed first."
func (l *ledger) early(a *account, r *xds.Resource) error {
	first := l.account(a.typ.After)
	if r == nil || first == nil {
		return nil
	}
	for _, ref := range r.Refs {
		if !ref.Type.Is(first.typ) || !first.covers(ref.Name) || l.lookup(first, ref.Name) == nil {
			continue
		}
		if k, ok := first.told[ref.Name]; !ok || k.absent() {
			return fmt.Errorf("ADS-3: %s refers to %s, which was not told yet", show(r), ref.Name)
		}
		for _, f := range first.flights {
			late := l.silent(first) || l.now.Sub(f.at) >= silence || !a.tied[r.Name].IsZero() && l.now.Sub(a.tied[r.Name]) >= silence
			if f.news[ref.Name] && first.acked[ref.Name].absent() && !f.done && !f.superseded && !late && !l.assignless(first) {
				return fmt.Errorf("ADS-3: %s refers to %s, which nonce %s brought and the client did not answer yet", show(r), ref.Name, f.nonce)
			}
		}
	}
	return nil
}

// assignless reports whether an unanswered response has a cluster without an
// assignment, so that its ACK may never come.
func (l *ledger) assignless(a *account) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return f.stuck })
}

// stuck reports whether a cluster that a response brought has no assignment
// now, as when it left: then nothing may wait for its ACK.
func (l *ledger) stuck(f *flight) bool {
	return slices.ContainsFunc(f.lacks, func(e string) bool { return !l.given(e) })
}

// given reports whether there is an assignment of the name to give.
func (l *ledger) given(name string) bool {
	eds := l.account(xds.Endpoint)
	return l.view.Table(xds.Endpoint).Lookup(name) != nil || eds != nil && eds.leaving[name].res != nil
}

// hasty checks that nobody may still hold something that refers to what leaves.
func (l *ledger) hasty(a *account, name string) error {
	v, ok := a.leaving[name]
	if !ok || !l.lingers(a) || v.resumed || a.told[name].res == nil {
		return nil
	}
	for _, by := range a.typ.ReferredBy() {
		b := l.account(by)
		if b == nil || b.born >= v.change {
			continue // not on the stream when it left
		}
		late := l.now.Sub(v.at) >= silence || l.silent(b)
		for _, n := range slices.Sorted(maps.Keys(b.told)) {
			last, is := b.told[n], l.lookup(b, n)
			if b.orphan[n] || is == nil && l.variant == xds.SotW && !b.world || late && !l.standing(b, n) {
				continue // it cannot be told, or kept silent for long enough
			}
			for _, k := range b.held(n, last) {
				if k.res == nil || k.is(is) || v.dangling[k.res.Sum] {
					continue
				}
				for _, ref := range k.res.Refs {
					if ref.Type.Is(a.typ) && ref.Name == name {
						return fmt.Errorf("ADS-3: %s leaves while the client may hold %s, which refers to it", name, show(k.res))
					}
				}
			}
		}
	}
	return nil
}

// silent reports whether the client has left a type unanswered for so long that
// nothing waits for it.
func (l *ledger) silent(a *account) bool {
	return a.newest != nil && !a.newest.done && l.now.Sub(a.quiet) >= silence
}

// held lists what the client may hold of a name that it was last told last.
func (a *account) held(n string, last fact) []fact {
	if a.acked[n].seq == last.seq {
		return []fact{last}
	}
	out := []fact{a.acked[n], last}
	for _, f := range a.flights {
		if k, ok := f.carried[n]; ok {
			out = append(out, k)
		}
	}
	return out
}

// named checks the version.
func (l *ledger) named(a *account, r *xds.Response) error {
	table := l.view.Table(a.typ)
	want := table.Version()
	if a.world && a.wildcard {
		want = table.VersionWith(func(yield func(*xds.Stamp) bool) {
			for _, x := range r.Upserts {
				if table.Lookup(x.Name) == nil && !yield(x.Stamp) {
					return
				}
			}
		})
	} else if len(a.leaving) > 0 {
		return nil
	}
	if r.Version != want {
		return fmt.Errorf("SOTW-13: version %q, want %q", r.Version, want)
	}
	return nil
}

// book takes a response into account.
func (l *ledger) book(a *account, r *xds.Response, f *flight) {
	a.answer, a.lax, a.asked, a.version = false, false, false, r.Version
	for n, k := range f.carried {
		a.told[n] = k
		delete(a.tied, n)
		delete(a.orphan, n)
		a.heard[n] = true
		delete(a.owe, n)
		delete(a.may, n)
		if k.absent() {
			delete(a.leaving, n)
		}
		if a.typ.Is(xds.Endpoint) {
			delete(l.warm, n)
		}
		for _, g := range a.groups {
			delete(g.rest, n)
		}
	}
	a.groups = slices.DeleteFunc(a.groups, func(g *group) bool { return len(g.rest) == 0 })
	if a.world {
		clear(a.may) // the world says of each name that it does not have it
		clear(a.owe)
	}
	if a.typ.Is(xds.Cluster) && l.only == nil {
		eds := l.account(xds.Endpoint)
		for _, x := range r.Upserts {
			for _, ref := range x.Refs {
				if !ref.Type.Is(xds.Endpoint) {
					continue
				}
				exists := l.view.Table(xds.Endpoint).Lookup(ref.Name) != nil
				f.stuck = f.stuck || !exists
				if f.news[x.Name] && !l.given(ref.Name) && l.view.Table(xds.Cluster).Lookup(x.Name) != nil {
					f.lacks = append(f.lacks, ref.Name)
				}
				l.warm[ref.Name] = true
				if eds != nil && eds.covers(ref.Name) && exists && (f.news[x.Name] || !a.world) {
					eds.owe[ref.Name], eds.may[ref.Name] = true, true
				}
			}
		}
	}
	if a.newest == nil || a.newest.done {
		a.quiet = l.now
	}
	a.flights, a.newest = append(a.flights, f), f
}

// waiting names what should have left in this drain and did not, or "".
func (l *ledger) waiting() string {
	for _, a := range l.accounts {
		tied := false
		var left []string
		for _, n := range l.known(a) {
			what := l.missing(a, n)
			if what == "" {
				continue
			}
			if l.tied(a, l.lookup(a, n)) {
				if _, ok := a.tied[n]; !ok {
					a.tied[n] = l.now
				}
				tied = true
				continue
			}
			delete(a.tied, n)
			left = append(left, fmt.Sprintf("%s: %s %s", a.typ, n, what))
		}
		if slices.ContainsFunc(a.flights, func(f *flight) bool { return l.now.Sub(f.at) < patience }) {
			continue // one in flight
		}
		if tied && (a.world || a.answer || a.lax) {
			continue // it is told whole, or not yet
		}
		if a.answer && !tied {
			left = append(left, fmt.Sprintf("%s: an answer, if need be empty", a.typ))
		}
		if len(left) > 0 {
			return left[0]
		}
	}
	return ""
}

// missing says what is still to be said of a name, or "".
func (l *ledger) missing(a *account, n string) string {
	named, owed := a.owe[n]
	if !a.covers(n) || n == "" || !owed && l.standing(a, n) {
		return ""
	}
	is := l.lookup(a, n)
	k, told := a.told[n]
	again := owed || slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] && !l.unmoved(a, g) })
	switch {
	case is != nil && (!told || !k.is(is)):
		return "differs"
	case is != nil && again:
		return "is owed"
	case is != nil:
		return ""
	case l.variant == xds.SotW && !a.world:
		return "" // there is no way to say it
	case a.leaving[n].res != nil:
		return "" // it may linger; see settled
	case told && !k.absent():
		return "is gone"
	case l.variant == xds.Delta && named && !l.now.Before(a.mutedUntil):
		return "is owed, if only its absence"
	}
	return ""
}

// tied reports whether a resource rightly waits for clusters on their way. The
// first of the two bounds is what ADS-6 allows; what is not known to refer to
// anything else waits for all of them.
func (l *ledger) tied(a *account, r *xds.Resource) bool {
	first := l.account(a.typ.After)
	if r == nil || first == nil || l.only != nil {
		return false
	}
	on := func(c string) bool {
		if !first.covers(c) {
			return false
		}
		for _, f := range first.flights {
			if (f.fresh[c] || l.lookup(first, c) == nil) && l.now.Sub(f.at) < silence && !l.stuck(f) {
				return true
			}
		}
		return l.missing(first, c) != "" || l.standing(first, c)
	}
	if r.Refs != nil {
		return slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(first.typ) && on(ref.Name) })
	}
	return slices.ContainsFunc(first.flights, func(f *flight) bool { return l.now.Sub(f.at) < silence && !l.stuck(f) }) ||
		slices.ContainsFunc(l.known(first), on)
}

// settled checks the account when all is quiet. Names held back by a refusal
// are excused.
func (l *ledger) settled(answered, interests bool) error {
	for _, a := range l.accounts {
		if f := a.newest; answered && f != nil && !f.done && !f.excused {
			return fmt.Errorf("%s: nonce %s was never answered", a.typ, a.newest.nonce)
		}
		if interests && (!maps.Equal(real(a.interest), real(a.names)) || a.interestStar != a.wildcard) {
			return fmt.Errorf("%s: interested in %v (all %v), subscribed are %v (all %v)", a.typ, a.interest, a.interestStar, a.names, a.wildcard)
		}
		if table := l.view.Table(a.typ); a.world && a.wildcard && table.Hashed() && len(a.groups) == 0 && !l.spurned(a) && a.version != table.Version() {
			return fmt.Errorf("%s: the client was last told version %q, the view has %q", a.typ, a.version, table.Version())
		}
		for _, n := range l.known(a) {
			if l.standing(a, n) || l.tiedToRefused(a, n) || a.leaving[n].res != nil && l.spurned(a) {
				continue
			}
			k := a.told[n]
			is := l.lookup(a, n)
			if l.variant == xds.SotW && !a.world && is == nil {
				continue
			}
			if a.covers(n) && !k.is(is) {
				return fmt.Errorf("%s: told is %s of %s, the view has %s", a.typ, textOf(k.res)+k.version, n, textOf(is))
			}
		}
	}
	return nil
}

// real drops the name of nothing, which whoever asks for it may be told is gone.
func real(names map[string]bool) map[string]bool {
	out := map[string]bool{}
	for n := range names {
		if n != "" {
			out[n] = true
		}
	}
	return out
}

// spurned reports whether a type that may refer to the account's was refused,
// "a NACK holds it until a later ACK", or is held so itself.
func (l *ledger) spurned(a *account) bool {
	return slices.ContainsFunc(a.typ.ReferredBy(), func(t *xds.Type) bool {
		by := l.account(t)
		return by != nil && (by.nacked || len(by.groups) > 0 || len(by.leaving) > 0 && l.spurned(by))
	})
}

// tiedToRefused reports whether a name waits for a cluster that was refused.
func (l *ledger) tiedToRefused(a *account, n string) bool {
	first := l.account(a.typ.After)
	r := l.lookup(a, n)
	if first == nil || r == nil {
		return false
	}
	return slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(first.typ) && l.standing(first, ref.Name) })
}

// even reports whether clusters, listeners and routes were asked for, and all
// was told and answered.
func (l *ledger) even() bool {
	if l.account(xds.Cluster) == nil || l.account(xds.Listener) == nil || l.account(xds.Route) == nil {
		return false
	}
	for _, a := range l.accounts {
		if len(a.flights) > 0 {
			return false
		}
		for _, n := range l.known(a) {
			if a.covers(n) && !a.told[n].is(l.lookup(a, n)) {
				return false
			}
		}
	}
	return true
}

// outstanding are the names still held back by a refusal, by type.
func (l *ledger) outstanding() map[string][]string {
	out := map[string][]string{}
	for _, a := range l.accounts {
		for _, g := range a.groups {
			for n := range g.rest {
				if !slices.Contains(out[a.typ.URL], n) {
					out[a.typ.URL] = append(out[a.typ.URL], n)
				}
			}
		}
		slices.Sort(out[a.typ.URL])
	}
	return out
}
