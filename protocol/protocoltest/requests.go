package protocoltest

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// receive records a request and returns the response that it answers, or nil. stale is set if the session
// found no such response. The names of a request apply before its ACK.
func (l *ledger) receive(req xds.Request, stale bool) *flight {
	t := req.Type
	if t == nil {
		t = l.only
	}
	if l.began.IsZero() {
		l.began = l.now
	}
	a := l.account(t)
	first := a == nil
	if first {
		a = l.open(t)
	}
	if req.Node != nil && !l.met {
		l.recordNode(req.Node)
	}
	if l.variant == xds.SotW {
		l.replaceNames(a, req.Names)
	} else {
		l.subscribe(a, req.Subscribe)
		l.unsubscribe(a, req.Unsubscribe)
	}
	var answered *flight
	if first {
		l.firstRequest(a, req)
	} else {
		answered = l.settle(a, req, stale)
	}
	if l.variant == xds.SotW && !a.wildcard { // a name unsubscribed on this stream is not held from an earlier one
		maps.DeleteFunc(l.past[t.URL], func(n string, _ []*xds.Resource) bool { return !a.names[n] })
	}
	for _, b := range l.accounts {
		l.updateScopes(b, a == b)
	}
	return answered
}

// recordNode records the node of the client.
func (l *ledger) recordNode(n *xds.Node) {
	l.met, l.agent = true, n.UserAgentName
	for _, a := range l.accounts { // names subscribed before the node is known are answered as for any client
		for n := range a.names {
			a.firstSubscribed[n] = time.Time{}
		}
	}
	has := func(f string) bool { return slices.Contains(n.ClientFeatures, f) }
	l.ttl = has("xds.config.supports-resource-ttl")
	if l.variant == xds.Delta {
		l.ttl = l.ttl || l.opts.ForceTTL
	} else {
		l.ttl = l.ttl && (has("xds.config.supports-resource-in-sotw") || has("xds.config.resource-in-sotw"))
	}
}

func (l *ledger) replaceNames(a *account, names []string) {
	if len(names) == 0 && a.implicit {
		return
	}
	a.implicit = false
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	star := want[xds.Wildcard]
	var dropped []string
	for n := range a.names {
		if !want[n] {
			delete(a.names, n)
			dropped = append(dropped, n)
		}
	}
	less := a.wildcard && !star
	if star != a.wildcard {
		a.wildcard = star
		if star {
			l.askAll(a)
		}
	}
	for n := range want {
		if n != xds.Wildcard && !a.names[n] {
			a.names[n] = true
			l.ask(a, n)
		}
	}
	if less && a.opaque && !a.world { // of the resources held through "*", the client keeps those that it names
		a.opaque = false
		for n := range a.names {
			a.heldBefore[n] = true
		}
	}
	for _, n := range dropped {
		// The client cannot know that the wildcard does not cover the name. It holds the resource until a
		// full-state response lacks it.
		if r := l.lookup(a, n); star && r != nil && l.shown(a, n) == nil && !a.lastSent[n].absent() && l.keepsRemoved(a) {
			a.removed[n] = removal{res: r, at: l.now}
		}
	}
	a.trim()
}

func (l *ledger) subscribe(a *account, names []string) {
	for _, n := range names {
		if n != xds.Wildcard {
			a.names[n], a.lastSubscribed[n] = true, l.now
		}
	}
	l.rematch(a) // all names must match before one of them becomes due
	for _, n := range names {
		a.implicit = false
		switch n {
		case xds.Wildcard:
			if !a.wildcard && l.variant == xds.Delta {
				a.answer = true
			}
			a.wildcard = true
			l.askAll(a)
		default:
			l.ask(a, n)
		}
	}
}

