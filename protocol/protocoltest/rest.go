package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// waiting names what should have left in this drain and did not, or "".
func (l *ledger) waiting() string {
	for _, a := range l.accounts {
		for x, n := range a.follows {
			if !a.told[x].absent() {
				return fmt.Sprintf("DELTA-11: %s: removes %s, an alias of %s, which stays", a.typ, n, x)
			}
		}
		if a.world && l.searching(a) {
			continue // what a world does not have does not exist
		}
		tied, asked := false, ""
		var left []string
		for _, n := range l.known(a) {
			what := l.missing(a, n)
			if what == "" {
				delete(a.tied, n)
				// The first world is all news, and so is what was refused or has expired.
				news := a.newest == nil || a.heldBack(n) || l.lapsed(a, n)
				tied = tied || a.world && news && l.tied(a, l.shown(a, n))
				// What is about to leave and told again waits like all else.
				tied = tied || a.may[n] && l.shown(a, n) == nil && l.lingering(a, n) && l.tied(a, l.content(a, n, a.told[n]))
				continue
			}
			if l.tied(a, l.shown(a, n)) {
				// What waits for the answer of its own type waits for no other yet.
				if _, ok := a.tied[n]; !ok && (a.newest == nil || l.overtakes(a, a.newest)) {
					a.tied[n] = l.now
				}
				tied = true
				continue
			}
			delete(a.tied, n)
			left = append(left, fmt.Sprintf("%s: %s %s", a.typ, n, what))
			if _, owed := a.owe[n]; owed && asked == "" {
				asked = left[len(left)-1]
			}
		}
		// "Full-state types never get body-less resources in SotW": where the world has to
		// wait, its heartbeat waits with it.
		if what := l.starving(a); what != "" && (!a.world || !tied) {
			return what
		}
		if slices.ContainsFunc(a.flights, func(f *flight) bool { return l.now.Sub(f.at) < patience }) {
			if l.hurried(a) && asked != "" {
				return asked
			}
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

// hurried reports whether a delta client has asked for something since the last
// response, so that nothing waits for its answers: "the server must honor changes to the
// subscription state even if the nonce is stale". As many as are listed may be
// unanswered; those before one that it has accepted do not count.
func (l *ledger) hurried(a *account) bool {
	open := map[int]bool{}
	for _, f := range a.flights {
		if f.seq > a.passed {
			open[f.drain] = true
		}
	}
	return l.variant == xds.Delta && a.asked && len(open) < listed
}

// muted reports whether the absence of a name may be kept back, which this client must
// not hear: for a while since it has asked for the name, whatever else it asks for.
func (l *ledger) muted(a *account, n string) bool {
	return l.now.Sub(a.lately[n]) < a.typ.Mute[l.agent]
}

// missing says what is still to be said of a name, or "".
func (l *ledger) missing(a *account, n string) string {
	named, owed := a.owe[n]
	refused := slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] && !l.unmoved(a, g) })
	if !a.covers(n) && !refused || n == "" || !owed && l.standing(a, n) {
		return ""
	}
	is := l.shown(a, n)
	k, told := a.told[n]
	again := owed || refused
	switch {
	case !a.covers(n):
		return "is gone, which was refused"
	case is != nil && (!told || !k.is(is)):
		return "differs"
	case is != nil && again:
		return "is owed"
	case is != nil || l.resolves(a, n) && k.absent():
		return ""
	case l.undecided(a, n):
		return ""
	case l.lingering(a, n):
		return "" // something refers to it, or may
	case l.variant == xds.SotW && !a.world:
		if l.opts.ResourceErrors && a.names[n] && !a.missed[n] {
			return "is owed, if only as an error"
		}
		return "" // there is no other way to say it
	case told && !k.absent():
		return "is gone"
	case l.variant == xds.SotW:
		if l.opts.ResourceErrors && a.names[n] && !a.missed[n] {
			return "is owed, if only as an error"
		}
	case a.wants(n) && (named || !told) && !l.muted(a, n):
		return "is owed, if only its absence"
	case named && a.wildcard && !l.muted(a, n):
		return "is owed, if only its absence"
	}
	return ""
}

// lingering reports whether a name may outstay the view: by itself, or as the
// alias of what does.
func (l *ledger) lingering(a *account, n string) bool {
	for x, v := range a.leaving {
		r := a.told[x].res
		if r == nil {
			r = v.res // the client has stated its version
		}
		if (x == n || r != nil && finds(a.typ, r, n)) && !l.overdue(a, x) {
			return true
		}
	}
	// Or the client may have it, which resumes or has asked for it again before it came,
	// and something that refers to it.
	if !a.before[n] && !a.comes(n) && !l.hadBefore(a, n) || l.shown(a, n) != nil {
		return false
	}
	v, _ := a.leaver(n)
	return a.walks() && l.only == nil && l.now.Sub(v.at) < silence || l.held(a, n, possibly) != ""
}

