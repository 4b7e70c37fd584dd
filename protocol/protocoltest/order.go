package protocoltest

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// checkOrder checks the order of types: make before break.
func (l *ledger) checkOrder(a *account, r *xds.Response, f *flight) error {
	if l.only != nil {
		return nil
	}
	var gone, unsure []string
	for _, n := range slices.Concat(r.Removed, r.Absent) {
		if k, told := a.lastSent[n]; told && !k.absent() {
			gone = append(gone, n)
		}
	}
	if a.world {
		for n, k := range a.lastSent {
			switch {
			case k.absent() || !a.covers(n) || !f.carried[n].absent():
			case k.loose:
				unsure = append(unsure, n)
			default:
				gone = append(gone, n)
			}
		}
	}
	slices.Sort(gone)
	slices.Sort(unsure)
	late := l.waitedForAll(a, r)
	if f.forward {
		if a.typ.Rank() < l.rank && !late {
			return fmt.Errorf("ADS-2: %s is sent after a type of rank %d", a.typ, l.rank)
		}
		l.rank = max(l.rank, a.typ.Rank())
	}
	// The removals of a split answer may be in parts of their own, after its resources (DELTA-13).
	switch part := a.typ.Is(l.sending); {
	case f.forward, len(r.Upserts) > 0:
		l.sending = a.typ
	case !part:
		l.sending = nil
	}
	if len(gone) > 0 && len(r.Upserts) == 0 && l.sending == nil {
		// No removal is sent for a resource if the session need not know that the client has it.
		firm := slices.ContainsFunc(gone, func(n string) bool { return !a.lastSent[n].loose })
		if a.typ.Rank() > l.removalRank && !l.couldNotGoBefore(a, gone) && (firm || !l.excuses(loose)) {
			return fmt.Errorf("ADS-2: %s is removed after a type of rank %d: removals go in reverse order", a.typ, l.removalRank)
		}
		if firm {
			l.removalRank = a.typ.Rank()
		}
	} else if f.forward && l.removalRank != math.MaxInt && !late {
		return fmt.Errorf("ADS-2: %s is sent after a removal", a.typ)
	}
	for _, n := range slices.Sorted(maps.Keys(f.news)) {
		if err := l.checkClustersSent(a, l.shown(a, n)); err != nil {
			return err
		}
	}
	for _, n := range gone {
		if !l.allows(func() bool { return l.checkRemoval(a, n) == nil }, loose, merged) {
			return l.checkRemoval(a, n)
		}
	}
	for _, n := range unsure {
		if err := l.checkRemoval(a, n); !l.allows(func() bool { return l.accepts(loose) || err == nil }, loose) {
			return err
		}
	}
	return nil
}

// couldNotGoBefore reports whether names are removed late because an earlier removal was not
// allowed: a resource may have referred to these names until a response of this batch.
func (l *ledger) couldNotGoBefore(a *account, gone []string) bool {
	told := func(by *xds.Type) bool {
		b := l.account(by)
		return b != nil && b.newest != nil && b.newest.batch == l.batch
	}
	return slices.ContainsFunc(a.typ.ReferredBy(), told) && !slices.ContainsFunc(gone, func(n string) bool { return !a.removed[n].bound })
}

// waitedForAll reports whether a resource of a response had to wait for all responses about
// clusters, including removals, because the resource may refer to any cluster (ADR 3).
func (l *ledger) waitedForAll(a *account, r *xds.Response) bool {
	first := l.account(a.typ.After)
	return first != nil && first.newest != nil && first.newest.batch == l.batch && !first.newest.forward &&
		slices.ContainsFunc(r.Upserts, func(x *xds.Resource) bool { return refersToAny(x, first.typ) })
}