func (l *ledger) unsubscribe(a *account, names []string) {
	if len(names) == 0 {
		return
	}
	if slices.Contains(names, xds.Wildcard) {
		a.wildcard, a.implicit, a.scopes = false, false, nil
	}
	var dropped []string
	for _, n := range names {
		dropped = append(dropped, l.namesEndedBy(a, n)...)
	}
	for _, n := range dropped {
		delete(a.names, n)
		delete(a.reportedMissing, n)
		delete(a.matchedSince, n) // subscribed again, it has matched nothing yet
	}
	l.rematch(a)
	for _, n := range dropped {
		if a.lastSent[n].own && a.outsideRoutes(n) {
			delete(a.removed, n) // its removal is sent at once: no route of the wildcard has it
		}
		if a.wildcard {
			a.maySend[n] = true
			found := l.matchedBy(a, n)
			if _, told := a.lastSent[n]; len(found) == 0 && !told {
				found, a.subscribedMore = a.formerMatches(n), true // the removal of these resources is due at once, whatever else matches them
			}
			if len(found) == 0 {
				a.mustSend[n], a.subscribedMore = true, true
			} else {
				delete(a.mustSend, n)
			}
			for _, r := range found {
				if a.names[r.Name] || a.matched[r.Name] {
					continue // still subscribed
				}
				a.mustSend[r.Name], a.maySend[r.Name], a.subscribedMore = true, true, true
				a.release(r.Name)
			}
			a.release(n)
			for x := range a.removed { // a kept resource matches until it is removed
				if r := a.lastSent[x].res; r != nil && matches(a.typ, r, n) {
					a.maySend[x] = true
				}
			}
		}
	}
	if slices.Contains(names, xds.Wildcard) {
		// The client may know the rest by aliases of the past.
		for n := range a.lastSent {
			if !a.names[n] && !a.matched[n] && !a.keptBehindName(n) {
				delete(a.lastSent, n)
				a.stray[n] = fact{}
			}
		}
	}
	a.trim()
}

// formerMatches returns the resources that a name matched when they were sent, if it matches
// nothing now. A client that unsubscribes from the name gives up these resources.
func (a *account) formerMatches(n string) (out []*xds.Resource) {
	for x, k := range a.lastSent {
		if x != n && k.res != nil && matches(a.typ, k.res, n) {
			out = append(out, k.res)
		}
	}
	return out
}

// namesEndedBy returns the subscribed names that end when the client unsubscribes from n: "these
// may be resource names or aliases". If n was never subscribed, no name ends.
func (l *ledger) namesEndedBy(a *account, n string) (out []string) {
	if a.names[n] {
		return []string{n}
	}
	for s := range a.names {
		for _, r := range l.matchedBy(a, s) {
			if r.Name == n && slices.Contains(r.Aliases, s) {
				out = append(out, s) // s is an alias of the resource n
			}
		}
		if a.lastSent[n].res != nil && slices.Contains(a.lastSent[n].res.Aliases, s) && a.mayMatch(s) {
			out = append(out, s) // the same, as the resource was sent
		}
		if r := l.lookup(a, s); r != nil && l.lookup(a, n) == nil && slices.Contains(r.Aliases, n) {
			out = append(out, s) // n is an alias of the resource s
		}
	}
	return out
}

// mayMatch reports whether the client was not sent the removal of a name.
func (a *account) mayMatch(name string) bool {
	k, told := a.lastSent[name]
	return !told || k.found
}

// keptBehindName reports whether a subscribed name matches a kept resource, and was not reported to match nothing.
func (a *account) keptBehindName(n string) bool {
	_, leaves := a.removed[n]
	r := a.lastSent[n].res
	if !leaves || r == nil {
		return false
	}
	for s := range a.names {
		if matches(a.typ, r, s) {
			return true
		}
	}
	return false
}

// ask records that a name is subscribed: it must be sent, whatever the client holds.
func (l *ledger) ask(a *account, n string) {
	a.mustSend[n], a.maySend[n], a.subscribedMore = true, true, true
	delete(a.reportedMissing, n)
	if _, ok := a.firstSubscribed[n]; !ok {
		a.firstSubscribed[n] = l.now
	}
	a.mayAnswerEmpty = a.mayAnswerEmpty || a.world
	l.keepResubscribed(a, n)
	for _, f := range a.flights {
		for x, k := range f.dropped {
			if a.byAlias && k.res != nil && matches(a.typ, k.res, n) {
				l.keepResubscribed(a, x)
				if v, leaves := a.removed[x]; leaves && a.typ.Collection(x) == n {
					v.loose = false // the client knows the members of a collection
					a.removed[x] = v
				}
			}
		}
	}
	a.release(n)
	for _, r := range l.matchedBy(a, n) {
		since := a.mustSend[r.Name]
		a.mustSend[r.Name], a.maySend[r.Name] = since, true // the resource may be sent; its removal is due only if it is subscribed by its own name
		a.release(r.Name)
	}
}

// keepResubscribed records that a name unsubscribed in flight is subscribed again. The response arrives all the same,
// so the resource may be kept.
func (l *ledger) keepResubscribed(a *account, n string) {
	if k := a.droppedInFlight(n); a.removed[n].res == nil && k.res != nil && l.shown(a, n) == nil && l.keepsRemoved(a) {
		a.removed[n] = removal{res: k.res, at: l.now, loose: true}
	}
}

