package protocoltest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// settled checks the account when nothing moves any more. Names held back by a refusal are excused.
func (l *ledger) settled(answered, interests bool) error {
	for _, a := range l.accounts {
		if f := a.newest; answered && f != nil && !f.done && !f.excused {
			return fmt.Errorf("%s: nonce %s was never answered", a.typ, a.newest.nonce)
		}
		if interests && !l.statesInterests(a) {
			return fmt.Errorf("%s: the session is interested in %v (wildcard %v), the client subscribes to %v (wildcard %v)", a.typ, a.interest, a.interestStar, a.names, a.wildcard)
		}
		_, lazy := l.view.(xds.Undecided) // a change of an on-demand resource is not a change for a wildcard
		if table := a.table; a.world && a.wildcard && table.Hashed() && !lazy && len(a.groups) == 0 && !l.anyKept(a) && a.version != table.Version() {
			return fmt.Errorf("%s: the client was last sent version %q, the view has %q", a.typ, a.version, table.Version())
		}
		for _, n := range l.knownNames(a) {
			if l.rightlyHeldBack(a, n) || l.waitsForRefused(a, n) {
				continue
			}
			k := a.lastSent[n]
			is := l.shown(a, n)
			if l.variant == xds.SotW && !a.world && is == nil {
				continue
			}
			if a.covers(n) && !k.is(is) && !l.allows(func() bool { return l.mayBeKept(a, n) }, keeping...) {
				return fmt.Errorf("%s: the client was sent %s for %s, the view has %s", a.typ, textOf(k.res)+k.version, n, textOf(is))
			}
		}
	}
	return nil
}

// statesInterests reports whether the session stated an interest in exactly the subscriptions. It may also be
// interested in the resources that they match, and in a resource that a collection matched while another
// resource of it is kept.
func (l *ledger) statesInterests(a *account) bool {
	for n := range withoutEmpty(a.interest) {
		if k, told := a.lastSent[n]; !a.subscribes(n) && !a.matched[n] && (!told || k.absent()) && (!l.inKeptCollection(a, n) || !l.excuses(collected)) {
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

// inKeptCollection reports whether a name belongs to a subscribed collection, and another resource of that collection
// is kept.
func (l *ledger) inKeptCollection(a *account, n string) bool {
	c := a.typ.Collection(n)
	if c == "" || !a.names[c] && !a.scopes[c] {
		return false
	}
	for x := range a.removed {
		if x != n && a.typ.Collection(x) == c && l.mayBeKept(a, x) {
			return true
		}
	}
	return false
}

// withoutEmpty drops the empty name, which no resource has: a client that subscribes to it may get its removal.
func withoutEmpty(names map[string]bool) map[string]bool {
	out := map[string]bool{}
	for n := range names {
		if n != "" {
			out[n] = true
		}
	}
	return out
}

// waitsForRefused reports whether a name waits for a refused cluster, by itself or with its full-state response,
// which is sent whole or not yet.
func (l *ledger) waitsForRefused(a *account, n string) bool {
	first := l.account(a.typ.After)
	if first == nil {
		return false
	}
	tied := func(n string) bool {
		r := l.shown(a, n)
		return r != nil && slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(first.typ) && l.rightlyHeldBack(first, ref.Name) })
	}
	return tied(n) || a.world && l.shown(a, n) != nil && slices.ContainsFunc(l.knownNames(a), func(o string) bool {
		return a.covers(o) && !a.lastSent[o].is(l.shown(a, o)) && tied(o)
	})
}

// allSettled reports whether the client opened clusters, listeners and routes, and everything was sent and answered.
func (l *ledger) allSettled() bool {
	if l.account(xds.Cluster) == nil || l.account(xds.Listener) == nil || l.account(xds.Route) == nil {
		return false
	}
	for _, a := range l.accounts {
		if len(a.refused) > 0 || slices.ContainsFunc(a.flights, func(f *flight) bool { return f.seq >= a.answered }) {
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

// heldBackNames returns the names that a refusal holds back until they change, by type. It leaves out refusals
// without any subscribed name, "", which no resource has, and removals that have no effect.
func (l *ledger) heldBackNames() map[string][]string {
	out := map[string][]string{}
	for _, a := range l.accounts {
		for _, g := range a.groups {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(g.was)), a.covers) {
				continue
			}
			for n := range g.rest {
				if n != "" && !slices.Contains(out[a.typ.URL], n) && !l.matchesOthers(a, n) && !l.isPhantom(a, n) {
					out[a.typ.URL] = append(out[a.typ.URL], n)
				}
			}
		}
		slices.Sort(out[a.typ.URL])
	}
	return out
}

// isPhantom reports whether a name neither exists, nor is subscribed by itself, nor is on the client. Its refused
// removal need not be sent again.
func (l *ledger) isPhantom(a *account, n string) bool {
	return l.shown(a, n) == nil && !a.subscribes(n) && !slices.ContainsFunc(a.mayHold(n, false, possibly), func(k fact) bool { return !k.absent() })
}
