package protocoltest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// beginBatch notes that the session is asked for its responses: a new batch begins.
func (l *ledger) beginBatch() {
	for _, a := range l.accounts {
		for n, v := range a.removed {
			if !v.asked {
				v.at, v.asked = l.now, true
				a.removed[n] = v
			}
		}
	}
	l.markRemovable()
	l.batch, l.rank, l.removalRank, l.sending = l.batch+1, -1, math.MaxInt, nil
	for _, a := range l.accounts {
		clear(a.follows)
		if a.drained.IsZero() {
			a.drained = l.now
		}
		// A name unsubscribed under the wildcard of its route gets no answer while it is undecided: if the
		// resource exists, the wildcard matches it.
		maps.DeleteFunc(a.mustSend, func(n string, _ bool) bool { return a.scopes != nil && !a.covers(n) && l.undecided(a, n) })
	}
}

// judgeResponse judges a response and records it.
func (l *ledger) judgeResponse(r *xds.Response) error {
	a := l.account(r.Type)
	if a == nil {
		return fmt.Errorf("SOTW-6: a response of a type that the client has not requested")
	}
	if err := l.checkContents(a, r); err != nil {
		return err
	}
	if f := a.newest; f != nil && f.batch != l.batch && !l.overtakes(a, f) {
		return fmt.Errorf("SOTW-3: a response was sent while nonce %s is unanswered, for %v", f.nonce, l.now.Sub(f.at))
	}
	f := &flight{nonce: r.Nonce, at: l.now, batch: l.batch, seq: len(l.nonces), carried: map[string]fact{}, beats: map[string]fact{}, news: map[string]bool{}, fresh: map[string]bool{}, found: map[string]bool{}}
	if err := l.checkHeartbeats(a, r, f); err != nil {
		return err
	}
	if err := l.checkResourceErrors(a, r); err != nil {
		return err
	}
	if err := l.checkReason(a, r, f); err != nil {
		return err
	}
	if err := l.checkOrder(a, r, f); err != nil {
		return err
	}
	if err := l.checkAddresses(a, r); err != nil {
		return err
	}
	if err := l.checkSize(a, r); err != nil {
		return err
	}
	if err := l.checkVersion(a, r); err != nil {
		return err
	}
	l.record(a, r, f)
	return nil
}

// overtakes reports whether a response may be sent while the newest response is unanswered. One
// response is in flight per type, with two exceptions: no answer is expected soon, or a delta
// client has subscribed to more names since ("the server must honor changes to the subscription
// state even if the nonce is stale").
func (l *ledger) overtakes(a *account, f *flight) bool {
	beat := len(f.beats) > 0 && len(f.carried) == 0
	return f.done || f.excused || beat || l.lacksAssignments(a) || l.now.Sub(f.at) >= answerTimeout || l.variant == xds.Delta && a.subscribedMore
}

