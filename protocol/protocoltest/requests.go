package protocoltest

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// receive notes a request; stale tells that the session found nothing that it
// answers. "Names of a request apply before its ACK settles."
// It returns the response that the request answers, or nil.
func (l *ledger) receive(req xds.Request, stale bool) *flight {
	t := req.Type
	if t == nil {
		t = l.only
	}
	a := l.account(t)
	first := a == nil
	if first {
		a = l.open(t)
	}
	if req.Node != nil && l.agent == "" {
		l.agent = req.Node.UserAgentName
	}
	if l.variant == xds.SotW {
		l.replace(a, req.Names)
	} else {
		l.subscribe(a, req.Subscribe)
		l.unsubscribe(a, req.Unsubscribe)
	}
	if first {
		l.begin(a, req)
		return nil
	}
	return l.settle(a, req, stale)
}

func (l *ledger) replace(a *account, names []string) {
	if len(names) == 0 && a.implicit {
		return
	}
	a.implicit = false
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	star := want[xds.Wildcard]
	for n := range a.names {
		if !want[n] {
			delete(a.names, n)
		}
	}
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
	a.trim()
}

func (l *ledger) subscribe(a *account, names []string) {
	if len(names) > 0 {
		a.mutedUntil = l.now.Add(a.typ.Mute[l.agent])
	}
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
			a.names[n] = true
			l.ask(a, n)
		}
	}
}

func (l *ledger) unsubscribe(a *account, names []string) {
	if slices.Contains(names, xds.Wildcard) {
		a.wildcard, a.implicit = false, false
	}
	for _, n := range names {
		if !a.names[n] {
			continue // "It can simply ignore these phantom unsubscriptions."
		}
		delete(a.names, n)
		if a.wildcard {
			a.owe[n], a.may[n], a.asked = true, true, true
			a.release(n)
		}
	}
	a.trim()
}

// ask notes that a name was asked for: it is told whatever the client holds.
func (l *ledger) ask(a *account, n string) {
	a.owe[n], a.may[n], a.asked = true, true, true
	if _, ok := a.since[n]; !ok {
		a.since[n] = l.now
	}
	a.lax = a.lax || a.world
	a.release(n)
}

func (l *ledger) askAll(a *account) {
	a.lax, a.asked = true, true
	for r := range l.view.Table(a.typ).All() {
		named := a.owe[r.Name]
		l.ask(a, r.Name)
		a.owe[r.Name] = named
	}
	for n := range a.told {
		a.may[n] = true
		a.release(n)
	}
	for n := range a.names {
		a.may[n] = true
	}
	for n := range a.leaving {
		a.may[n] = true
	}
}

// release lets the refused names that were refused together with n be told.
func (a *account) release(n string) {
	for _, g := range a.groups {
		if _, ok := g.was[n]; ok {
			g.moved = true
		}
	}
}

// trim forgets what is not subscribed any more, as the client does.
func (a *account) trim() {
	if a.wildcard {
		return
	}
	a.answer = a.answer && a.world
	gone := func(n string) bool { return !a.names[n] }
	maps.DeleteFunc(a.told, func(n string, _ fact) bool { return gone(n) })
	maps.DeleteFunc(a.acked, func(n string, _ fact) bool { return gone(n) })
	maps.DeleteFunc(a.owe, func(n string, _ bool) bool { return gone(n) })
	maps.DeleteFunc(a.may, func(n string, _ bool) bool { return gone(n) })
	maps.DeleteFunc(a.since, func(n string, _ time.Time) bool { return gone(n) })
	for _, g := range a.groups {
		maps.DeleteFunc(g.rest, func(n string, _ bool) bool { return gone(n) })
		for n := range g.was {
			g.moved = g.moved || gone(n)
		}
	}
	if len(a.names) == 0 {
		// A client may drop unanswered what it no longer wants.
		for _, f := range a.flights {
			f.excused = true
		}
		a.answer = false
	}
}