// hadBefore reports whether the client has stated a version under which it had a name by way
// of "*", and was told nothing of that since: it may ask for it by itself, too. Only SotW
// states what is not named.
func (l *ledger) hadBefore(a *account, n string) bool {
	_, told := a.told[n]
	return a.resumed && a.wildcard && !told && len(l.past.of(a.typ, n)) > 0
}

// comes reports whether a name was given up while something of it was on its way.
func (a *account) comes(n string) bool {
	return slices.ContainsFunc(a.refused[n], func(k fact) bool { return k.dropped }) ||
		slices.ContainsFunc(a.flights, func(f *flight) bool { return f.dropped[n].res != nil })
}

// outstays reports whether something of the account may outstay the view.
func (l *ledger) outstays(a *account) bool {
	for n := range a.leaving {
		if l.lingering(a, n) {
			return true
		}
	}
	return false
}

// settled checks the account when all is quiet. Names held back by a refusal
// are excused.
func (l *ledger) settled(answered, interests bool) error {
	for _, a := range l.accounts {
		if f := a.newest; answered && f != nil && !f.done && !f.excused {
			return fmt.Errorf("%s: nonce %s was never answered", a.typ, a.newest.nonce)
		}
		if interests && !l.interested(a) {
			return fmt.Errorf("%s: interested in %v (all %v), subscribed are %v (all %v)", a.typ, a.interest, a.interestStar, a.names, a.wildcard)
		}
		_, lazy := l.view.(xds.Undecided) // changes of what is on demand are none of a wildcard
		if table := l.view.Table(a.typ); a.world && a.wildcard && table.Hashed() && !lazy && len(a.groups) == 0 && !l.outstays(a) && a.version != table.Version() {
			return fmt.Errorf("%s: the client was last told version %q, the view has %q", a.typ, a.version, table.Version())
		}
		for _, n := range l.known(a) {
			if l.standing(a, n) || l.tiedToRefused(a, n) || l.lingering(a, n) {
				continue
			}
			k := a.told[n]
			is := l.shown(a, n)
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

// interested reports whether the session has said that it is interested in what
// is subscribed. It may be in what that finds, too, and in what a collection has found,
// as long as something else of it lingers.
func (l *ledger) interested(a *account) bool {
	for n := range real(a.interest) {
		if k, told := a.told[n]; !a.wants(n) && !a.reach[n] && (!told || k.absent()) && !l.collected(a, n) {
			return false
		}
	}
	for _, names := range []map[string]bool{a.names, a.scopes} {
		for n := range names {
			if n != "" && !a.interest[n] {
				return false
			}
		}
	}
	return a.interestStar == a.star()
}

// collected reports whether a name belongs to a collection that the client asks for, and of
// which something lingers.
func (l *ledger) collected(a *account, n string) bool {
	c := a.typ.Collection(n)
	if c == "" || !a.names[c] && !a.scopes[c] {
		return false
	}
	for x := range a.leaving {
		if x != n && a.typ.Collection(x) == c && l.lingering(a, x) {
			return true
		}
	}
	return false
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

// tiedToRefused reports whether a name waits for a cluster that was refused.
func (l *ledger) tiedToRefused(a *account, n string) bool {
	first := l.account(a.typ.After)
	r := l.shown(a, n)
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
		if len(a.refused) > 0 || slices.ContainsFunc(a.flights, func(f *flight) bool { return f.seq >= a.answered }) {
			return false
		}
		for _, n := range l.known(a) {
			if a.covers(n) && !a.told[n].is(l.shown(a, n)) {
				return false
			}
		}
	}
	return true
}

// outstanding are the names still held back by a refusal, by type, that are told again when
// they change: not those of a refusal in which the client wants none any more.
func (l *ledger) outstanding() map[string][]string {
	out := map[string][]string{}
	for _, a := range l.accounts {
		for _, g := range a.groups {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(g.was)), a.covers) {
				continue
			}
			for n := range g.rest {
				if !slices.Contains(out[a.typ.URL], n) && !l.resolves(a, n) {
					out[a.typ.URL] = append(out[a.typ.URL], n)
				}
			}
		}
		slices.Sort(out[a.typ.URL])
	}
	return out
}
