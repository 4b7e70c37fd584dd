package protocoltest

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// overdue returns what the session should have sent by now, or "". It is asked when the session has sent all that
// it wants to send. It looks only at types without an unanswered response.
func (l *ledger) overdue() string {
	for _, a := range l.accounts {
		if l.waitsForAnswer(a) || l.waitsForView(a) {
			continue
		}
		waits := l.mayWait(a)
		for _, n := range l.knownNames(a) {
			what := l.lacks(a, n)
			if what == "" {
				delete(a.due, n)
				continue
			}
			since(a.due, n, l.now)
			inside := l.waitsInside(a, n) && len(a.flights) > 0
			if !waits && !inside {
				return fmt.Sprintf("%s: %s %s", a.typ, n, what)
			}
		}
	}
	return ""
}

// waitsForView reports whether a full state waits because the view is still looking for a name.
func (l *ledger) waitsForView(a *account) bool { return a.full && l.hasUndecided(a) }

// mayWait reports whether resources of a type may wait for other resources: for clusters that were sent and not
// accepted, or that are unknown to the view.
func (l *ledger) mayWait(a *account) bool {
	if len(a.refused) > 0 {
		return true // a refused response is sent again as a whole, or not at all
	}
	if a.typ.After == nil || l.only != nil {
		return false
	}
	first := l.account(a.typ.After)
	if first == nil {
		return l.resumes && l.now.Sub(l.began) < opensWithin
	}
	return len(first.flights) > 0 || len(first.refused) > 0 || l.hasUndecided(first) || slices.ContainsFunc(l.knownNames(first), func(n string) bool { return l.lacks(first, n) != "" })
}

// lacks returns what must still be sent about a name when nothing delays it, or "".
func (l *ledger) lacks(a *account, n string) string {
	if _, refused := a.refused[n]; refused || n == "" || !a.covers(n) {
		return ""
	}
	switch is := l.shown(a, n); {
	case is != nil:
		delete(a.lost, n)
		if !a.lastSent[n].is(is) {
			return "must be sent"
		}
		return ""
	case l.undecided(a, n) || l.withholds(a, n):
		return ""
	}
	return l.lacksRemoval(a, n)
}

// lacksRemoval is the same for a name that the view does not have.
func (l *ledger) lacksRemoval(a *account, n string) string {
	switch {
	case !a.lastSent[n].absent():
		if l.removes(a) && !l.mayBeKept(a, n) {
			return "must be removed"
		}
	case l.variant == xds.Delta:
		if a.names[n] && !l.isAnswered(a, n) {
			return "must be answered with a removal"
		}
	case l.owesError(a, n) && !l.mayBeKept(a, n):
		return "must be reported missing"
	}
	return ""
}

// owesError reports whether the client must get an error for a subscribed name that does not exist.
func (l *ledger) owesError(a *account, n string) bool {
	return l.opts.ResourceErrors && a.names[n] && !a.missing[n]
}

// removes reports whether a response can remove a resource.
func (l *ledger) removes(a *account) bool { return l.variant == xds.Delta || a.full }

// isAnswered reports whether nothing is due for a subscribed name that does not exist.
func (l *ledger) isAnswered(a *account, n string) bool {
	_, told := a.lastSent[n]
	return told || len(l.matchedBy(a, n)) > 0 || l.muted(a, n) || l.keptFor(a, n)
}

// keptFor reports whether a name matched a resource when it was sent, which may be kept.
func (l *ledger) keptFor(a *account, n string) bool {
	for _, k := range a.sentOrAcked {
		if k.version != "" || k.res != nil && matches(a.typ, k.res, n) {
			return true
		}
	}
	return false
}

// allSettled reports whether the client opened clusters, listeners and routes, and everything was sent and accepted.
func (l *ledger) allSettled() bool {
	if slices.ContainsFunc([]*xds.Type{xds.Cluster, xds.Listener, xds.Route}, func(t *xds.Type) bool { return l.account(t) == nil }) {
		return false
	}
	for _, a := range l.accounts {
		if len(a.refused) > 0 || slices.ContainsFunc(a.flights, func(f *flight) bool { return f.seq > a.answered }) {
			return false
		}
		for _, n := range l.knownNames(a) {
			if a.covers(n) && !a.lastSent[n].is(l.shown(a, n)) {
				return false
			}
		}
	}
	return true
}

// checkRest checks the stream when nothing moves any more.
func (l *ledger) checkRest(answered bool) error {
	for _, a := range l.accounts {
		if f := a.newest; answered && f != nil && slices.Contains(a.flights, f) && !f.excused {
			return fmt.Errorf("%s: nonce %s was never answered", a.typ, f.nonce)
		}
		if !l.statesInterests(a) {
			return fmt.Errorf("%s: the session is interested in %v (wildcard %v), the client subscribes to %v (wildcard %v)", a.typ, a.interest, a.interestStar, a.names, a.wildcard)
		}
	}
	if what := l.overdue(); what != "" {
		return fmt.Errorf("at rest: %s", what)
	}
	return nil
}

// statesInterests reports whether the session stated an interest in exactly the subscriptions. It may also be
// interested in the resources that they match or matched.
func (l *ledger) statesInterests(a *account) bool {
	for n := range a.interest {
		if !a.known[n] && !a.subscribes(n) && !a.matched[n] {
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
	return a.interestStar == a.coversAll()
}

// canTell reports whether a response can tell the client the state of a name.
func (l *ledger) canTell(a *account, n string) bool {
	return l.shown(a, n) != nil || l.removes(a) && a.subscribes(n)
}

// heldBack returns the subscribed names that the client has refused, by type URL.
func (l *ledger) heldBack() map[string][]string {
	out := map[string][]string{}
	for _, a := range l.accounts {
		for n, k := range a.refused {
			if n != "" && a.lastSent[n].seq == k.seq && a.covers(n) && len(l.matchedBy(a, n)) == 0 && l.canTell(a, n) {
				out[a.typ.URL] = append(out[a.typ.URL], n)
			}
		}
		slices.Sort(out[a.typ.URL])
	}
	return out
}
