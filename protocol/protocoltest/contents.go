package protocoltest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// This file checks each response against the view, the subscriptions and what was sent before.

// judgeResponse judges a response and records it.
func (l *ledger) judgeResponse(r *xds.Response) error {
	a := l.account(r.Type)
	if a == nil {
		return fmt.Errorf("SOTW-6: a response of a type that the client has not requested")
	}
	if f := a.newest; f != nil && f.batch != l.batch && !l.overtakes(a, f) {
		return fmt.Errorf("SOTW-3: a response was sent while nonce %s is unanswered, for %v", f.nonce, l.now.Sub(f.at))
	}
	for _, check := range []func(*account, *xds.Response) error{
		l.checkShape, l.checkOrder, l.checkUpserts, l.checkRemovals, l.checkResourceErrors, l.checkHeartbeats, l.checkReason, l.checkClusters, l.checkMembers, l.checkReferrers, l.checkAddresses, l.checkSize, l.checkVersion,
	} {
		if err := check(a, r); err != nil {
			return err
		}
	}
	l.record(a, r)
	return nil
}

// overtakes reports whether a response may be sent while the newest response is unanswered. One response is in
// flight per type, with two exceptions: no answer is expected soon, or a delta client has subscribed to more names
// since ("the server must honor changes to the subscription state even if the nonce is stale").
func (l *ledger) overtakes(a *account, f *flight) bool {
	return !slices.Contains(a.flights, f) || f.excused || f.onlyBeats || l.now.Sub(f.at) >= answerTimeout || l.variant == xds.Delta && a.more ||
		slices.ContainsFunc(a.flights, func(f *flight) bool { return f.cold })
}

// checkShape checks the rules that need neither view nor history.
func (l *ledger) checkShape(a *account, r *xds.Response) error {
	if l.nonces[r.Nonce] || r.Nonce == "" {
		return fmt.Errorf("SOTW-2: nonce %q is empty or was used before", r.Nonce)
	}
	if l.variant == xds.SotW && len(r.Removed)+len(r.Absent) > 0 {
		return fmt.Errorf("a DiscoveryResponse cannot remove %v", r.Removed)
	}
	names := slices.Concat(r.Removed, r.Absent)
	for _, x := range slices.Concat(r.Upserts, r.Beats) {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) < len(names) {
		return fmt.Errorf("SOTW-14, DELTA-1: a name occurs twice in one response: %v", names)
	}
	return nil
}

// checkOrder checks the order in one batch: news by the rank of their types, then removals (ADS-2). The messages of a
// split response may have both.
func (l *ledger) checkOrder(a *account, r *xds.Response) error {
	rank, delta := a.typ.Rank(), l.variant == xds.Delta
	news := slices.ContainsFunc(r.Upserts, func(x *xds.Resource) bool { return delta || !a.lastSent[x.Name].is(x) })
	switch {
	case news && l.removing && delta && a.typ.After == nil: // others may wait for the removal of a cluster
		return fmt.Errorf("ADS-2: %s has news after removals", a.typ)
	case news && !l.removing && rank < l.rank:
		return fmt.Errorf("ADS-2: news of %s come after those of a later type", a.typ)
	case news:
		l.rank = rank
	case rank != l.rank:
		l.removing = l.removing || !delta || slices.ContainsFunc(r.Removed, func(n string) bool { return !a.lastSent[n].absent() })
	}
	return nil
}

func (l *ledger) checkUpserts(a *account, r *xds.Response) error {
	seen := map[string]bool{}
	for _, x := range r.Upserts {
		seen[x.Name] = true
		switch {
		case !a.covers(x.Name) && !a.wouldMatch(x) && !a.known[x.Name]:
			return fmt.Errorf("SOTW-9: %s is not subscribed", x.Name)
		case !same(l.shown(a, x.Name), x) && !l.mayShowEarlier(a, x):
			return fmt.Errorf("ADS-4: %s is neither in the view nor kept for the client", show(x))
		}
	}
	if a.full {
		return l.checkComplete(a, seen)
	}
	return nil
}

// checkComplete checks that a full-state response has all resources.
func (l *ledger) checkComplete(a *account, seen map[string]bool) error {
	for x := range a.table.All() {
		if l.shown(a, x.Name) != nil && !seen[x.Name] {
			return fmt.Errorf("SOTW-8: the full-state response lacks %s", x.Name)
		}
	}
	return nil
}

// mayShowEarlier reports whether a resource may be sent as an earlier view had it: if the view has lost it, or if a
// full state has it while its newer state waits for its members.
func (l *ledger) mayShowEarlier(a *account, x *xds.Resource) bool {
	last := a.lastSent[x.Name]
	waits := a.full && l.waitsInside(a, x.Name) && (last.is(x) || l.resumes && last.res == nil)
	earlier := slices.ContainsFunc(l.opts.Recent(a.typ), func(t *xds.Table) bool { return same(t.Lookup(x.Name), x) })
	return earlier && (waits || l.shown(a, x.Name) == nil) && len(a.typ.ReferredBy()) > 0
}

