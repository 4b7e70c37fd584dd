package protocoltest

import (
	"fmt"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// This file checks make before break in the responses of one stream: clusters come before what refers to them
// (ADS-3), and leave after it (ADS-8). In whole worlds breaks.go checks the same at the client.

// checkClusters checks that the client has the clusters that the resources of a response refer to: "CDS updates (if
// any) must always be pushed first."
func (l *ledger) checkClusters(a *account, r *xds.Response) error {
	if l.only != nil || a.typ.After == nil {
		return nil
	}
	first := l.account(a.typ.After)
	for _, x := range r.Upserts {
		if a.lastSent[x.Name].is(x) {
			continue
		}
		for _, c := range refs(x, a.typ.After) {
			if c == xds.Wildcard {
				continue
			}
			if err := l.checkCluster(a, first, x, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *ledger) checkCluster(a, first *account, x *xds.Resource, c string) error {
	switch {
	case first == nil && l.resumes && l.now.Sub(l.began) < opensWithin && same(l.shown(a, x.Name), x):
		return fmt.Errorf("ADS-9: %s may refer to clusters, but the resuming client has not opened CDS yet", show(x))
	case first == nil || !first.covers(c) || l.shown(first, c) == nil || l.shown(a, x.Name) == nil:
		return nil
	case first.lastSent[c].absent():
		return fmt.Errorf("ADS-3: %s refers to %s, which was not sent yet", show(x), c)
	}
	since, waits := a.due[x.Name]
	if waits && l.now.Sub(since) >= silentAfter || l.silent(first) || !first.acked[c].absent() {
		return nil
	}
	return l.checkAnswered(first, x, c)
}

// checkAnswered checks that the client has answered the response that brought a cluster, if it can.
func (l *ledger) checkAnswered(first *account, x *xds.Resource, c string) error {
	if slices.ContainsFunc(first.flights, func(f *flight) bool { return f.cold }) {
		return nil
	}
	for _, f := range first.flights {
		if f.carried[c].news && f.seq > first.answered && l.now.Sub(f.at) < silentAfter {
			return fmt.Errorf("ADS-3: %s refers to %s, which nonce %s carried and the client has not answered yet", show(x), c, f.nonce)
		}
	}
	return nil
}

// checkReferrers checks that the client does not certainly hold anything that refers to a removed name. What the
// view still has does not count.
func (l *ledger) checkReferrers(a *account, r *xds.Response) error {
	if l.only != nil || len(a.typ.ReferredBy()) == 0 {
		return nil
	}
	for _, n := range slices.Concat(r.Removed, r.Absent, a.lacking(r)) {
		if k := a.lastSent[n]; k.res == nil || k.again {
			continue // the client may only be answered
		}
		if held := l.refersInsideSurely(a, n); held != nil {
			return fmt.Errorf("ADS-10: %s is removed while the client holds %s", n, show(held))
		}
		if by, held := l.surelyRefers(a.typ, n); by != nil {
			return fmt.Errorf("ADS-3, ADS-8: %s is removed while the client holds %s %s", n, by, show(held))
		}
	}
	return nil
}

// surelyRefers returns a resource on the client that the view has lost or replaced, and that refers to a name.
func (l *ledger) surelyRefers(t *xds.Type, name string) (by *xds.Type, held *xds.Resource) {
	for _, by := range t.ReferredBy() {
		b := l.account(by)
		if b == nil || l.waitsTooLong(b) {
			continue
		}
		for n, k := range b.acked {
			is := l.shown(b, n)
			if refersTo(k.res, t, name) && !k.is(is) && (is != nil || l.removes(b)) {
				return by, k.res
			}
		}
	}
	return nil, nil
}

// mayBeKept reports whether the removal of a name may wait: for a time, or because the client may hold something that
// refers to it.
func (l *ledger) mayBeKept(a *account, name string) bool {
	waited := l.now.Sub(since(a.lost, name, l.now))
	byTime := waited < l.opts.Grace
	if l.only == nil { // the client may have reached a full-state resource by other names
		byTime = l.resumes || l.tardy || a.typ.FullState && !a.wildcard && waited < delay.Dropping.Limit(0)
	}
	return byTime || l.mayBeReferred(a, name)
}

// since returns the time that is recorded for a name. The first call for a name records the present time.
func since(times map[string]time.Time, name string, now time.Time) time.Time {
	if _, is := times[name]; !is {
		times[name] = now
	}
	return times[name]
}

// mayBeReferred reports whether anything that the client may hold, and the view does not have, refers to a name.
func (l *ledger) mayBeReferred(a *account, name string) bool {
	called := []string{name, a.typ.Collection(name)}
	for _, k := range []fact{a.lastSent[name], a.acked[name]} {
		if k.res != nil {
			called = append(called, k.res.Aliases...)
		}
	}
	if l.mayBeMember(a, name) {
		return true
	}
	return slices.ContainsFunc(a.typ.ReferredBy(), func(by *xds.Type) bool {
		b := l.account(by)
		return b != nil && (l.mayHoldUnknown(b) || l.mayHoldReferrer(b, a.typ, called))
	})
}

// mayHoldReferrer reports whether the client may hold a resource that refers to any of the names and that the view
// does not have.
func (l *ledger) mayHoldReferrer(b *account, t *xds.Type, called []string) bool {
	refers := func(n string, k fact) bool {
		return k.res != nil && !k.is(l.shown(b, n)) && k.res.MayRefer(t, called[0], called[1:]...)
	}
	for n, k := range b.sentOrAcked {
		if refers(n, k) {
			return true
		}
	}
	for n, k := range b.dropped {
		if b.subscribes(n) && refers(n, k) {
			return true
		}
	}
	return false
}

// mayHoldUnknown reports whether the client may hold another state than it was sent last: a refused or unanswered one,
// or a resource of an earlier stream that the view has lost, so that no response can replace or remove it.
func (l *ledger) mayHoldUnknown(a *account) bool {
	if len(a.refused)+len(a.flights) > 0 {
		return true
	}
	for n := range a.names {
		if l.variant == xds.SotW && l.resumes && !a.full && l.shown(a, n) == nil {
			return true
		}
	}
	return false
}

// checkAddresses checks that in a message each resource that releases an address comes before the resource that
// takes it (HEAL-4), except in a circle of such resources.
func (l *ledger) checkAddresses(a *account, r *xds.Response) error {
	unsure := func(x *xds.Resource) bool { return !l.isHeld(a, x.Name) }
	if !a.typ.Binds || len(a.refused) > 0 || slices.ContainsFunc(r.Upserts, unsure) {
		return nil
	}
	next := func(i int) []int { return a.takers(r, i) }
	for last := range r.Upserts {
		for _, first := range next(last) {
			if first < last && !leadsTo(next, first, last, nil) {
				return fmt.Errorf("HEAL-4: %s comes before %s, which releases its address", r.Upserts[first].Name, r.Upserts[last].Name)
			}
		}
	}
	return nil
}

// isHeld reports whether the client holds a resource of this stream as it was sent last.
func (l *ledger) isHeld(a *account, name string) bool {
	k := a.lastSent[name]
	return a.acked[name].res == k.res && (l.variant == xds.Delta || k.seq > 0)
}

// takers returns the resources of a response that take an address of resource i.
func (a *account) takers(r *xds.Response, i int) (takers []int) {
	was := a.lastSent[r.Upserts[i].Name].res
	for j, x := range r.Upserts {
		if j != i && was != nil && was.Frees(r.Upserts[i].Stamp, x.Stamp) {
			takers = append(takers, j)
		}
	}
	return takers
}

// leadsTo reports whether a path leads from i to j.
func leadsTo(next func(int) []int, i, j int, seen []int) bool {
	return slices.ContainsFunc(next(i), func(k int) bool {
		return k == j || !slices.Contains(seen, k) && leadsTo(next, k, j, append(seen, i))
	})
}

// addresses returns the addresses of a generation of a resource. Some of them overlap those of other resources.
func addresses(t *xds.Type, name string, gen int) *[]xds.Address {
	if !t.Binds || gen%5 == 4 {
		return nil
	}
	n := gen + int(name[len(name)-1])
	return &[]xds.Address{{Port: fmt.Sprint("tcp ", n%3), Host: []string{"", "a", "b"}[gen/3%3]}}
}
