package protocoltest

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// begin completes the first request of a type.
func (l *ledger) begin(a *account, req xds.Request) {
	if a.implicit && a.typ.Implicit && len(req.Unsubscribe) == 0 {
		a.wildcard = true
		l.askAll(a)
	}
	a.implicit = a.implicit && a.wildcard
	for _, b := range l.accounts {
		// "DELTA-9 [...] WARM-2 overrides": clusters are on their way.
		if a.typ.Is(b.typ.Warms) && len(b.flights) > 0 {
			for c := range b.table.All() {
				for _, ref := range c.Refs {
					l.warms(a.typ, ref)
				}
			}
		}
	}
	// "The first request of a full-state type or of any wildcard is answered
	// even when there is nothing to send."
	a.answer = a.wildcard || a.world
	a.lax = a.answer
	l.resumes = l.resumes || req.Version != "" || len(req.Initial) > 0
	l.tardy = l.tardy || l.opensLate() // it may have been silent before, and say only now that it resumes
	l.scope(a, true)
	a.opaque = l.variant == xds.SotW && l.resumes
	if l.variant == xds.SotW {
		a.stated = req.Version
		for n := range a.names {
			if !a.world && l.resumes {
				a.before[n] = true
			}
		}
		a.resumed = !a.world && a.wildcard && req.Version != ""
		l.past.since(a.typ, req.Version, l.sends[a.typ.URL])
		if a.world && req.Version != "" {
			l.recall(a, req.Version)
		}
		return
	}
	if len(req.Initial) > 0 {
		a.answer, a.lax = false, false
	}
	for _, v := range req.Initial {
		a.heard[a.typ.Collection(v.Name)] = true
		r := l.shown(a, v.Name)
		for _, r := range []*xds.Resource{r, l.had(a, v.Name, v.Version)} {
			if r != nil && r.Version == v.Version {
				for _, n := range r.Aliases {
					a.heard[n] = true
				}
			}
		}
		if !a.covers(v.Name) && !a.wildcard {
			// It may have been found by a name that finds nothing any more.
			a.may[v.Name], a.heard[v.Name], a.stray[v.Name] = r == nil, true, fact{version: v.Version}
			if r == nil && l.lingers(a) {
				a.leaving[v.Name] = leaver{res: l.had(a, v.Name, v.Version), at: l.now, resumed: true, loose: true}
			}
			continue
		}
		a.told[v.Name] = fact{version: v.Version}
		delete(a.may, v.Name)
		if r == nil && l.lingers(a) && !a.outside(v.Name) {
			a.leaving[v.Name] = leaver{res: l.had(a, v.Name, v.Version), at: l.now, resumed: true}
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

// secretive reports whether the client has stated nothing by which its clusters of before
// could be known, and has accepted none since.
func (l *ledger) secretive() bool {
	cds := l.account(xds.Cluster)
	return !l.resumes || l.variant == xds.SotW && cds != nil && cds.stated == "" && cds.accepted == 0
}

// forgotten reports whether nobody knows what of a name the client has from an earlier
// stream, it has not been told of it for so long, and there is nothing to tell.
func (l *ledger) forgotten(t *xds.Type, name string) bool {
	a := l.account(t)
	return a != nil && l.variant == xds.SotW && a.before[name] && a.told[name].absent() && l.shown(a, name) == nil && l.now.Sub(l.began) >= silence
}

// had finds what the view had lately under a name, or nil.
func (l *ledger) had(a *account, name, version string) *xds.Resource {
	for _, t := range l.opts.Recent(a.typ) {
		if r := t.Lookup(name); r != nil && r.Version == version {
			return r
		}
	}
	return nil
}

// content returns what a fact tells of a name, nil if that is nothing, or if nobody knows.
func (l *ledger) content(a *account, name string, k fact) *xds.Resource {
	if k.res == nil && k.version != "" {
		return l.had(a, name, k.version)
	}
	return k.res
}

// recall takes over what a SotW client states to have by the version of a world.
func (l *ledger) recall(a *account, version string) {
	if !l.opts.Refused(a.typ) {
		a.version = version // it need not be told so if the view comes to that before it is answered
	}
	table := a.table
	var then *xds.Table
	for _, t := range append([]*xds.Table{table}, l.opts.Recent(a.typ)...) {
		if then == nil && t.Hashed() && t.Version() == version {
			then = t
		}
	}
	whole := a.wildcard && len(a.names) == 0
	// "After a NACK the client is not on the version it states", nor need it be before it
	// has answered.
	doubtful := l.opts.Refused(a.typ) || toldSince(l.sends[a.typ.URL], version)
	a.version = version
	if then == nil {
		// It may be one with what lingered when it was told.
		a.vague, l.blind = true, true
		for _, r := range l.worlds[a.typ.URL+version] {
			l.hold(a, r, true)
		}
		a.answer = a.answer && !whole
		return
	}
	if then == table && whole && !l.opts.Refused(a.typ) {
		a.answer, a.lax = false, doubtful
		clear(a.owe)
		clear(a.may)
	}
	a.opaque = doubtful
	for r := range then.All() {
		l.hold(a, r, r.OnDemand) // by the version nobody knows that it had asked for this
	}
	if doubtful { // of what it was told after that it may have applied a part
		for name, rs := range l.past[a.typ.URL] {
			for _, r := range rs {
				if _, told := a.told[name]; !told {
					l.hold(a, r, true)
				}
			}
		}
	}
	// Together with what lingers it may be what the client has.
	a.answer = a.answer && (then == table || !whole)
}

// toldSince reports whether a client that states a version was told another one after that.
func toldSince(sent []sending, version string) bool {
	i := slices.IndexFunc(sent, func(s sending) bool { return s.version == version })
	return i >= 0 && slices.ContainsFunc(sent[i:], func(s sending) bool { return s.version != version })
}

// hold notes that the client has a resource from before; loose: that a session need not
// know that.
func (l *ledger) hold(a *account, r *xds.Resource, loose bool) {
	if !a.names[r.Name] && (!a.star() || r.OnDemand) {
		return
	}
	a.told[r.Name] = fact{res: r, loose: loose}
	a.acked[r.Name], a.heard[r.Name] = a.told[r.Name], true
	if l.shown(a, r.Name) == nil && l.lingers(a) {
		a.leaving[r.Name] = leaver{res: r, at: l.now, resumed: true, loose: loose}
	}
	if !a.answer || len(a.names) == 0 {
		delete(a.owe, r.Name)
	}
}
