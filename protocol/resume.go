package protocol

import (
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// begin completes the first request of the type on the stream.
func (u *subscription) begin(s *Session, req xds.Request, t *xds.Table) {
	// "(legacy behavior) the request must have no resources in both
	// resource_names_subscribe and resource_names_unsubscribe".
	if u.implicit && u.typ.Implicit && len(req.Unsubscribe) == 0 {
		u.wildcard, u.moved = true, true
	}
	u.implicit = u.implicit && u.wildcard
	// Clients wait for an answer to these even when there is nothing to say.
	u.due = u.wildcard || s.variant == xds.SotW && u.typ.FullState
	s.scope(u)
	s.resumes = s.resumes || req.Version != "" || len(req.Initial) > 0
	if s.variant == xds.Delta {
		s.resume(u, req.Initial, t)
	} else if u.typ.FullState && req.Version != "" {
		s.recall(u, req.Version, t)
	}
}

// recall takes over what a SotW client holds that states a version: that of the
// present, or one that the view had lately. What has gone since then lingers.
func (s *Session) recall(u *subscription, version string, t *xds.Table) {
	held, gone := s.known(u.typ, version, t)
	if held == nil {
		return
	}
	var extra []entry
	for i := range u.entries {
		e := &u.entries[i]
		if r := held.Lookup(e.name); u.shows(r) {
			e.told, e.sent = r.Stamp, true
		}
	}
	for _, stamp := range gone {
		if e := u.entry(stamp.Name); e != nil {
			e.told, e.sent = stamp, true
		} else if u.wildcard {
			extra = append(extra, entry{name: stamp.Name, told: stamp, sent: true})
		}
	}
	u.insert(extra)
	if u.wildcard {
		u.base, u.anew = held.Versions(), true
	}
	s.linger(u, t, nil)
	for name, l := range u.leaving {
		l.from = 1 // it has that from before
		u.leaving[name] = l
	}
	// "It is generally safe for servers to do this optimization for LDS and CDS
	// when the only subscription is a wildcard subscription."
	if u.wildcard && u.count == 0 && version == t.VersionWith(u.leavingStamps()) && t.Hashed() && !s.refusedBefore(u.typ) {
		u.base, u.anew, u.due = t.Versions(), false, false
	}
}

// known returns the table whose version a client states, and what the client
// has besides, because it lingered when it was told: what older tables had and
// that one has not.
func (s *Session) known(typ *xds.Type, version string, t *xds.Table) (held *xds.Table, gone []*xds.Stamp) {
	tables := append([]*xds.Table{t}, s.recent(typ)...)
	for _, held := range tables {
		if held.Hashed() && held.Version() == version {
			return held, nil
		}
	}
	const depth = 4 // a client is not far behind; each costs the differences of all that are older
	for i := range tables[:min(depth, len(tables))] {
		held, gone = tables[i], nil
		seen := map[string]bool{}
		for j := i + 1; j < len(tables); j++ {
			for old, is := range tables[j-1].Versions().Since(tables[j].Versions()) {
				if is == nil && !seen[old.Name] && held.Versions().Get(old.Name) == nil {
					seen[old.Name] = true
					gone = append(gone, old)
				}
			}
			if len(gone) > 0 && held.VersionWith(slices.Values(gone)) == version {
				return held, gone
			}
		}
	}
	return nil, nil
}

// recent returns the tables that the type had lately, the newest first.
func (s *Session) recent(t *xds.Type) []*xds.Table {
	if s.opts.Recent == nil {
		return nil
	}
	return s.opts.Recent(t)
}

// body returns the resource with a stamp that the view had lately, or nil.
func (s *Session) body(typ *xds.Type, name string, is func(*xds.Stamp) bool) *xds.Resource {
	if r := s.table(typ).Departed(name); r != nil && is(r.Stamp) {
		return r
	}
	for _, t := range s.recent(typ) {
		if r := t.Lookup(name); r != nil && is(r.Stamp) {
			return r
		}
	}
	return nil
}

// resume takes over what a delta client retains: "the Incremental xDS client
// may tell the server of its known resources to avoid resending them".
func (s *Session) resume(u *subscription, initial []xds.Version, t *xds.Table) {
	if len(initial) == 0 {
		return
	}
	u.due = false
	matched := 0
	var extra []entry
	for _, v := range initial {
		e := u.entry(v.Name)
		stray := !u.wildcard && (e == nil || !u.wants(e))
		if stray && u.scopes == nil && (t.Lookup(v.Name) != nil || !u.found(t, v.Name)) {
			continue
		}
		told := unsure
		if r := t.Lookup(v.Name); !stray && u.shows(r) && r.Version == v.Version {
			told = r.Stamp
			if !r.OnDemand {
				matched++
			}
		} else if r == nil && s.lingering(u) {
			told = s.retain(u, v)
		}
		switch {
		case e != nil:
			e.told, e.sent, e.again = told, true, false
			u.mark(e)
		case u.lingers(v.Name) != nil || !real(told):
			extra = append(extra, entry{name: strings.Clone(v.Name), told: told, sent: true})
		}
	}
	if u.wildcard {
		u.base, u.anew, u.all = t.Versions(), false, true
		if matched < t.Len() { // what the client does not state it does not have
			stated := make(map[string]bool, len(initial))
			for _, v := range initial {
				stated[v.Name] = true
			}
			for s := range t.Versions().All() {
				if !stated[s.Name] && u.entry(s.Name) == nil {
					extra = append(extra, entry{name: s.Name, told: absent})
				}
			}
		}
	}
	slices.SortFunc(extra, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	u.insert(slices.CompactFunc(extra, func(a, b entry) bool { return a.name == b.name }))
	u.all = u.all || len(extra) > 0
}

// retain makes what a delta client states to have, and the view has lost, linger
// like what is lost on a stream. Its body may not be known any more, and need
// not be: nothing is sent until it is withdrawn.
func (s *Session) retain(u *subscription, v xds.Version) *xds.Stamp {
	told := unsure
	r := s.body(u.typ, v.Name, func(stamp *xds.Stamp) bool { return stamp.Version == v.Version })
	if r != nil {
		told = r.Stamp
	} else {
		r = &xds.Resource{Stamp: &xds.Stamp{Name: strings.Clone(v.Name), Version: strings.Clone(v.Version)}}
	}
	u.leave(leaver{Resource: r, seq: s.seq, from: 1, since: s.now})
	return told
}
