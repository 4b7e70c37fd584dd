package protocoltest

import (
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// waiting returns what the session must still send in this batch, or "".
func (l *ledger) waiting() string {
	for _, a := range l.accounts {
		for x, f := range a.follows {
			if !a.lastSent[x].absent() && (!f.precedes || !l.excuses(precedes)) {
				return fmt.Sprintf("DELTA-11: %s: %s was removed, but not %s, which has that alias", a.typ, f.alias, x)
			}
		}
		if a.world && l.hasUndecided(a) {
			continue // a name that the full-state response lacks does not exist
		}
		tied, asked := false, ""
		var left, kept, waits []string // kept and waits need not be sent
		names := l.knownNames(a)
		for _, n := range names {
			what, gone := l.due(a, n)
			if gone && l.mayBeKept(a, n) {
				kept, what = append(kept, n), ""
			}
			if what == "" {
				delete(a.waitsSince, n)
				tied = tied || l.delaysResponse(a, n)
				continue
			}
			if l.waitsForClusters(a, l.shown(a, n)) {
				// A name that waits for an answer of its own type does not wait for another type yet.
				if _, ok := a.waitsSince[n]; !ok && (a.newest == nil || l.overtakes(a, a.newest)) {
					a.waitsSince[n] = l.now
				}
				tied, waits = true, append(waits, n)
				continue
			}
			delete(a.waitsSince, n)
			if l.waitsForAddress(a, n, nil) {
				waits = append(waits, n)
				continue
			}
			left = append(left, fmt.Sprintf("%s: %s %s", a.typ, n, what))
			if _, owed := a.mustSend[n]; owed && asked == "" {
				asked = left[len(left)-1]
			}
		}
		// A full-state type has no heartbeats without bodies in SotW (TTL-4): if the full-state response has
		// to wait, its heartbeat waits with it.
		if what := l.missingHeartbeat(a); what != "" && (!a.world || !tied) {
			return what
		}
		if slices.ContainsFunc(a.flights, func(f *flight) bool { return l.now.Sub(f.at) < answerTimeout }) {
			if asked != "" && l.cannotWait(a) && (!l.allTrackedOpen(a) || !l.excuses(crowded)) {
				return asked
			}
			continue // one in flight
		}
		if tied && (a.world || a.answer || a.mayAnswerEmpty) { // the response is sent whole or not yet
			waits = append(waits, left...)
			if (len(waits) > 0 || a.answer) && !l.allows(func() bool { return l.anyDelays(a, names) }, detaining...) {
				return fmt.Sprintf("%s: the response must be sent: nothing delays it", a.typ)
			}
			continue
		}
		if a.answer && !tied {
			left = append(left, fmt.Sprintf("%s: an answer must be sent, even an empty one", a.typ))
		}
		if len(left) > 0 {
			return left[0]
		}
		for _, n := range kept {
			if !l.allows(func() bool { return l.mayBeKept(a, n) }, keeping...) {
				return fmt.Sprintf("%s: %s must be removed", a.typ, n)
			}
		}
		for _, n := range waits {
			if !l.allows(func() bool { return l.waitsForClusters(a, l.shown(a, n)) || l.waitsForAddress(a, n, nil) }, tying...) {
				return fmt.Sprintf("%s: %s must be sent: nothing delays it", a.typ, n)
			}
		}
	}
	return ""
}

// delaysResponse reports whether a full-state response or an answer waits for a name without news. In the first
// full-state response every name is news, and so is a refused or expired one. A kept resource that is sent
// again waits like any other.
func (l *ledger) delaysResponse(a *account, n string) bool {
	if a.typ.After == nil {
		return false
	}
	news := a.newest == nil || a.heldBack(n) || l.mayHaveExpired(a, n) && l.accepts(lapsed)
	return a.world && news && l.waitsForClusters(a, l.shown(a, n)) ||
		a.maySend[n] && l.shown(a, n) == nil && l.waitsForClusters(a, l.content(a, n, a.lastSent[n])) && l.mayBeKept(a, n)
}

// anyDelays reports whether one of the names makes the others wait.
func (l *ledger) anyDelays(a *account, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return l.missing(a, n) != "" && l.waitsForClusters(a, l.shown(a, n)) || l.missing(a, n) == "" && l.delaysResponse(a, n)
	})
}

// cannotWait reports whether a delta client has subscribed to something since the last response, so that no
// answer is waited for: "the server must honor changes to the subscription state even if the nonce is stale".
func (l *ledger) cannotWait(a *account) bool { return l.variant == xds.Delta && a.subscribedMore }

// allTrackedOpen reports whether all tracked responses are unanswered. Responses before an accepted one do not count.
func (l *ledger) allTrackedOpen(a *account) bool {
	open := map[int]bool{}
	for _, f := range a.flights {
		if f.seq > a.passed {
			open[f.batch] = true
		}
	}
	return len(open) >= maxTracked
}

