package protocoltest

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// firstRequest processes the first request of a type.
func (l *ledger) firstRequest(a *account, req xds.Request) {
	if a.implicit && a.typ.Implicit && len(req.Unsubscribe) == 0 {
		a.wildcard = true
		l.askAll(a)
	}
	a.implicit = a.implicit && a.wildcard
	for _, b := range l.accounts {
		// WARM-2 overrides DELTA-9: clusters are in flight.
		if a.typ.Is(b.typ.Warms) && len(b.flights) > 0 {
			for c := range b.table.All() {
				for _, ref := range c.Refs {
					l.warms(a.typ, ref)
				}
			}
		}
	}
	// The first request of a full-state type or of any wildcard is answered even when there is nothing to
	// send.
	a.answer = a.wildcard || a.world
	a.mayAnswerEmpty = a.answer
	l.resumes = l.resumes || req.Version != "" || len(req.Initial) > 0
	l.tardy = l.tardy || l.opensLate() // the client may have been silent before, and shows only now that it resumes
	l.updateScopes(a, true)
	a.opaque = l.variant == xds.SotW && l.resumes
	if l.variant == xds.SotW {
		a.stated = req.Version
		for n := range a.names {
			if !a.world && l.resumes {
				a.heldBefore[n] = true
			}
		}
		a.resumed = !a.world && a.wildcard && req.Version != ""
		l.past.since(a.typ, req.Version, l.sends[a.typ.URL])
		if a.world && req.Version != "" {
			l.resumeVersion(a, req.Version)
		}
		return
	}
	if len(req.Initial) > 0 {
		a.answer, a.mayAnswerEmpty = false, false
	}
	for _, v := range req.Initial {
		a.heard[a.typ.Collection(v.Name)] = true
		r := l.shown(a, v.Name)
		for _, r := range []*xds.Resource{r, l.recent(a, v.Name, v.Version)} {
			if r != nil && r.Version == v.Version {
				for _, n := range r.Aliases {
					a.heard[n] = true
				}
			}
		}
		if !a.covers(v.Name) && !a.wildcard {
			// A name that matches no resource now may have matched this resource before.
			a.maySend[v.Name], a.heard[v.Name], a.stray[v.Name] = r == nil, true, fact{version: v.Version}
			if r == nil && l.keepsRemoved(a) {
				a.removed[v.Name] = removal{res: l.recent(a, v.Name, v.Version), at: l.now, resumed: true, loose: true}
			}
			continue
		}
		a.lastSent[v.Name] = fact{version: v.Version}
		delete(a.maySend, v.Name)
		if r == nil && l.keepsRemoved(a) && !a.outsideRoutes(v.Name) {
			a.removed[v.Name] = removal{res: l.recent(a, v.Name, v.Version), at: l.now, resumed: true}
		}
		if r != nil && r.Version == v.Version {
			a.lastSent[v.Name] = fact{res: r}
		} else {
			a.maySend[v.Name] = true // if the view returns to that state, it is unknown whether the client has it
		}
		a.acked[v.Name], a.heard[v.Name] = a.lastSent[v.Name], true
		delete(a.mustSend, v.Name)
	}
}

// statesNoClusters reports whether the client has stated nothing about its clusters of an earlier stream, and has
// accepted none since.
func (l *ledger) statesNoClusters() bool {
	cds := l.account(xds.Cluster)
	return !l.resumes || l.variant == xds.SotW && cds != nil && cds.stated == "" && cds.accepted == 0
}

// holdsUnknown reports whether the client may hold an unknown state of a name from an earlier stream, was sent
// nothing about it for 15 s, and nothing can be sent.
func (l *ledger) holdsUnknown(t *xds.Type, name string) bool {
	a := l.account(t)
	return a != nil && l.variant == xds.SotW && a.heldBefore[name] && a.lastSent[name].absent() && l.shown(a, name) == nil && l.now.Sub(l.began) >= silentAfter
}

// recent returns the resource that the view recently had by a name and version, or nil.
func (l *ledger) recent(a *account, name, version string) *xds.Resource {
	for _, t := range l.opts.Recent(a.typ) {
		if r := t.Lookup(name); r != nil && r.Version == version {
			return r
		}
	}
	return nil
}

// content returns the resource of a fact, or nil if it is a removal or unknown.
func (l *ledger) content(a *account, name string, k fact) *xds.Resource {
	if k.res == nil && k.version != "" {
		return l.recent(a, name, k.version)
	}
	return k.res
}

// resumeVersion records the resources that a SotW client states by the version of a full-state response.
func (l *ledger) resumeVersion(a *account, version string) {
	if !l.opts.Refused(a.typ) {
		a.version = version // if the view returns to that version before it is answered, nothing must be sent
	}
	table := a.table
	var then *xds.Table
	for _, t := range append([]*xds.Table{table}, l.opts.Recent(a.typ)...) {
		if then == nil && t.Hashed() && t.Version() == version {
			then = t
		}
	}
	whole := a.wildcard && len(a.names) == 0
	// After a NACK, or without an answer, the client does not have the version that it states.
	doubtful := l.opts.Refused(a.typ) || sentSince(l.sends[a.typ.URL], version)
	a.version = version
	if then == nil {
		// The version may include resources that were kept when it was sent.
		a.vague, l.blind = true, true
		for _, r := range l.worlds[a.typ.URL+version] {
			l.holdFromBefore(a, r, true)
		}
		a.answer = a.answer && !whole
		return
	}
	if then == table && whole && !l.opts.Refused(a.typ) {
		a.answer, a.mayAnswerEmpty = false, doubtful
		clear(a.mustSend)
		clear(a.maySend)
	}
	a.opaque = doubtful
	for r := range then.All() {
		l.holdFromBefore(a, r, r.OnDemand) // the version does not show whether the client subscribed to an on-demand resource
	}
	if doubtful { // the client may have applied a part of later responses
		for name, rs := range l.past[a.typ.URL] {
			for _, r := range rs {
				if _, told := a.lastSent[name]; !told {
					l.holdFromBefore(a, r, true)
				}
			}
		}
	}
	// Together with the kept resources it may be the state of the client.
	a.answer = a.answer && (then == table || !whole)
}

// sentSince reports whether the client was sent another version after the one that it states.
func sentSince(sent []sending, version string) bool {
	i := slices.IndexFunc(sent, func(s sending) bool { return s.version == version })
	return i >= 0 && slices.ContainsFunc(sent[i:], func(s sending) bool { return s.version != version })
}

// holdFromBefore records that the client holds a resource from an earlier stream. Set loose if the
// session need not know that.
func (l *ledger) holdFromBefore(a *account, r *xds.Resource, loose bool) {
	if !a.names[r.Name] && (!a.coversAll() || r.OnDemand) {
		return
	}
	a.lastSent[r.Name] = fact{res: r, loose: loose}
	a.acked[r.Name], a.heard[r.Name] = a.lastSent[r.Name], true
	if l.shown(a, r.Name) == nil && l.keepsRemoved(a) {
		a.removed[r.Name] = removal{res: r, at: l.now, resumed: true, loose: loose}
	}
	if !a.answer || len(a.names) == 0 {
		delete(a.mustSend, r.Name)
	}
}