// checkClustersSent checks that the client has the clusters that a resource refers to: "CDS updates (if any) must always
// be pushed first."
func (l *ledger) checkClustersSent(a *account, r *xds.Resource) error {
	first := l.account(a.typ.After)
	switch {
	case r == nil:
		return nil
	case first == nil && l.waitsForReconnect(a, r):
		return fmt.Errorf("ADS-9: %s may refer to clusters, but the resuming client has not opened CDS yet", show(r))
	case first == nil:
		return nil
	case refersToAny(r, first.typ):
		if err := l.checkAllClustersSent(a, first, r); err != nil || r.Refs == nil {
			return err
		}
	}
	for _, ref := range l.referredResources(first, r.Refs) {
		if !first.covers(ref.Name) || l.shown(first, ref.Name) == nil {
			continue
		}
		if k, ok := first.lastSent[ref.Name]; !ok || k.absent() {
			return fmt.Errorf("ADS-3: %s refers to %s, which was not sent yet", show(r), ref.Name)
		}
		for _, f := range first.flights {
			if f.seq < first.answered {
				continue // the client answered a later response
			}
			late := l.silent(first) || l.now.Sub(f.at) >= silentAfter || !a.waitsSince[r.Name].IsZero() && l.now.Sub(a.waitsSince[r.Name]) >= silentAfter
			if f.news[ref.Name] && first.acked[ref.Name].absent() && !f.done && !f.superseded && !late && !l.lacksAssignments(first) {
				return fmt.Errorf("ADS-3: %s refers to %s, which nonce %s carried and the client has not answered yet", show(r), ref.Name, f.nonce)
			}
		}
	}
	return nil
}

// referredResources returns the resources of a type that others refer to, "by its name or an alias".
func (l *ledger) referredResources(a *account, refs []xds.Ref) (out []xds.Ref) {
	for _, ref := range refs {
		if !ref.Type.Is(a.typ) {
			continue
		}
		out = append(out, ref)
		if l.variant == xds.SotW || l.lookup(a, ref.Name) != nil {
			continue // aliases match in delta only
		}
		for r := range a.table.All() {
			if slices.Contains(r.Aliases, ref.Name) {
				out = append(out, xds.Ref{Type: a.typ, Name: r.Name})
			}
		}
	}
	return out
}

// refersToAny reports whether a resource may refer to any resource of a type: it refers to the wildcard, or
// its references are unknown.
func refersToAny(r *xds.Resource, t *xds.Type) bool {
	return r.Refs == nil || slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(t) && ref.Name == xds.Wildcard })
}

// checkAllClustersSent checks that a resource with unknown references waits for all clusters in flight (ADR 3).
func (l *ledger) checkAllClustersSent(a, first *account, r *xds.Resource) error {
	f := first.newest
	if f == nil || f.done || l.silent(first) || l.now.Sub(f.at) >= silentAfter || l.lacksAssignments(first) || !a.waitsSince[r.Name].IsZero() && l.now.Sub(a.waitsSince[r.Name]) >= silentAfter {
		return nil
	}
	for _, n := range slices.Sorted(maps.Keys(f.news)) {
		// Nothing in the view refers to a removed resource.
		if first.acked[n].absent() && !f.carried[n].absent() && l.shown(first, n) != nil {
			return fmt.Errorf("ADS-3: %s may refer to %s, which nonce %s carried and the client has not answered yet", show(r), n, f.nonce)
		}
	}
	return nil
}

// waitsForReconnect reports whether a resource must wait because it refers to a type that the resuming client has not
// opened yet, for up to 15 s from the first request of the stream (ADS-9).
func (l *ledger) waitsForReconnect(a *account, r *xds.Resource) bool {
	if l.only != nil || a.typ.After == nil || !l.resumes || l.now.Sub(l.began) >= silentAfter || l.account(a.typ.After) != nil {
		return false
	}
	return r.Refs == nil || slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Type.Is(a.typ.After) })
}

// lacksAssignments reports whether an unanswered response has a cluster without an assignment, so that its ACK may
// never come.
func (l *ledger) lacksAssignments(a *account) bool {
	return slices.ContainsFunc(a.flights, func(f *flight) bool { return f.stuck })
}

// stillLacksAssignment reports whether a cluster of a response still has no assignment. Then nothing may wait for the ACK of
// that response.
func (l *ledger) stillLacksAssignment(a *account, f *flight) bool {
	return slices.ContainsFunc(f.lacks, func(e string) bool { return !l.hasAssignment(a.typ.Warms, e) })
}