// checkContents checks the rules that need only the subscriptions and the view.
func (l *ledger) checkContents(a *account, r *xds.Response) error {
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
		// Of the resources that it stated or unsubscribed in flight, a client holds those that its
		// subscriptions would match.
		had := func() bool {
			return a.statedOnly(x.Name) && l.accepts(stray) || a.unsubscribedInFlight(x.Name) && l.accepts(back)
		}
		if !a.covers(x.Name) && (!a.wouldMatch(x) || !l.allows(had, stray, back)) {
			return fmt.Errorf("SOTW-9: %s is not subscribed", x.Name)
		}
		if is := l.shown(a, x.Name); !same(is, x) && (is != nil || !l.allows(func() bool { return l.maySendStale(a, x) }, aging...)) {
			return fmt.Errorf("ADS-4: %s is neither in the view nor kept for the client, which was sent %s", show(x), textOf(a.lastSent[x.Name].res))
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
		// A name unsubscribed under a wildcard gets an answer, whether the wildcard covers it or not.
		if was := func() bool { return a.heard[n] && l.accepts(heard) || a.maySend[n] && l.accepts(may) }; !a.covers(n) && !l.allows(was, heard, may) {
			return fmt.Errorf("DELTA-6: removes %s, which is not subscribed", n)
		}
		if l.shown(a, n) != nil {
			return fmt.Errorf("ADS-4: removes %s, which the view has", n)
		}
		if a.lastSent[n].absent() && a.subscribes(n) && l.matchesOthers(a, n) && (!a.statedOnly(n) || !l.excuses(stray)) {
			return fmt.Errorf("DELTA-11: removes %s, which matches another resource", n)
		}
		if k, told := a.lastSent[n]; l.undecided(a, n) && (!told || k.absent()) && (!a.statedOnly(n) || !l.excuses(stray)) {
			return fmt.Errorf("DELTA-7: removes %s, which is undecided", n)
		}
		for x, k := range a.lastSent { // a removed resource of that name is removed, whatever else the name matches
			if a.lastSent[n].absent() && k.res != nil && x != n && slices.Contains(k.res.Aliases, n) && l.lookup(a, x) == nil && a.names[n] && !a.asks(k.res, n) {
				if f, is := a.follows[x]; !is || f.precedes {
					a.follows[x] = following{n, l.aliasMayGoFirst(a, n, x)}
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
		if !l.getsAbsent(a) {
			return fmt.Errorf("DELTA-7: %s is reported absent, but this client needs a removal", n)
		}
	}
	for _, n := range r.Removed {
		if a.names[n] && !a.scopes[n] && !a.heard[n] && len(a.formerMatches(n)) == 0 && !l.heldByName(a, n) && l.getsAbsent(a) {
			return fmt.Errorf("DELTA-7: %s is removed, but this client needs it reported absent", n)
		}
	}
	if a.world {
		for x := range a.table.All() {
			if l.shown(a, x.Name) != nil && !seen[x.Name] {
				return fmt.Errorf("SOTW-8: the full-state response lacks %s", x.Name)
			}
		}
	}
	return nil
}

// heldByName reports whether the client held a resource by a name before an earlier part of the
// same batch sent that resource again. The split of a batch proves nothing about the name.
func (l *ledger) heldByName(a *account, name string) bool {
	for _, part := range a.flights {
		if part.batch != l.batch {
			continue
		}
		for x := range part.carried {
			before := a.acked[x]
			for _, f := range a.flights {
				if k, ok := f.carried[x]; ok && f.batch != l.batch && k.seq > before.seq {
					before = k
				}
			}
			if x != name && before.res != nil && matches(a.typ, before.res, name) {
				return true
			}
		}
	}
	return false
}

// aliasMayGoFirst reports whether an alias may be removed before the kept resource that it names. The client
// subscribed to the alias after the resource was removed, so the alias matched nothing and is answered at once
// (DELTA-7). Something still refers to the resource (ADS-8).
func (l *ledger) aliasMayGoFirst(a *account, alias, name string) bool {
	return !a.matchedSince[alias] && !l.mustBeRemoved(a, name)
}

// asks reports whether the client subscribes to a resource by another name than this.
func (a *account) asks(r *xds.Resource, but string) bool {
	return a.wildcard || slices.ContainsFunc(append([]string{r.Name, a.typ.Collection(r.Name)}, r.Aliases...), func(n string) bool { return n != "" && n != but && a.names[n] })
}

// maySendStale reports whether a resource that the view does not have may be sent, because it is kept for the client
// as it was last sent.
func (l *ledger) maySendStale(a *account, x *xds.Resource) bool {
	v, leaves := a.removed[x.Name]
	if !leaves {
		// It is unknown which resources the client held. A removed resource that was sent to the
		// client may also depend on another removed resource.
		brought := l.variant == xds.SotW && l.resumes && l.isReferred(a, x.Name, possibly)
		// A name that was unsubscribed and subscribed again in flight may have reached the client in between.
		// It is kept like a resource that was sent.
		who := a.vague && l.accepts(vague) || brought && l.accepts(opaque) || a.unsubscribedInFlight(x.Name) && l.accepts(back) || l.referrerRemoved(a, x.Name) && l.accepts(bereft)
		return who && l.recent(a, x.Name, x.Version) != nil
	}
	k := a.lastSent[x.Name]
	switch {
	case k.res != nil && same(x, k.res):
		return true
	case k.res == nil && k.version != "" && x.Version == k.version:
		return true
	}
	// If the state from an earlier stream is unknown, the last known state may be sent, or the state that was
	// sent. For a name unsubscribed in flight and subscribed again, only the state in flight may be sent.
	sotw := l.variant == xds.SotW
	unknown := k.absent() || sotw && k.loose && l.accepts(loose)
	one := same(x, v.res) || same(x, a.droppedInFlight(x.Name).res) && l.accepts(back) || sotw && l.resumes && l.everSent(a, x) && l.accepts(opaque)
	return unknown && one || l.referrerRemoved(a, x.Name) && l.accepts(bereft) && l.recent(a, x.Name, x.Version) != nil
}

// everSent reports whether any stream sent exactly this resource to a SotW client.
func (l *ledger) everSent(a *account, x *xds.Resource) bool {
	return slices.ContainsFunc(l.sends[a.typ.URL], func(s sending) bool {
		return slices.ContainsFunc(s.told, func(r *xds.Resource) bool { return r.Name == x.Name && same(r, x) })
	})
}

// referrerRemoved reports whether the client was sent a resource that refers to a name, and that the view has removed
// too or no longer shows to the client. Nothing that the ACK of a type depends on may wait for that ACK.
func (l *ledger) referrerRemoved(a *account, name string) bool {
	for _, by := range a.typ.ReferredBy() {
		b := l.account(by)
		if b == nil {
			if l.unopened(removal{}, possibly) {
				return true // the client holds resources of an earlier stream, with their references
			}
			continue
		}
		lost := func(n string, k fact) bool {
			r := k.res
			if k.version != "" {
				r = l.recent(b, n, k.version)
				if r == nil {
					return true // "unknown references refer to everything"
				}
			}
			return r != nil && r.MayRefer(a.typ, name, a.typ.Collection(name)) && !same(l.shown(b, n), r)
		}
		for _, facts := range []map[string]fact{b.lastSent, b.acked} {
			for n, k := range facts {
				if lost(n, k) {
					return true
				}
			}
		}
		for _, refused := range []map[string][]fact{b.refused, b.doubted} { // a client may have applied a refused resource
			for n, ks := range refused {
				if slices.ContainsFunc(ks, func(k fact) bool { return lost(n, k) }) {
					return true
				}
			}
		}
		for _, f := range b.flights {
			for n, k := range f.carried {
				// A stated resource that the client subscribed to later may be held until the client hears of
				// its removal.
				if lost(n, k) || k.absent() && b.statedOnly(n) && b.claimsSubscription(n) {
					return true
				}
			}
			for n, before := range f.joined { // or the state before a response that may no longer be tracked
				if slices.ContainsFunc(before, func(k fact) bool { return lost(n, k) }) {
					return true
				}
			}
			for n, k := range f.dropped { // or a name unsubscribed in flight, if it is subscribed again or may be
				if b.covers(n) || lost(n, k) {
					return true
				}
			}
		}
	}
	return false
}

// mayResend reports whether a name may be sent again although nothing changed.
func (l *ledger) mayResend(a *account, n string) bool {
	_, owed := a.mustSend[n]
	if a.maySend[n] && l.accepts(may) || owed || l.warm[[2]string{a.typ.URL, n}] || l.mayHaveExpired(a, n) && l.accepts(lapsed) {
		return true
	}
	return slices.ContainsFunc(a.groups, func(g *group) bool {
		return g.rest[n] && (g.moved || l.mayRetry(g) || g.warmed == l.batch || l.resentWithCluster(a, g))
	})
}

// resent reports whether a refused name may be sent again.
func (l *ledger) resent(a *account, n string) bool {
	return slices.ContainsFunc(a.groups, func(g *group) bool { return g.rest[n] && (g.moved || l.mayRetry(g)) })
}

// mayRetry reports whether refused content may be sent again although it has not changed (HEAL-2): 5 s after the
// refusal, or a second after it if the client may have accepted a resource to which the content refers.
func (l *ledger) mayRetry(g *group) bool {
	after := 5 * time.Second
	for _, r := range g.was {
		if r != nil && len(r.Refs) > 0 {
			after = time.Second
		}
	}
	return l.opts.Retry != nil && l.now.Sub(g.at) >= after
}

// resentWithCluster reports whether a part of a refused response is sent again with its cluster. Then the whole response
// may be sent again.
func (l *ledger) resentWithCluster(a *account, g *group) bool {
	for n := range g.was {
		if l.warm[[2]string{a.typ.URL, n}] {
			return true
		}
	}
	return false
}

// checkReason checks that the response has a reason. "The management server should only send updates to the Envoy
// client when the resources in the DiscoveryResponse have changed."
func (l *ledger) checkReason(a *account, r *xds.Response, f *flight) error {
	reason := len(f.beats) > 0 || len(r.Missing) > 0
	var again []string // names of a full-state response, which may send a name again
	for _, x := range r.Upserts {
		f.carried[x.Name] = fact{res: x, seq: f.seq}
		k, told := a.lastSent[x.Name]
		switch {
		case !told || !k.is(x):
			f.news[x.Name], f.fresh[x.Name], reason = true, true, true
			f.forward = f.forward || l.shown(a, x.Name) != nil
		case a.world && l.mayResend(a, x.Name), !a.world && l.allows(func() bool { return l.mayResend(a, x.Name) }, may, lapsed):
			f.fresh[x.Name], reason = true, reason || !a.world
			if a.world {
				again = append(again, x.Name)
			}
			if _, owed := a.mustSend[x.Name]; owed { // in a full-state response a kept resource does not count as news
				f.forward = f.forward || !a.world || l.shown(a, x.Name) != nil
			}
		case a.world:
			f.fresh[x.Name] = a.heldBack(x.Name) // a full-state response sends refused resources again with the news
		default:
			return fmt.Errorf("DELTA-12, DELTA-15: %s was sent before, has not changed and was not requested", x.Name)
		}
	}
	for _, n := range slices.Concat(r.Removed, r.Absent) {
		f.found[n] = l.matchesOthers(a, n)
		f.carried[n] = fact{seq: f.seq, found: f.found[n] || l.matchesOnlyKept(a, n) && !slices.Contains(r.Missing, n)}
		k, told := a.lastSent[n]
		switch d := a.typ.AbsenceDelay[l.agent]; {
		case d > 0 && !a.heard[n] && l.now.Sub(a.firstSubscribed[n]) < d:
			return fmt.Errorf("DELTA-7: %s was never sent, and this client must not get its removal yet", n)
		case l.allows(func() bool {
			return told && !k.absent() || l.mayResend(a, n) ||
				!told && a.heard[n] && l.accepts(heard) || // unsubscribed while a response about it was in flight
				a.statedOnly(n) && l.accepts(stray) || a.subscribes(n) && (!told || a.matchedSince[n]) || // it has matched a resource, or was never sent
				l.emptyCollection(a, n)
		}, may, lapsed, heard, stray):
			reason = true
		default:
			return fmt.Errorf("DELTA-8: removes %s, which the client does not hold and did not request", n)
		}
	}
	if a.world {
		for n, k := range a.lastSent {
			if _, in := f.carried[n]; !in && a.covers(n) {
				f.carried[n] = fact{seq: f.seq}
				reason = reason || !k.absent() && !l.withholds(a, n) || l.resent(a, n)
			}
		}
		for n := range a.names {
			if _, in := f.carried[n]; !in {
				f.carried[n] = fact{seq: f.seq}
			}
		}
	}
	// An answer may be left out only if the stated version is current. Here it is older, although nothing
	// changed that the client subscribes to.
	older := a.newest == nil && a.version != "" && a.version != r.Version
	if !reason && !a.answer && !older && (!a.world || !l.expires(a)) && !l.allows(func() bool {
		return a.mayAnswerEmpty && l.accepts(lax) || slices.ContainsFunc(again, func(n string) bool { return l.mayResend(a, n) })
	}, lax, may, lapsed) {
		return fmt.Errorf("SOTW-6, SOTW-9, DELTA-15: nothing changed since the last response, and nothing was requested")
	}
	return nil
}

// checkVersion checks the version. Kept resources count in the version of a full-state response. In other responses
// they may count.
func (l *ledger) checkVersion(a *account, r *xds.Response) error {
	table := a.table
	want := table.Version()
	switch lost := func(n string) bool { return table.Lookup(n) == nil && l.referrerRemoved(a, n) }; {
	case a.world:
		want = table.VersionWith(func(yield func(*xds.Stamp) bool) {
			for _, x := range r.Upserts {
				if !same(l.shown(a, x.Name), x) && !yield(x.Stamp) {
					return
				}
			}
		})
	case r.Version == want, l.allows(func() bool {
		return len(a.removed) > 0 || l.resumes && l.variant == xds.Delta || a.vague && l.accepts(vague) ||
			l.accepts(bereft) && slices.ContainsFunc(slices.Collect(maps.Keys(a.names)), lost)
	}, vague, bereft, unopened):
		return nil
	}
	if r.Version != want {
		return fmt.Errorf("SOTW-13: version %q, want %q", r.Version, want)
	}
	return nil
}

// emptyCollection reports whether a name is that of an empty collection, which the first answer to a wildcard reports on
// a stream of its own: Envoy's first VHDS request has no names, and waits 15 s unless something under route/ is
// answered (OND-4).
func (l *ledger) emptyCollection(a *account, n string) bool {
	route, collection := strings.CutSuffix(n, "/*")
	return l.only != nil && a.typ.Parent != nil && a.wildcard && collection && len(a.lastSent) == 0 && l.view.Table(a.typ.Parent).Lookup(route) != nil && !l.matchesOthers(a, n)
}
