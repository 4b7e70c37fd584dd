package protocoltest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// settle ends the chaos: everybody answers, and all must fall silent in time.
func (w *world) settle() {
	w.calm = true
	for _, n := range w.lanes {
		n.mute = n.forever
		n.client.calm()
		n.tell()
		n.respond()
	}
	limit := w.settles()
	until := w.now.Add(limit)
	for range 200 {
		w.quiet()
		w.cold()
		next := time.Time{}
		for _, n := range w.lanes {
			for _, d := range []time.Time{n.session.Deadline(), n.client.deadline()} {
				if !d.IsZero() && (next.IsZero() || d.Before(next)) {
					next = d
				}
			}
		}
		if next.IsZero() || next.After(until) && w.feeds() {
			w.rest()
			return
		}
		if next.After(until) {
			w.fail("not silent after %v: something waits until %v", limit, next.Sub(epoch))
		}
		w.pass(max(next.Sub(w.now), 0))
	}
	w.fail("never falls silent: deadlanes follow each other")
}

// settles is how long it may take until all is silent: a minute. For a client that never
// answers again each type waits by itself, 15 s, and the next from when that was told what
// has left (ADS-3): listeners, scopes, routes, hosts, clusters, assignments, endpoints.
func (w *world) settles() time.Duration {
	limit := time.Minute
	for _, n := range w.lanes {
		if n.forever {
			limit = max(limit, silence*time.Duration(1+len(n.ledger.accounts)))
		}
	}
	return limit
}

// cold checks that no cluster warms in vain.
func (w *world) cold() {
	for _, n := range w.lanes {
		if e, ok := n.client.(*envoy); ok && !n.forever {
			if what := e.cold(n.ledger); what != "" {
				n.fail(errors.New(what))
			}
		}
	}
}

// quiet lets everybody speak until nobody has anything to say.
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
	w.fail("never falls silent: messages follow each other")
}

// feeds reports whether all that is still to come are heartbeats.
func (w *world) feeds() bool {
	return slices.ContainsFunc(w.lanes, func(n *lane) bool { return n.ledger.feeds() })
}

// rest checks what must hold when all is silent.
func (w *world) rest() {
	w.pass(time.Minute)
	if w.feeds() {
		w.quiet()
	}
	for _, n := range w.lanes {
		if len(n.down) > 0 && !w.feeds() {
			n.fail(fmt.Errorf("%s was sent by time alone, and no deadline told of it", describeResponse(n.down[0])))
		}
		_, idles := n.session.Session.(idler)
		if err := n.ledger.settled(!n.forever, idles); err != nil {
			n.fail(err)
		}
		if !n.forever { // what it refused it did not say
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

// converged compares the client with the view.
func (n *lane) converged() {
	maps.DeleteFunc(n.expired, func(key [2]string, lost bool) bool { return n.client.held(xds.TypeOf(key[0]))[key[1]] != nil })
	for _, a := range n.ledger.accounts {
		held := n.client.held(a.typ)
		if held == nil {
			continue
		}
		for _, name := range n.ledger.known(a) {
			is, has := n.ledger.shown(a, name), held[name]
			switch {
			case same(is, has) || n.ledger.standing(a, name) || n.ledger.tiedToRefused(a, name) || !a.covers(name):
			case is == nil && n.cfg.Variant == xds.SotW && !a.world: // removal cannot be expressed
			case !n.ledger.lets(func() bool {
				return is == nil && n.ledger.lingering(a, name) || n.ledger.grants(waitsForView) && n.ledger.waitsForView(a, name, is) ||
					has == nil && n.ledger.grants(expired) && n.lacks(a, name) ||
					n.ledger.grants(declined) && a.declined(name, is) // a response that need not be listed any more
			}, append(slices.Clone(keeping), waitsForView, expired, declined)...):
				n.fail(fmt.Errorf("%s: the client holds %v of %s, the view has %v", a.typ, textOf(has), name, textOf(is)))
			}
			delete(held, name)
		}
		for name, r := range held {
			gone := n.ledger.shown(a, name) == nil && (n.cfg.Variant == xds.Delta || a.world) && !n.ledger.standing(a, name)
			if !gone && a.covers(name) || n.ledger.lets(func() bool {
				return n.ledger.grants(stray) && a.strays(name) || n.ledger.lingering(a, name) || n.ledger.grants(waitsForView) && n.ledger.waitsForView(a, name, nil)
			}, append(slices.Clone(keeping), waitsForView)...) {
				continue
			}
			n.fail(fmt.Errorf("%s: the client holds %s, which is gone, or which it did not subscribe to", a.typ, show(r)))
		}
	}
}

// lacks reports whether the client may have dropped a name since its TTL, and not have it
// even at rest: what kept it alive was lost under way, or it has not answered for it yet, as
// Envoy does while clusters warm. Until then there is "no heartbeat of what the client has
// not ACKed" (TTL-5). Nor is it told anew while a later response of the type is unanswered.
func (n *lane) lacks(a *account, name string) bool {
	lost, dropped := n.expired[[2]string{a.typ.URL, name}]
	told := a.told[name]
	return lost || dropped && slices.ContainsFunc(a.flights, func(f *flight) bool { return !f.done && (f.seq == told.seq || n.ledger.now.Sub(f.at) < patience) })
}

// declined reports whether the client has refused just that of a name, and accepted nothing
// of it since: the same is not sent again, whether the response is remembered or not.
func (a *account) declined(name string, r *xds.Resource) bool {
	return r != nil && slices.ContainsFunc(a.refused[name], func(k fact) bool { return !k.dropped && same(k.res, r) })
}

func textOf(r *xds.Resource) string {
	if r == nil {
		return "nothing"
	}
	return show(r)
}

// age lets time pass while all speak and nothing changes: the clients then hold what
// the view has, also what expires.
func (w *world) age() {
	w.calm, w.prompt = true, true
	for _, n := range w.lanes {
		n.mute = n.forever
		n.client.calm()
		n.tell()
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

// run lives a whole world.
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
		for url, names := range n.ledger.outstanding() {
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
	// Whatever was refused is mended: now everybody must have everything.
	for url := range refused {
		slices.Sort(refused[url])
	}
	w.commit(w.content.freshen(refused))
	w.settle()
	for _, n := range w.lanes {
		if left := n.ledger.outstanding(); len(left) > 0 {
			n.fail(fmt.Errorf("still held back after all of it changed: %v", left))
		}
	}
}

func (w *world) steps() int {
	if w.cfg.Choices != nil {
		return len(w.cfg.Choices)
	}
	return 20 + w.plan.IntN(20)*w.plan.IntN(20)
}