// hasAssignment reports whether there is a resource to send that warms another one by this name, such as the
// assignment of a cluster.
func (l *ledger) hasAssignment(t *xds.Type, name string) bool {
	eds, table := l.account(t), l.view.Table(t)
	if table.Lookup(name) != nil || table.Aliased(name).Len() > 0 || eds == nil {
		return table.Lookup(name) != nil || table.Aliased(name).Len() > 0
	}
	_, leaves := eds.removed[name]
	return leaves
}

// silent reports whether the client has not answered a type for 15 s, so that nothing waits for it. The parts
// of a response are answered when all of them are.
func (l *ledger) silent(a *account) bool {
	f := a.newest
	if f == nil || l.now.Sub(a.unansweredSince) < silentAfter {
		return false
	}
	return !f.done || len(f.beats) == 0 && slices.ContainsFunc(a.flights, func(o *flight) bool { return o.batch == f.batch && !o.done && len(o.beats) == 0 })
}

// clusterHasAssignment reports whether a cluster has an assignment, or one that the view is still looking up. A client
// that subscribes to the assignment shows that it has the cluster, even if it does not answer.
func (l *ledger) clusterHasAssignment(first *account, name string) bool {
	c, eds := l.shown(first, name), l.account(first.typ.Warms)
	return c != nil && slices.ContainsFunc(c.Refs, func(ref xds.Ref) bool {
		return ref.Type.Is(first.typ.Warms) && (l.hasAssignment(first.typ.Warms, ref.Name) || eds != nil && l.undecided(eds, ref.Name))
	})
}

// waitsForClusters reports whether a resource may wait for clusters in flight. ADS-6 allows the first of the two bounds. A
// resource with unknown references waits for all clusters.
func (l *ledger) waitsForClusters(a *account, r *xds.Resource) bool {
	first := l.account(a.typ.After)
	if r != nil && l.waitsForReconnect(a, r) {
		return true
	}
	if r == nil || first == nil || l.only != nil {
		return false
	}
	on := func(c string) bool {
		if !first.covers(c) {
			return false
		}
		for _, f := range first.flights {
			// a name that it stated by a version and refused here may never have been held
			again := !first.wildcard && len(first.refused[c]) > 0 && first.acked[c].seq == 0 && !f.carried[c].absent()
			if (f.fresh[c] || again || l.shown(first, c) == nil) && l.now.Sub(f.at) < silentAfter && (!l.stillLacksAssignment(first, f) || l.clusterHasAssignment(first, c)) {
				return true
			}
		}
		since, waits := a.waitsSince[r.Name]
		// a client that refuses may have applied a part, including the removal of the cluster
		acked := first.acked[c]
		gone := acked.absent() || acked.loose && l.accepts(loose) || acked.unsaid && l.accepts(unsaid) || slices.ContainsFunc(first.refused[c], fact.absent)
		refused := len(first.refused[c]) > 0 && gone || len(first.doubted[c]) > 0 && l.accepts(doubted)
		if refused && (!waits || l.now.Sub(since) < silentAfter || l.clusterHasAssignment(first, c) && !l.silent(first)) {
			return true // refused when it came, and perhaps again: only silence ends the wait if the assignment would show the answer
		}
		if l.lacksAssignments(first) && first.acked[c].absent() && l.clusterHasAssignment(first, c) && (!waits || l.now.Sub(since) < silentAfter) {
			return true // in flight next to a cluster that cannot warm, so no answer is expected
		}
		return l.missing(first, c) != "" || l.rightlyHeldBack(first, c)
	}
	if !refersToAny(r, first.typ) {
		return slices.ContainsFunc(l.referredResources(first, r.Refs), func(ref xds.Ref) bool { return on(ref.Name) })
	}
	return l.hasUndecided(first) && l.accepts(waitsForView) || slices.ContainsFunc(first.flights, func(f *flight) bool { return l.now.Sub(f.at) < silentAfter && !l.stillLacksAssignment(first, f) }) ||
		slices.ContainsFunc(l.knownNames(first), on)
}