func (l *ledger) checkRemovals(a *account, r *xds.Response) error {
	if len(r.Absent) > 0 && !l.getsAbsent(a) {
		return fmt.Errorf("DELTA-7: %s is reported absent, but this client needs a removal", r.Absent)
	}
	for _, n := range slices.Concat(r.Removed, r.Absent) {
		k, told := a.lastSent[n]
		hidden := a.typ.Parent != nil && a.wildcard // it may be a virtual host of a route of the wildcard
		switch {
		case !a.covers(n) && !a.known[n] && !hidden:
			return fmt.Errorf("DELTA-6: removes %s, which is not subscribed", n)
		case l.shown(a, n) != nil:
			return fmt.Errorf("ADS-4: removes %s, which the view has", n)
		case told && k.absent() && !k.again && len(l.matchedBy(a, n)) > 0:
			return fmt.Errorf("DELTA-11: removes %s, which matches another resource", n)
		case l.isEarly(a, n):
			return fmt.Errorf("DELTA-7: %s is reported absent too early", n)
		}
	}
	return nil
}

// isEarly reports whether the absence of a name must not be reported yet: its delay is not over, or the view is still
// looking for it.
func (l *ledger) isEarly(a *account, n string) bool {
	k, told := a.lastSent[n]
	return !told && a.dropped[n].res == nil && l.muted(a, n) || l.undecided(a, n) && k.absent() && !a.known[n]
}

// muted reports whether the client must not hear yet that a name does not exist.
func (l *ledger) muted(a *account, n string) bool {
	return a.names[n] && l.now.Sub(a.asked[n]) < a.typ.AbsenceDelay[l.agent]
}

// getsAbsent reports whether the client gets a Resource without a body for a name that never existed.
func (l *ledger) getsAbsent(a *account) bool {
	return l.variant == xds.Delta && (l.opts.Bodyless || a.typ.Is(xds.VirtualHost) && l.agent == "envoy")
}

// checkResourceErrors checks resource_errors: only for subscribed names that do not exist, once for each time that
// they were subscribed or removed.
func (l *ledger) checkResourceErrors(a *account, r *xds.Response) error {
	for i, n := range r.Missing {
		switch {
		case !l.opts.ResourceErrors || slices.Contains(r.Missing[:i], n) || !l.isMissing(a, n):
			return fmt.Errorf("gRFC A88: %s is reported missing, but it is not subscribed, exists, is undecided, is listed twice, or the client gets no such errors", n)
		case l.variant == xds.Delta && !slices.Contains(r.Removed, n) && !slices.Contains(r.Absent, n):
			return fmt.Errorf("gRFC A88: %s is reported missing, but not removed", n)
		case l.variant == xds.SotW && a.missing[n] && !a.lastSent[n].again && len(a.refused) == 0:
			return fmt.Errorf("gRFC A88: %s is reported missing again", n)
		}
	}
	return nil
}

// isMissing reports whether a name is subscribed and does not exist.
func (l *ledger) isMissing(a *account, n string) bool {
	return a.names[n] && l.shown(a, n) == nil && len(l.matchedBy(a, n)) == 0 && !l.undecided(a, n)
}

// checkTTL checks whether a response has TTLs and heartbeats at all.
func (l *ledger) checkTTL(a *account, r *xds.Response) error {
	expires := slices.ContainsFunc(slices.Concat(r.Upserts, r.Beats), func(x *xds.Resource) bool { return x.TTL > 0 })
	switch {
	case len(r.Beats) > 0 && a.full:
		return fmt.Errorf("TTL-4: a full-state response with heartbeats would remove every resource")
	case r.TTL != l.ttl && (expires || l.ttl && len(r.Beats) > 0):
		return fmt.Errorf("TTL-1, TTL-4: the response has TTLs: %v, the client supports TTLs: %v", r.TTL, l.ttl)
	}
	return nil
}

// checkHeartbeats checks heartbeats: "a Resource with the resource unset and version matching the most recently sent
// version".
func (l *ledger) checkHeartbeats(a *account, r *xds.Response) error {
	if err := l.checkTTL(a, r); err != nil {
		return err
	}
	for _, b := range r.Beats {
		k, told := a.lastSent[b.Name]
		switch {
		case b.TTL == 0 || !a.covers(b.Name) && !a.known[b.Name]:
			return fmt.Errorf("TTL-3: a heartbeat of %s, which is not subscribed or does not expire", show(b))
		case told && (!k.is(b) || a.isOpen(b.Name)):
			return fmt.Errorf("TTL-5: a heartbeat of %s, which the client has not ACKed", show(b))
		}
	}
	return nil
}