// droppedInFlight returns the newest response in flight about a name that the client unsubscribed.
func (a *account) droppedInFlight(n string) fact {
	for _, f := range slices.Backward(a.flights) {
		if k, dropped := f.dropped[n]; dropped {
			return k
		}
	}
	return fact{}
}

func (l *ledger) askAll(a *account) {
	a.mayAnswerEmpty, a.subscribedMore = true, true
	for r := range a.table.All() {
		if l.shown(a, r.Name) == nil {
			continue
		}
		named, missed := a.mustSend[r.Name], a.reportedMissing[r.Name]
		l.ask(a, r.Name)
		a.mustSend[r.Name], a.reportedMissing[r.Name] = named, missed
	}
	for n := range a.lastSent {
		a.maySend[n] = true
		a.release(n)
	}
	for n := range a.names {
		a.maySend[n] = true
	}
	for _, f := range a.flights {
		for n := range f.dropped {
			l.keepResubscribed(a, n)
		}
	}
	for n := range a.removed {
		a.maySend[n] = true
	}
}

// release allows the names that were refused together with n to be sent again.
func (a *account) release(n string) {
	for _, g := range a.groups {
		if _, ok := g.was[n]; ok {
			g.moved = true
		}
	}
}

// keepsName reports whether the client, by its own subscriptions, keeps a name that was sent to it.
func (a *account) keepsName(n string) bool {
	if a.wildcard || a.names[n] || a.matched[n] {
		return true
	}
	refused := a.heldBack(n)
	// If the client unsubscribes from an alias, it may still hold the resource because of a
	// collection.
	back := func(k fact) bool { return k.dropped && a.matchesSubscription(n, k) }
	return a.matchesSubscription(n, a.lastSent[n]) || refused && a.matchesSubscription(n, a.acked[n]) || slices.ContainsFunc(a.refused[n], back)
}

// matchesSubscription reports whether a subscribed name matches a resource by alias or collection.
func (a *account) matchesSubscription(n string, k fact) bool {
	c := a.typ.Collection(n)
	aliased := k.res != nil && slices.ContainsFunc(k.res.Aliases, func(n string) bool { return a.names[n] })
	return a.byAlias && (aliased || !k.absent() && c != "" && a.names[c])
}

// unsubscribe records that a name is unsubscribed: the other refused names that are still subscribed may be sent
// again. If the name is subscribed once more, it is sent by itself.
func (g *group) unsubscribe(n string) {
	if _, in := g.was[n]; in {
		g.moved = true
		delete(g.was, n)
	}
}

// trim forgets names that are no longer subscribed, as the client does.
func (a *account) trim() {
	if a.wildcard {
		return
	}
	a.answer = a.answer && a.world
	gone := func(n string) bool { return !a.keepsName(n) }
	maps.DeleteFunc(a.acked, func(n string, _ fact) bool { return gone(n) })
	maps.DeleteFunc(a.refused, func(n string, _ []fact) bool { return gone(n) })
	maps.DeleteFunc(a.doubted, func(n string, _ []fact) bool { return gone(n) })
	maps.DeleteFunc(a.mustSend, func(n string, _ bool) bool { return gone(n) })
	maps.DeleteFunc(a.maySend, func(n string, _ bool) bool { return gone(n) })
	maps.DeleteFunc(a.firstSubscribed, func(n string, _ time.Time) bool { return gone(n) })
	maps.DeleteFunc(a.waitsSince, func(n string, _ time.Time) bool { return gone(n) }) // subscribed again, it waits again
	maps.DeleteFunc(a.heldBefore, func(n string, _ bool) bool { return gone(n) })
	maps.DeleteFunc(a.reportedMissing, func(n string, _ bool) bool { return !a.names[n] })
	for _, g := range a.groups {
		maps.DeleteFunc(g.rest, func(n string, _ bool) bool { return gone(n) })
		for n := range g.was {
			if gone(n) {
				g.unsubscribe(n)
			}
		}
	}
	for _, f := range a.flights {
		for n := range f.carried {
			if gone(n) {
				if f.dropped == nil {
					f.dropped = map[string]fact{}
				}
				f.dropped[n] = f.carried[n]
				delete(f.carried, n) // the client ignores it, unless it subscribes again
				f.moved = true
			}
		}
	}
	maps.DeleteFunc(a.removed, func(n string, _ removal) bool { return gone(n) })
	maps.DeleteFunc(a.lastSent, func(n string, _ fact) bool { return gone(n) })
	if len(a.names) == 0 {
		// A client need not answer a response about unsubscribed names.
		for _, f := range a.flights {
			f.excused = true
		}
		a.answer = false
	}
}
