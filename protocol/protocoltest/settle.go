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
	w.calmDown()
	limit := w.settles()
	until := w.now.Add(limit)
	for range 200 * int(limit/time.Minute) {
		w.quiet()
		w.checkWarming()
		next := time.Time{}
		for _, n := range w.lanes {
			next = earlier(earlier(next, n.session.Deadline()), n.client.deadline())
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

// calmDown ends the random events, and gives all sessions the newest view.
func (w *world) calmDown() {
	w.calm = true
	for _, n := range w.lanes {
		n.mute = n.forever
		n.client.calm()
		n.giveView()
		n.respond()
	}
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

// keepsAlive reports whether only heartbeats are still to come. Not all clients have clocks.
func (w *world) keepsAlive() bool {
	return slices.ContainsFunc(w.lanes, func(n *lane) bool {
		return len(n.clocks) > 0 || slices.ContainsFunc(n.ledger.accounts, func(a *account) bool { return a.newest != nil && a.newest.onlyBeats })
	})
}

// rest checks what must hold when traffic has ended.
func (w *world) rest() {
	w.pass(time.Minute)
	if w.keepsAlive() {
		w.quiet()
	}
	for _, n := range w.lanes {
		if len(n.down) > 0 && !w.keepsAlive() {
			n.fail(fmt.Errorf("%s was sent because time passed, but the session had no deadline", (*responseText)(n.down[0])))
		}
		if err := n.ledger.checkRest(!n.forever); err != nil {
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
		if err := n.checkSubscriptions(); !n.forever && err != nil {
			n.fail(err)
		}
	}
}

// checkSubscriptions checks that the server knows the subscriptions of the client.
func (n *lane) checkSubscriptions() error {
	if e, ok := n.client.(*envoy); ok && !e.of(xds.Listener).opened {
		return errors.New("LDS was never opened: CDS got no first response")
	}
	for _, k := range kinds {
		known := map[string]bool{}
		if a := n.ledger.account(k.typ()); a != nil {
			known = with(a.names, xds.Wildcard, a.wildcard)
		}
		delete(known, "")
		want, all := n.client.wants(k.typ())
		if all && !slices.Equal(slices.Sorted(maps.Keys(known)), want) {
			return fmt.Errorf("%s: the client subscribes to %v, the server knows %v", k.typ(), want, known)
		}
	}
	return nil
}

// with returns a copy of a set, with a name if that is set.
func with(names map[string]bool, name string, has bool) map[string]bool {
	all := maps.Clone(names)
	if has {
		all[name] = true
	}
	return all
}

// healed checks that all refused resources were sent again, now that the client accepts everything (HEAL-2), unless it
// had accepted that state before.
func (n *lane) healed() {
	for url, names := range n.ledger.heldBack() {
		a := n.ledger.account(xds.TypeOf(url))
		for _, name := range names {
			if is := n.ledger.shown(a, name); is == nil || !a.acked[name].is(is) {
				n.fail(fmt.Errorf("HEAL-2: the client now accepts everything, but %s %s was not sent again", a.typ, name))
			}
		}
	}
}

// converged compares the resources that the client holds with the view. Until everything is corrected, refused
// names may differ, and names that wait for refused clusters.
func (n *lane) converged() {
	maps.DeleteFunc(n.expired, func(key [2]string, lost bool) bool { return n.client.held(xds.TypeOf(key[0]))[key[1]] != nil })
	for _, a := range n.ledger.accounts {
		held := n.client.held(a.typ)
		if held == nil || n.waits(a) {
			continue
		}
		names := n.ledger.knownNames(a)
		for name := range held {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		for _, name := range names {
			is, has := n.ledger.shown(a, name), held[name]
			if !same(is, has) && !n.mayDiffer(a, name, is, has) {
				n.fail(fmt.Errorf("%s: the client holds %v of %s, the view has %v", a.typ, show(has), name, show(is)))
			}
		}
	}
}

// waits reports whether resources of a type may wait for others, or for a decision of the view.
func (n *lane) waits(a *account) bool {
	return n.ledger.waitsForView(a) || n.ledger.mayWait(a)
}

// mayDiffer reports whether a client at rest may lack a resource of the view, or hold another one.
func (n *lane) mayDiffer(a *account, name string, is, has *xds.Resource) bool {
	if _, refused := a.refused[name]; refused {
		return true
	}
	switch {
	case has == nil: // a heartbeat was lost, or the answer that would bring the next one
		_, dropped := n.expired[[2]string{a.typ.URL, name}]
		return dropped || !a.covers(name)
	case is != nil:
		return false
	case !n.ledger.removes(a) || n.ledger.undecided(a, name):
		return true // no response removes it
	}
	return n.only == nil && (n.keeps(a, has) || n.ledger.mayBeReferred(a, name))
}

// keeps reports whether a client holds a resource, unlike the view, that refers to another one, so that the other
// one is kept for it.
func (n *lane) keeps(a *account, r *xds.Resource) bool {
	for name, x := range n.client.held(a.typ) {
		if !same(x, n.ledger.shown(a, name)) && refersTo(x, a.typ, r.Name) {
			return true
		}
	}
	for _, by := range a.typ.ReferredBy() {
		b := n.ledger.account(by)
		if b == nil {
			continue
		}
		for name, x := range n.client.held(by) {
			if !same(x, n.ledger.shown(b, name)) && x.MayRefer(a.typ, r.Name, append(slices.Clone(r.Aliases), a.typ.Collection(r.Name))...) {
				return true
			}
		}
	}
	return false
}

// age lets time pass while all clients answer and nothing changes. Then the clients hold what the view has,
// including resources that expire.
func (w *world) age() {
	w.prompt = true
	w.calmDown()
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
		for url, names := range n.ledger.heldBack() {
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
		if left := n.ledger.heldBack(); len(left) > 0 {
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
