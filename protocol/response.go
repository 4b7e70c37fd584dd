package protocol

import (
	"slices"
	"strconv"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// bring counts a diff as told and returns the messages of the response. Terms: see doc.go.
func (s *Session) bring(u *subscription, t *xds.Table, d *diff) []*xds.Response {
	u.ask(false)
	world := s.tellsWorld(u)
	version := s.version(u, t) // computed before removals are counted as told
	stuck := s.warm(u, d.upserts, world)
	from, whole := u.base, u.Anew // without a wildcard, nil and false
	told, others := s.binders(u, d)
	items := s.tell(u, t, d, s.nonces+1)
	c := s.changes(u, t, d)
	switch {
	case len(others) > 0: // if they have no common order, the told states decide
		c = c.HandOver(slices.Values(others)).HandOver(slices.Values(told))
	case world && c == t.Since(nil): // shared with other streams
		c = t.Whole(from)
	}
	parts := []*xds.Changes{c}
	if !world {
		parts = c.Split(s.opts.MaxResponse)
	}
	content := cargo{From: from, To: u.base, Whole: whole, Items: items}
	f := delivery{cargo: content, version: version, sent: s.now, retry: u.hasRetried(&content), tried: s.tries(u.typ, &content), untold: s.forsakes(u)}
	if stuck {
		f.expectNone()
	}
	return s.send(u, t, &f, parts)
}

// changes returns the content to send for a diff.
func (s *Session) changes(u *subscription, t *xds.Table, d *diff) *xds.Changes {
	c := d.shared
	switch {
	case s.tellsWorld(u):
		c = s.fullState(u, t)
		for r := range u.lingering {
			u.Entry(r.Name).Tell(r.Stamp, 0) // a full state has the kept state, changed or not
		}
		for _, r := range s.substitutes(u) {
			u.Entry(r.Name).Tell(r.Stamp, 0)
		}
	case s.variant == xds.SotW:
		c = &xds.Changes{Upserts: d.upserts}
	case c == nil:
		c = &xds.Changes{Upserts: d.upserts, Removed: minus(d.removed, d.absent), Absent: d.absent}
	}
	if len(d.missing) > 0 {
		c = &xds.Changes{Upserts: c.Upserts, Removed: c.Removed, Absent: c.Absent, Missing: d.missing}
	}
	return c
}

// send builds the messages of a delivery and records it.
func (s *Session) send(u *subscription, t *xds.Table, d *delivery, parts []*xds.Changes) (out []*xds.Response) {
	var world *World // the same for all parts: the client may accept any part last
	if s.variant == xds.SotW {
		world = s.worldOf(u, t, d, len(parts))
	}
	for _, c := range parts {
		out = append(out, s.sendPart(u, d, c, world))
	}
	s.deliver(u, d)
	for _, c := range parts { // after deliver, which may add these names to unfed
		s.feed(u, c)
	}
	return out
}

// sendPart builds one message of a delivery.
func (s *Session) sendPart(u *subscription, d *delivery, c *xds.Changes, world *World) *xds.Response {
	s.nonces++
	d.addPart(partOf(s.nonces, c, s.tellsWorld(u)))
	r := &xds.Response{Type: u.typ, Version: d.version, Nonce: strconv.FormatUint(s.nonces, 10), TTL: s.ttl, Changes: c}
	s.event(Event{Kind: Sent, Type: u.typ, Retry: d.retry || d.tried, Nonce: r.Nonce, Version: r.Version, Count: len(c.Upserts), Removed: len(c.Removed) + len(c.Absent), Beats: len(c.Beats), Bytes: c.Bytes(), World: world})
	return r
}

// worldOf returns the World of a client that accepts one part of delivery d, which is about to be
// sent and has the content of t. For a full-state type that is everything in d. For other types the
// client may refuse other parts of d and other responses in flight, so the World also has older
// states.
func (s *Session) worldOf(u *subscription, t *xds.Table, d *delivery, parts int) *World {
	w := &World{Versions: t.Versions()}
	if u.typ.FullState {
		w.Others = u.besidesVersions(t)
		for _, r := range s.substitutes(u) {
			w.Lacks, w.Others = append(w.Lacks, r.Name), append(w.Others, r.Stamp)
		}
		slices.Sort(w.Lacks)
		slices.SortStableFunc(w.Others, stampByName)
		return w
	}
	for e := range u.unsettled(u.parked()) {
		if is := w.Versions.Get(e.Name); is != nil && !same(e.Told, is) {
			w.Lacks = append(w.Lacks, e.Name)
		}
	}
	slices.Sort(w.Lacks)
	s.mayHold(u, func(st *xds.Stamp, _ delay.Reason) {
		if stands(st) && (st.Name != "" || u.vagueAfter(d, parts, u.waiting.len() > 0)) {
			w.Others = append(w.Others, st)
		}
	})
	brought := u.brought
	if parts > 1 {
		w.Others = append(w.Others, d.replaced()...)
	} else if len(brought) > 0 {
		brought = except(brought, d.upserted())
	}
	slices.SortStableFunc(w.Others, stampByName)
	// The stamps in brought are the oldest states, so they come last for each name. The list is
	// shared if possible, because the cost of a copy would be the number of names that the client
	// stated.
	w.Others = merged(w.Others, brought)
	return w
}

// besidesVersions returns what a full state has besides the versions of its table: kept resources, and resources
// on demand.
func (u *subscription) besidesVersions(t *xds.Table) (all []*xds.Stamp) {
	for st := range u.lingeringStamps {
		all = append(all, st)
	}
	for e := range u.Entries() {
		if r := t.Lookup(e.Name); u.shows(r) && r.OnDemand {
			all = append(all, r.Stamp)
		}
	}
	slices.SortStableFunc(all, stampByName)
	return all
}

// replaced returns the versions that the delivery replaces by others.
func (d *delivery) replaced() (all []*xds.Stamp) {
	for _, it := range d.Each {
		if stands(it.Was) && !same(it.Was, it.Is) {
			all = append(all, it.Was)
		}
	}
	return all
}

// upserted returns the names of the resources that the delivery has.
func (d *delivery) upserted() (names []string) {
	for name, it := range d.Each {
		if stands(it.Is) {
			names = append(names, name)
		}
	}
	return names
}

// partOf returns the part for a message with these changes.
func partOf(nonce uint64, c *xds.Changes, world bool) part {
	lo, hi, begin, last := "-", "", "-", "" // empty ranges: no name is between "-" and ""
	if n := len(c.Upserts); n > 0 {
		lo, hi = c.Upserts[0].Name, c.Upserts[n-1].Name
	}
	if c.Together { // not by name
		for _, r := range c.Upserts {
			lo, hi = min(lo, r.Name), max(hi, r.Name)
		}
	}
	if n := len(c.Beats); n > 0 {
		lo, hi = c.Beats[0].Name, c.Beats[n-1].Name
	}
	first := true
	for _, gone := range [][]string{c.Removed, c.Absent} {
		if n := len(gone); n > 0 {
			if first || gone[0] < begin {
				begin = gone[0]
			}
			last, first = max(last, gone[n-1]), false
		}
	}
	return part{nonce: nonce, lo: lo, hi: hi, gone: begin, last: last, world: world}
}

// fullState returns all resources that the subscription covers: "the server must include the complete
// state of the world" (SOTW-8).
func (s *Session) fullState(u *subscription, t *xds.Table) *xds.Changes {
	var all []*xds.Resource
	for e := range u.Entries() { // for a wildcard, only the resources on demand
		if r := t.Lookup(e.Name); u.shows(r) && (!u.wildcard || r.OnDemand) {
			all = append(all, r)
		}
	}
	for r := range u.lingering {
		all = append(all, r)
	}
	if u.wildcard {
		if len(all)+u.waiting.len() == 0 {
			return t.Since(nil)
		}
		all = append(all, t.Since(nil).Upserts...)
	}
	all = byName(all)
	for _, r := range s.substitutes(u) {
		if i, ok := search(all, r.Name); ok {
			all[i] = r
		}
	}
	return &xds.Changes{Upserts: all}
}

// version returns the version of a response to u.
func (s *Session) version(u *subscription, t *xds.Table) string {
	if !s.tellsWorld(u) || len(u.leaving)+u.waiting.len() == 0 {
		return t.Version()
	}
	stamps := slices.Collect(u.lingeringStamps)
	for _, r := range s.substitutes(u) {
		stamps = append(stamps, r.Stamp)
	}
	return t.VersionWith(slices.Values(stamps))
}