// begin completes the first request of a type.
func (l *ledger) begin(a *account, req xds.Request) {
	if a.implicit && a.typ.Implicit && len(req.Unsubscribe) == 0 {
		a.wildcard = true
		l.askAll(a)
	}
	a.implicit = a.implicit && a.wildcard
	if cds := l.account(xds.Cluster); a.typ.Is(xds.Endpoint) && cds != nil {
		// "DELTA-9 [...] WARM-2 overrides": clusters are on their way.
		for c := range l.view.Table(xds.Cluster).All() {
			for _, ref := range c.Refs {
				l.warm[ref.Name] = l.warm[ref.Name] || len(cds.flights) > 0
			}
		}
	}
	// "The first request of a full-state type or of any wildcard is answered
	// even when there is nothing to send."
	a.answer = a.wildcard || a.world
	a.lax = a.answer
	table := l.view.Table(a.typ)
	if l.variant == xds.SotW {
		if a.world && a.wildcard && len(a.names) == 0 && table.Hashed() && req.Version == table.Version() && !l.refused(a.typ) {
			a.answer, a.lax, a.version = false, false, req.Version
			clear(a.owe)
			clear(a.may)
			for r := range table.All() {
				a.told[r.Name] = fact{res: r}
				a.acked[r.Name] = a.told[r.Name]
			}
		}
		return
	}
	if len(req.Initial) > 0 {
		a.answer, a.lax = false, false
	}
	for _, v := range req.Initial {
		if !a.covers(v.Name) {
			continue
		}
		a.told[v.Name] = fact{version: v.Version}
		delete(a.may, v.Name)
		r := table.Lookup(v.Name)
		if r == nil && l.lingers(a) {
			if r = table.Departed(v.Name); r != nil {
				a.leaving[v.Name] = leaver{res: r, at: l.now, change: l.changes, resumed: true}
			}
		}
		if r != nil && r.Version == v.Version {
			a.told[v.Name] = fact{res: r}
		} else {
			a.may[v.Name] = true // should the view return to it, who could know
		}
		a.acked[v.Name], a.heard[v.Name] = a.told[v.Name], true
		delete(a.owe, v.Name)
	}
}

// settle pairs an answer with its response.
func (l *ledger) settle(a *account, req xds.Request, stale bool) *flight {
	i := slices.IndexFunc(a.flights, func(f *flight) bool { return !f.done && f.nonce == req.Nonce })
	if i < 0 {
		return nil
	}
	f := a.flights[i]
	f.done, a.quiet = true, l.now
	a.nacked = req.Error != nil || a.nacked && f != a.newest
	// The parts of a split response are one flight, settled by all.
	if !slices.ContainsFunc(a.flights, func(o *flight) bool { return o.drain == f.drain && !o.done }) {
		a.flights = slices.DeleteFunc(a.flights, func(o *flight) bool { return o.drain == f.drain })
	}
	if stale && f != a.newest && len(l.nonces)-f.seq >= listed {
		return nil // it need not be listed any more
	}
	if req.Error == nil {
		a.ack(f)
	}
	if l.variant == xds.SotW {
		for _, o := range a.flights {
			if o.seq < f.seq {
				o.superseded = true
				a.ack(o)
			}
		}
	}
	if req.Error == nil {
		return f
	}
	late := f != a.newest
	g := &group{was: map[string]*xds.Resource{}, rest: map[string]bool{}}
	for n, k := range f.carried {
		g.was[n] = k.res
		g.rest[n] = a.covers(n) && a.told[n].seq == k.seq
		// What was asked for while it flew is owed all the same, and so is
		// what goes with something that has moved since.
		if late && a.covers(n) {
			a.may[n] = true // nobody can tell what the client made of both
		}
		if _, owed := a.owe[n]; !g.rest[n] || owed || !same(k.res, l.lookup(a, n)) {
			g.moved = true
		}
	}
	maps.DeleteFunc(g.rest, func(_ string, in bool) bool { return !in })
	if len(g.rest) > 0 {
		a.groups = append(a.groups, g)
	}
	return f
}

// ack notes that the client has what a response carried.
func (a *account) ack(f *flight) {
	for n, k := range f.carried {
		if a.covers(n) && a.acked[n].seq <= k.seq {
			a.acked[n] = k
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
