package protocoltest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// settle ends the random events: all clients answer, and all traffic must end in time.
func (w *world) settle() {
	w.calm = true
	for _, n := range w.lanes {
		n.mute = n.forever
		n.client.calm()
		n.giveView()
		n.respond()
	}
	limit := w.settles()
	until := w.now.Add(limit)
	for range 200 * int(limit/time.Minute) {
		w.quiet()
		w.checkWarming()
		next := time.Time{}
		for _, n := range w.lanes {
			for _, d := range []time.Time{n.session.Deadline(), n.client.deadline()} {
				if !d.IsZero() && (next.IsZero() || d.Before(next)) {
					next = d
				}
			}
		}
		if next.IsZero() || next.After(until) && w.keepsAlive() {
			w.rest()
			return
		}
		if next.After(until) {
			w.fail("traffic does not end within %v: the next deadline is %v", limit, next.Sub(epoch))
		}
		w.pass(max(next.Sub(w.now), 0))
	}
	w.fail("traffic does not end: deadlines follow each other")
}

// settles returns how long traffic may go on: a minute. If a client never answers again, each type waits for
// 15 s, and the next one starts when the one before has sent (ADS-3): listeners, scopes, routes, hosts,
// clusters, assignments, endpoints.
func (w *world) settles() time.Duration {
	limit := time.Minute
	if w.terms.Retry != nil {
		limit = 15 * time.Minute
	}
	for _, n := range w.lanes {
		if n.forever {
			limit = max(limit, silentAfter*time.Duration(1+len(n.ledger.accounts)))
		}
	}
	return limit
}

// checkWarming checks that no cluster warms without need.
func (w *world) checkWarming() {
	for _, n := range w.lanes {
		if e, ok := n.client.(*envoy); ok && !n.forever {
			if what := e.coldCluster(n.ledger); what != "" {
				n.fail(errors.New(what))
			}
		}
	}
}

// quiet delivers messages until no client and no session has anything to send.
func (w *world) quiet() {
	for range 4000 { // a client that was silent for a minute may have hundreds to answer, one by one
		progress := false
		for _, n := range w.lanes {
			progress = n.request() || progress
			progress = n.deliverUp() || progress
			progress = n.respond() || progress
			progress = n.deliverDown() || progress
		}
		if !progress {
			return
		}
	}
	w.fail("traffic does not end: messages follow each other")
}

// keepsAlive reports whether only heartbeats are still to come.
func (w *world) keepsAlive() bool {
	return slices.ContainsFunc(w.lanes, func(n *lane) bool { return n.ledger.keepsAlive() })
}

// rest checks what must hold when traffic has ended.
func (w *world) rest() {
	w.pass(time.Minute)
	if w.keepsAlive() {
		w.quiet()
	}
	for _, n := range w.lanes {
		if len(n.down) > 0 && !w.keepsAlive() {
			n.fail(fmt.Errorf("%s was sent because time passed, but the session had no deadline", describeResponse(n.down[0])))
		}
		_, idles := n.session.Session.(idler)
		if err := n.ledger.settled(!n.forever, idles); err != nil {
			n.fail(err)
		}
		if n.terms.Retry != nil && !n.forever {
			n.healed()
		}
		if !n.forever { // the client did not refuse what it never answered
			n.converged()
			if err := n.atRest(); err != nil {
				n.fail(err)
			}
		}
		if err := n.client.idle(n.ledger); !n.forever && err != nil {
			n.fail(err)
		}
	}
}

// healed checks that all refused resources were sent again, now that the client accepts everything (HEAL-2).
// No SotW response removes a resource of a type without full state. A resource that the client had accepted in
// the refused state before need not be sent: the client has it in any case.
func (n *lane) healed() {
	for url, names := range n.ledger.heldBackNames() {
		a := n.ledger.account(xds.TypeOf(url))
		for _, name := range names {
			is := n.ledger.shown(a, name)
			other := func(k fact) bool { return !k.is(is) }
			if is != nil && !slices.ContainsFunc(a.mayHold(name, false, possibly), other) {
				continue
			}
			if n.cfg.Variant == xds.Delta || a.world || is != nil {
				n.fail(fmt.Errorf("HEAL-2: the client now accepts everything, but %s %s was not sent again", a.typ, name))
			}
		}
	}
}

