package protocoltest

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// waiting names what should have left in this drain and did not, or "".
func (l *ledger) waiting() string {
	for _, a := range l.accounts {
		for x, f := range a.follows {
			if !a.told[x].absent() && (!f.precedes || !l.excuses(precedes)) {
				return fmt.Sprintf("DELTA-11: %s: removes %s, an alias of %s, which stays", a.typ, f.alias, x)
			}
		}
		if a.world && l.searching(a) {
			continue // what a world does not have does not exist
		}
		tied, asked := false, ""
		var left, kept, waits []string // kept and waits: it need not leave
		names := l.known(a)
		for _, n := range names {
			what, gone := l.due(a, n)
			if gone && l.lingering(a, n) {
				kept, what = append(kept, n), ""
			}
			if what == "" {
				delete(a.tied, n)
				tied = tied || l.detains(a, n)
				continue
			}
			if l.tied(a, l.shown(a, n)) {
				// What waits for the answer of its own type waits for no other yet.
				if _, ok := a.tied[n]; !ok && (a.newest == nil || l.overtakes(a, a.newest)) {
					a.tied[n] = l.now
				}
				tied, waits = true, append(waits, n)
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
			if asked != "" && l.hurries(a) && (!l.full(a) || !l.excuses(crowded)) {
				return asked
			}
			continue // one in flight
		}
		if tied && (a.world || a.answer || a.lax) { // it is told whole, or not yet
			waits = append(waits, left...)
			if (len(waits) > 0 || a.answer) && !l.lets(func() bool { return l.detained(a, names) }, detaining...) {
				return fmt.Sprintf("%s: what waits, and what waits with it", a.typ)
			}
			continue
		}
		if a.answer && !tied {
			left = append(left, fmt.Sprintf("%s: an answer, if need be empty", a.typ))
		}
		if len(left) > 0 {
			return left[0]
		}
		for _, n := range kept {
			if !l.lets(func() bool { return l.lingering(a, n) }, keeping...) {
				return fmt.Sprintf("%s: %s is gone", a.typ, n)
			}
		}
		for _, n := range waits {
			if !l.lets(func() bool { return l.tied(a, l.shown(a, n)) }, tying...) {
				return fmt.Sprintf("%s: %s differs, or is owed", a.typ, n)
			}
		}
	}
	return ""
}

// detains reports whether a world waits, or an answer, for a name of which there is nothing
// new to say. The first world is all news, and so is what was refused or has expired; what
// is about to leave and told again waits like all else.
func (l *ledger) detains(a *account, n string) bool {
	if a.typ.After == nil {
		return false
	}
	news := a.newest == nil || a.heldBack(n) || l.lapsed(a, n) && l.grants(lapsed)
	return a.world && news && l.tied(a, l.shown(a, n)) ||
		a.may[n] && l.shown(a, n) == nil && l.tied(a, l.content(a, n, a.told[n])) && l.lingering(a, n)
}

// detained reports whether one of some names makes the others wait.
func (l *ledger) detained(a *account, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return l.missing(a, n) != "" && l.tied(a, l.shown(a, n)) || l.missing(a, n) == "" && l.detains(a, n)
	})
}

// hurries reports whether a delta client has asked for something since the last
// response, so that nothing waits for its answers: "the server must honor changes to the
// subscription state even if the nonce is stale".
func (l *ledger) hurries(a *account) bool { return l.variant == xds.Delta && a.asked }

// full reports whether as many responses are unanswered as are listed; those before one
// that it has accepted do not count.
func (l *ledger) full(a *account) bool {
	open := map[int]bool{}
	for _, f := range a.flights {
		if f.seq > a.passed {
			open[f.drain] = true
		}
	}
	return len(open) >= listed
}

// muted reports whether the absence of a name may be kept back, which this client must
// not hear: for a while since it has asked for the name, whatever else it asks for.
func (l *ledger) muted(a *account, n string) bool {
	return l.now.Sub(a.lately[n]) < a.typ.AbsenceDelay[l.agent]
}

// missing says what is still to be said of a name, or "". Not that it is gone, if something
// refers to it, or may.
func (l *ledger) missing(a *account, n string) string {
	what, gone := l.due(a, n)
	if gone && l.lingering(a, n) {
		return ""
	}
	return what
}

// due says what is to be said of a name, or ""; and whether it is that the view has lost it,
// which need not be said of what lingers.
func (l *ledger) due(a *account, n string) (what string, gone bool) {
	what = l.differs(a, n)
	return what, what != "" && a.covers(n) && l.shown(a, n) == nil
}

func (l *ledger) differs(a *account, n string) string {
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
	if _, leaves := a.leaving[n]; leaves && !l.overdue(a, n) || l.findsLingering(a, n) {
		return true
	}
	// Or the client may have it, which resumes or has asked for it again before it came,
	// and something that refers to it.
	had := a.before[n] && l.grants(opaque) || a.comes(n) && l.grants(back) || l.hadBefore(a, n) && l.grants(hadBefore)
	if !had || l.shown(a, n) != nil {
		return false
	}
	v, _ := a.leaver(n)
	return a.walks() && l.only == nil && l.now.Sub(v.at) < silence && l.grants(walks) || l.held(a, n, possibly)
}

// stillFinds reports whether a name that the client asks for, and that has found something,
// finds what outstays the view, but nothing that the view has.
func (l *ledger) stillFinds(a *account, n string) bool {
	return a.names[n] && !a.scopes[n] && a.turned[n] && !l.resolves(a, n) && l.findsLingering(a, n)
}

// findsLingering reports whether a name finds what outstays the view, as the client has it.
func (l *ledger) findsLingering(a *account, n string) bool {
	for x, v := range a.leaving {
		r := a.told[x].res
		if r == nil {
			r = v.res // the client has stated its version
		}
		if x != n && r != nil && finds(a.typ, r, n) && !l.overdue(a, x) {
			return true
		}
	}
	return false
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