// isOpen reports whether a name is refused, or in an unanswered response that no later ACK covers.
func (a *account) isOpen(n string) bool {
	_, refused := a.refused[n]
	return refused || slices.ContainsFunc(a.flights, func(f *flight) bool { _, in := f.carried[n]; return in && f.seq > a.accepted })
}

// late reports whether a resource has had no heartbeat for so long that the client may have dropped it.
func (l *ledger) late(a *account, r *xds.Resource) bool {
	return l.ttl && r != nil && r.TTL > 0 && 3*l.now.Sub(a.ttlBegan[r.Name]) >= 2*r.TTL
}

// A history knows which names a response may send again.
type history struct {
	*ledger
	*account
	news bool // the response has news: refused content comes again with it
}

// again reports whether a name may be sent again without news about it.
func (h history) again(n string) bool {
	_, refused := h.refused[n]
	return h.lastSent[n].again || refused && (h.news || h.opts.Retry != nil)
}

// mayRemove reports whether a client may get the removal of a name.
func (h history) mayRemove(n string) bool {
	if k, told := h.lastSent[n]; told {
		return !k.absent() || h.again(n)
	}
	return h.known[n] || h.subscribes(n) || h.warmed[[2]string{h.typ.URL, n}] || h.typ.Parent != nil && h.wildcard
}

// isNews reports whether a resource is sent in another state than before, or may be sent again.
func (h history) isNews(x *xds.Resource) bool {
	k := h.lastSent[x.Name]
	return !k.is(x) || k.again
}

// resends reports whether a resource may be sent again.
func (h history) resends(x *xds.Resource) bool { return h.again(x.Name) || h.late(h.account, x) }

// isReason reports whether a resource is a reason to send a response.
func (h history) isReason(x *xds.Resource) bool { return h.resends(x) || h.ttl && x.TTL > 0 }

// isRepeated reports whether a resource is sent without a reason.
func (h history) isRepeated(x *xds.Resource) bool {
	return h.lastSent[x.Name].is(x) && !h.account.full && !h.resends(x)
}

// hasReason reports whether an unrequested response has a reason.
func (h history) hasReason(r *xds.Response) bool {
	return h.news || len(r.Beats)+len(r.Missing) > 0 || slices.ContainsFunc(r.Upserts, h.isReason) || h.lacksAny(r)
}

// checkReason checks that the response has a reason. "The management server should only send updates to the Envoy
// client when the resources in the DiscoveryResponse have changed."
func (l *ledger) checkReason(a *account, r *xds.Response) error {
	gone := slices.Concat(r.Removed, r.Absent)
	h := history{ledger: l, account: a}
	h.news = len(gone) > 0 || slices.ContainsFunc(r.Upserts, h.isNews)
	if i := slices.IndexFunc(r.Upserts, h.isRepeated); i >= 0 {
		return fmt.Errorf("DELTA-12, DELTA-15: %s was sent before, has not changed and was not requested", r.Upserts[i].Name)
	}
	if i := slices.IndexFunc(gone, func(n string) bool { return !h.mayRemove(n) }); i >= 0 {
		return fmt.Errorf("DELTA-8: removes %s, which the client does not hold and did not request", gone[i])
	}
	requested := a.answer || a.newest == nil
	if !requested && !h.hasReason(r) {
		return fmt.Errorf("SOTW-6, SOTW-9, DELTA-15: nothing changed since the last response, and nothing was requested")
	}
	return nil
}

// lacking returns the names that were sent before and that a full-state response lacks.
func (a *account) lacking(r *xds.Response) (names []string) {
	for n := range a.lastSent {
		if a.full && !slices.ContainsFunc(r.Upserts, func(x *xds.Resource) bool { return x.Name == n }) {
			names = append(names, n)
		}
	}
	return names
}

// lacksAny reports whether a full-state response lacks a resource that the client has, or may ask for again.
func (a *account) lacksAny(r *xds.Response) bool {
	return slices.ContainsFunc(a.lacking(r), func(n string) bool { k := a.lastSent[n]; return !k.absent() || k.again })
}