// converged compares the resources that the client holds with the view.
func (n *lane) converged() {
	maps.DeleteFunc(n.expired, func(key [2]string, lost bool) bool { return n.client.held(xds.TypeOf(key[0]))[key[1]] != nil })
	for _, a := range n.ledger.accounts {
		held := n.client.held(a.typ)
		if held == nil {
			continue
		}
		for _, name := range n.ledger.knownNames(a) {
			is, has := n.ledger.shown(a, name), held[name]
			switch {
			case same(is, has) || n.ledger.rightlyHeldBack(a, name) || n.ledger.waitsForRefused(a, name) || !a.covers(name):
			case is == nil && n.cfg.Variant == xds.SotW && !a.world: // a removal cannot be expressed
			case !n.ledger.allows(func() bool {
				return is == nil && n.ledger.mayBeKept(a, name) || n.ledger.accepts(waitsForView) && n.ledger.waitsForView(a, name, is) ||
					has == nil && n.ledger.accepts(expired) && n.lacks(a, name) ||
					n.ledger.accepts(declined) && a.declined(name, is) // the response may no longer be tracked
			}, append(slices.Clone(keeping), waitsForView, expired, declined)...):
				n.fail(fmt.Errorf("%s: the client holds %v of %s, the view has %v", a.typ, textOf(has), name, textOf(is)))
			}
			delete(held, name)
		}
		for name, r := range held {
			gone := n.ledger.shown(a, name) == nil && (n.cfg.Variant == xds.Delta || a.world) && !n.ledger.rightlyHeldBack(a, name)
			if !gone && a.covers(name) || n.ledger.allows(func() bool {
				return n.ledger.accepts(stray) && a.statedOnly(name) || n.ledger.mayBeKept(a, name) || n.ledger.accepts(waitsForView) && n.ledger.waitsForView(a, name, nil)
			}, append(slices.Clone(keeping), waitsForView)...) {
				continue
			}
			n.fail(fmt.Errorf("%s: the client holds %s, which was removed or never subscribed", a.typ, show(r)))
		}
	}
}

// lacks reports whether the client may have dropped a name after its TTL, and may not hold it even
// at rest. There are two reasons. The heartbeat was lost in flight. Or the client has not answered
// for the name yet, like Envoy while clusters warm; before the answer the name gets no heartbeats
// (TTL-5). The name is not sent again while a later response of the type is unanswered.
func (n *lane) lacks(a *account, name string) bool {
	lost, dropped := n.expired[[2]string{a.typ.URL, name}]
	told := a.lastSent[name]
	return lost || dropped && slices.ContainsFunc(a.flights, func(f *flight) bool { return !f.done && (f.seq == told.seq || n.ledger.now.Sub(f.at) < answerTimeout) })
}

// declined reports whether the client has refused exactly this state of a name, and accepted no
// other state since. This state is not sent again, whether the response is tracked or not.
func (a *account) declined(name string, r *xds.Resource) bool {
	return r != nil && slices.ContainsFunc(a.refused[name], func(k fact) bool { return !k.dropped && same(k.res, r) })
}

func textOf(r *xds.Resource) string {
	if r == nil {
		return "nothing"
	}
	return show(r)
}

// age lets time pass while all clients answer and nothing changes. Then the clients hold what the view has,
// including resources that expire.
func (w *world) age() {
	w.calm, w.prompt = true, true
	for _, n := range w.lanes {
		n.mute = n.forever
		n.client.calm()
		n.giveView()
		n.respond()
	}
	w.quiet()
	w.pass(time.Minute)
	w.quiet()
	for _, n := range w.lanes {
		if !n.forever {
			n.converged()
		}
	}
}

// run plays a whole world.
func (w *world) run() {
	steps := w.steps()
	w.ops = steps / 8
	for range steps {
		w.step()
	}
	for w.ops > 0 {
		w.op()
	}
	if w.content.timed {
		w.age()
	}
	if e, any := w.content.rest(); any {
		w.commit(w.content.apply(e))
	}
	w.settle()
	refused := map[string][]string{}
	for _, n := range w.lanes {
		for url, names := range n.ledger.heldBackNames() {
			for _, name := range names {
				if !slices.Contains(refused[url], name) {
					refused[url] = append(refused[url], name)
				}
			}
		}
	}
	if len(refused) == 0 {
		return
	}
	// All refused resources are corrected: now every client must hold everything.
	for url := range refused {
		slices.Sort(refused[url])
	}
	w.commit(w.content.freshen(refused))
	w.settle()
	for _, n := range w.lanes {
		if left := n.ledger.heldBackNames(); len(left) > 0 {
			n.fail(fmt.Errorf("still held back although all of them changed: %v", left))
		}
	}
}

func (w *world) steps() int {
	if w.cfg.Choices != nil {
		return len(w.cfg.Choices)
	}
	return 20 + w.plan.IntN(20)*w.plan.IntN(20)
}