// muted reports whether the absence of a name may be held back. Some clients must not get it for a while after
// they subscribed to the name, whatever else they subscribe to.
func (l *ledger) muted(a *account, n string) bool {
	return l.now.Sub(a.lastSubscribed[n]) < a.typ.AbsenceDelay[l.agent]
}

// missing returns what must still be sent about a name, or "". A removal is not due while something refers to
// the name, or may.
func (l *ledger) missing(a *account, n string) string {
	what, gone := l.due(a, n)
	if gone && l.mayBeKept(a, n) {
		return ""
	}
	return what
}

// due describes what must be sent about a name, or returns "". The result gone is true for a
// removal from the view. Such a removal is not due for a kept resource.
func (l *ledger) due(a *account, n string) (what string, gone bool) {
	what = l.dueText(a, n)
	return what, what != "" && a.covers(n) && l.shown(a, n) == nil
}

func (l *ledger) dueText(a *account, n string) string {
	named, owed := a.mustSend[n]
	refused := slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] && !l.unmoved(a, g) })
	if !a.covers(n) && !refused || n == "" || !owed && l.rightlyHeldBack(a, n) {
		return ""
	}
	is := l.shown(a, n)
	k, told := a.lastSent[n]
	again := owed || refused
	switch {
	case !a.covers(n):
		return "must be removed again"
	case is != nil && (!told || !k.is(is)):
		return "must be sent"
	case is != nil && again:
		return "must be sent again"
	case is != nil || l.matchesOthers(a, n) && k.absent():
		return ""
	case l.undecided(a, n), l.withholds(a, n):
		return ""
	case l.variant == xds.SotW && !a.world:
		if l.opts.ResourceErrors && a.names[n] && !a.reportedMissing[n] {
			return "must be reported missing"
		}
		return "" // SotW cannot report it in another way
	case told && !k.absent():
		return "must be removed"
	case l.variant == xds.SotW:
		if l.opts.ResourceErrors && a.names[n] && !a.reportedMissing[n] {
			return "must be reported missing"
		}
	case a.subscribes(n) && (named || !told) && !l.muted(a, n):
		return "must be answered with a removal"
	case named && a.wildcard && !l.muted(a, n):
		return "must be answered with a removal"
	}
	return ""
}

// mayBeKept reports whether a removed name may be kept for the client: the resource itself, or an alias of a
// kept resource.
func (l *ledger) mayBeKept(a *account, n string) bool {
	if _, leaves := a.removed[n]; leaves && !l.mustBeRemoved(a, n) || l.matchesKept(a, n) {
		return true
	}
	// A resuming client may also hold the name, together with a resource that refers to it. So may
	// a client that has subscribed again in flight.
	had := a.heldBefore[n] && l.accepts(opaque) || a.unsubscribedInFlight(n) && l.accepts(back) || l.heldThroughWildcard(a, n) && l.accepts(hadBefore)
	if !had || l.shown(a, n) != nil {
		return false
	}
	v, _ := a.removedName(n)
	return a.walksByName() && l.only == nil && l.now.Sub(v.at) < silentAfter && l.accepts(walks) || l.isReferred(a, n, possibly)
}

// matchesOnlyKept reports whether a subscribed name matches only kept resources, and matched something before.
func (l *ledger) matchesOnlyKept(a *account, n string) bool {
	return a.names[n] && !a.scopes[n] && a.matchedSince[n] && !l.matchesOthers(a, n) && l.matchesKept(a, n)
}

// matchesKept reports whether a name matches a kept resource as the client has it.
func (l *ledger) matchesKept(a *account, n string) bool {
	for x, v := range a.removed {
		r := a.lastSent[x].res
		if r == nil {
			r = v.res // the client stated its version
		}
		if x != n && r != nil && matches(a.typ, r, n) && !l.mustBeRemoved(a, x) {
			return true
		}
	}
	return false
}

// heldThroughWildcard reports whether the client may hold a name through "*" by the version that it stated, and was sent
// nothing about it since. It may also subscribe to the name itself. Only SotW states unnamed resources.
func (l *ledger) heldThroughWildcard(a *account, n string) bool {
	_, told := a.lastSent[n]
	return a.resumed && a.wildcard && !told && len(l.past.of(a.typ, n)) > 0
}

// unsubscribedInFlight reports whether a name was unsubscribed while a response about it was in flight.
func (a *account) unsubscribedInFlight(n string) bool {
	return slices.ContainsFunc(a.refused[n], func(k fact) bool { return k.dropped }) ||
		slices.ContainsFunc(a.flights, func(f *flight) bool { return f.dropped[n].res != nil })
}

// anyKept reports whether any resource of the account may be kept.
func (l *ledger) anyKept(a *account) bool {
	for n := range a.removed {
		if l.mayBeKept(a, n) {
			return true
		}
	}
	return false
}