// checkSize checks that a response that could be split is not too large. It counts only names, bodies, versions
// and aliases, so it may miss a response that is slightly too large.
func (l *ledger) checkSize(a *account, r *xds.Response) error {
	limit := l.opts.MaxResponse
	// A name is in removed_resources and resource_errors of the same response.
	items := len(r.Upserts) + len(r.Beats) + max(len(r.Removed)+len(r.Absent), len(r.Missing))
	if limit == 0 || a.full || r.Together || items < 2 {
		return nil
	}
	size := len(strings.Join(slices.Concat(r.Removed, r.Absent, r.Missing), ""))
	for _, x := range r.Upserts {
		size += len(x.Body)
	}
	for _, x := range slices.Concat(r.Upserts, r.Beats) {
		size += len(x.Name) + len(x.Version) + len(strings.Join(x.Aliases, ""))
	}
	if size > limit {
		return fmt.Errorf("DELTA-13: a response of %d resources and names has more than %d bytes, the limit is %d", items, size, limit)
	}
	return nil
}

// checkVersion checks the version. Kept resources count in the version of a full-state response.
func (l *ledger) checkVersion(a *account, r *xds.Response) error {
	var kept []*xds.Stamp
	for _, x := range r.Upserts {
		if !same(l.shown(a, x.Name), x) {
			kept = append(kept, x.Stamp)
		}
	}
	want := a.table.Version()
	if a.full {
		want = a.table.VersionWith(slices.Values(kept))
	}
	if r.Version != want {
		return fmt.Errorf("SOTW-13: version %q, want %q", r.Version, want)
	}
	return nil
}

// record records a response.
func (l *ledger) record(a *account, r *xds.Response) {
	l.nonces[r.Nonce] = true
	f := &flight{nonce: r.Nonce, at: l.now, batch: l.batch, seq: len(l.nonces), carried: map[string]fact{}, onlyBeats: len(r.Beats) > 0 && len(r.Upserts)+len(r.Removed)+len(r.Absent) == 0}
	for _, x := range r.Upserts {
		f.carried[x.Name] = fact{res: x, seq: f.seq, news: !a.lastSent[x.Name].is(x)}
		delete(a.missing, x.Name)
		for n, k := range a.lastSent {
			if k.absent() && matches(a.typ, x, n) {
				k.again, k.found = true, k.found || l.shown(a, x.Name) != nil
				a.lastSent[n] = k
			}
		}
	}
	for _, x := range r.Beats {
		f.beats = append(f.beats, x.Name)
		a.repeat(x.Name, l.late(a, x)) // a heartbeat after the TTL does not bring back a dropped resource
	}
	for _, x := range slices.Concat(r.Upserts, r.Beats) {
		a.ttlBegan[x.Name] = l.now
	}
	for _, n := range slices.Concat(r.Removed, r.Absent) {
		found := len(l.matchedBy(a, n)) > 0
		f.carried[n] = fact{seq: f.seq, again: found, found: found}
	}
	if a.full {
		l.full[a.typ.URL+r.Version] = r.Upserts
		for n := range a.lastSent {
			f.lack(n)
		}
		for n := range a.names {
			f.lack(n)
		}
	}
	for n, k := range f.carried {
		a.lastSent[n], a.known[n] = k, true
		delete(a.due, n)
		delete(a.dropped, n)
	}
	for _, n := range r.Missing {
		a.missing[n] = true
	}
	l.recordWarming(a, r, f)
	a.flights, a.newest, a.settled = append(a.flights, f), f, l.now
	if !f.onlyBeats { // a heartbeat is not an answer
		a.answer, a.more = false, false
	}
}

// lack records that a full-state response lacks a name, so that it does not exist.
func (f *flight) lack(n string) {
	if _, in := f.carried[n]; !in {
		f.carried[n] = fact{seq: f.seq}
	}
}

// recordWarming records which assignments may be sent again because a response carries their clusters (WARM-2).
func (l *ledger) recordWarming(a *account, r *xds.Response, f *flight) {
	t := a.typ.Warms
	if t == nil || l.only != nil {
		return
	}
	cold := false
	eds, table := l.account(t), l.view.Table(t)
	for _, x := range r.Upserts {
		for _, ref := range refs(x, t) {
			cold = cold || !exists(table, ref)
			l.warmed[[2]string{t.URL, ref}] = true
			if eds != nil {
				eds.repeatMatching(ref)
			}
		}
	}
	batch := slices.DeleteFunc(slices.Clone(a.flights), func(o *flight) bool { return o.batch != f.batch })
	cold = cold || slices.ContainsFunc(batch, func(o *flight) bool { return o.cold })
	for _, o := range append(batch, f) { // the messages of a split response are stuck together
		o.cold = cold
	}
}

// exists reports whether a table has a resource by name or alias.
func exists(t *xds.Table, name string) bool {
	return t.Lookup(name) != nil || t.Aliased(name).Len() > 0
}

// repeatMatching allows the resources that a name matches to be sent again.
func (a *account) repeatMatching(name string) {
	for n, k := range a.lastSent {
		a.repeat(n, n == name || a.typ.Collection(n) == name || k.version != "" || k.res != nil && matches(a.typ, k.res, name))
	}
}
