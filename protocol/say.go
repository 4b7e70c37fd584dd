package protocol

import (
	"slices"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A saying is what may have to be said of one type.
type saying struct {
	dirty  []string // names of entries of which something may have to be told
	looked int      // at how many of these since the view changed, while nothing may be said
	all    bool     // of any entry
	anew   bool     // all that the wildcard covers is to be told again
	due    bool     // answer even if nothing differs
	asked  bool     // names were asked for, or given up under a wildcard, since the last response

	stalled bool                 // something is to be said, but the newest response is unanswered
	muted   map[string]time.Time // until when the absence of a name is kept back
	mutings []muting             // these in order of time, and some that count no more
	stated  string               // the version that the client states to have (SotW, full state), until it is told something

	beats  map[time.Duration]time.Time // when resources with a TTL are told next, by TTL
	beatAt time.Time                   // the first of these; zero: never
	unfed  map[string]time.Time        // when names were told that were accepted late, or when a heartbeat was due, and got none since
}

// mark notes that something may have to be told of an entry.
func (u *subscription) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		u.dirty = append(u.dirty, e.name)
	}
	if u.stir(e.name); u.resting(e.name) {
		if u.roused == nil {
			u.roused = map[string]bool{}
		}
		u.roused[e.name] = true
	}
}

// addMarked adds entries of which something may have to be told.
func (u *subscription) addMarked(extra []entry) {
	for i := range extra {
		u.mark(&extra[i])
	}
	u.add(extra...)
}

// pending reports whether there may be something to say.
func (u *subscription) pending(t *xds.Table) bool {
	return len(u.dirty) > 0 || u.rests && len(u.waits) > len(u.roused) || u.news(t)
}

// news reports whether there may be something to say besides what is listed.
func (u *subscription) news(t *xds.Table) bool {
	return u.due || u.all || u.anew || u.wildcard && u.base != t.Versions()
}

// blocked reports whether the newest response must be answered first: changes
// coalesce behind a slow client. "The management server should not send a
// DiscoveryResponse for any DiscoveryRequest that has a stale nonce."
func (s *Session) blocked(u *subscription) bool {
	d := u.newest(s.variant)
	if d == nil || !s.now.Before(d.sent.Add(patience)) || u.stuck() {
		return false
	}
	// Delta: "the server must honor changes to the subscription state even if
	// the nonce is stale".
	return s.variant == xds.SotW || !u.asked || u.crowded()
}

// crowded reports whether as many responses are unanswered as are listed.
func (u *subscription) crowded() bool {
	n := 0
	for range u.underWay() {
		n++
	}
	return n >= maxDeliveries
}

// markAll marks what may differ, if that may be anything.
func (u *subscription) markAll() {
	if !u.all {
		return
	}
	u.all = false
	for e := range u.entries() {
		u.mark(e)
	}
}

// prepare finds of which names something is to be said: what others find anew,
// what is lost and stays for a while, and of the rest what differs.
func (s *Session) prepare(u *subscription) {
	t, blocked := s.table(u.typ), s.blocked(u)
	if s.rouse(u); blocked {
		u.wake()
	}
	switch {
	case !blocked:
		s.retain(u, nil)
	case len(u.dirty) < u.looked+u.looked/8:
		return // what one request more asks for does not make it look at thousands: before they are told it will
	default:
		s.retain(u, []xds.Names{}) // of the wildcard's, Change has seen to it
	}
	if s.variant == xds.Delta && (t.Finds() || len(u.matches) > 0) {
		slices.Sort(u.dirty) // in what order they became so depends on hints
		for _, n := range slices.Clone(u.dirty) {
			u.match(t, n)
		}
		u.dropUnwanted()
	}
	dirty := u.dirty[:0]
	slices.Sort(u.dirty)
	for _, n := range slices.Compact(u.dirty) { // a name may have gone and come back
		e := u.entry(n)
		if e == nil || !e.dirty {
			continue
		}
		if e.dirty = s.lists(u, t, e) || s.hopes(u, t, e); e.dirty {
			dirty = append(dirty, n)
		} else if u.dropped[n] && !u.wants(e) && !u.wildcard && e.told == absent {
			// It is not decided whether it exists. If it does its route will find it.
			u.regain(n)
			u.names.remove(n)
		}
	}
	clear(u.dirty[len(dirty):])
	if u.dirty = dirty; len(dirty) == 0 {
		u.dirty = nil
	}
	if u.looked = 0; blocked {
		u.looked = len(dirty)
	}
}

// lists reports whether an entry belongs among those of which something may have to be
// told. What differs and must not be told yet, since the view is looking for it, does:
// the client may hold it.
func (s *Session) lists(u *subscription, t *xds.Table, e *entry) bool {
	r, gone := s.owed(u, t, e)
	return r != nil || gone || u.leaving[e.name] == nil && u.outdated(t, e.name, e.told)
}

// respond returns the messages that bring the client up to date, if there is
// anything to say now. Removals alone are told only if last is set.
func (s *Session) respond(u *subscription, last bool) []*xds.Response {
	t := s.table(u.typ)
	if !u.pending(t) {
		u.forgetWaits()
		u.rests, u.roused = false, nil
		return nil
	}
	if u.stalled = s.blocked(u); u.stalled {
		u.wake()
		u.ends, u.patient = earliest{}, earliest{} // it waits for its own type first
		return nil
	}
	world := s.variant == xds.SotW && u.typ.FullState
	if s.rouse(u); u.rests {
		if len(u.dirty)+len(u.roused) == 0 {
			return nil
		}
		if world || u.news(t) { // what is told of the table is told of all of it
			u.wake()
		}
	}
	d := s.diff(u, t)
	for u.holdsBack() && u.dissolve(world, d.names) {
		d = s.diff(u, t)
	}
	version := t.Version()
	if world && len(u.leaving) > 0 {
		version = t.VersionWith(u.lingeringStamps)
	}
	// "It is generally safe for servers to do this optimization for LDS and CDS
	// when the only subscription is a wildcard subscription."
	if world && u.stated == version && u.wildcard && u.named == 0 && t.Hashed() && !s.refusedBefore(u.typ) {
		d.waiting = nil // it has all
		u.stated, u.due = "", false
		s.tell(u, t, &d)
		return nil
	}
	if world && s.searching(u) {
		return nil // what a world does not have does not exist
	}
	s.wait(u, &d)
	if len(u.waits) > 0 && (world || len(d.upserts)+len(d.removed) == 0) {
		s.rest(u)
		return nil // a world is told whole, or not yet; an empty one would mislead
	}
	send := u.due || len(d.upserts) > 0
	gone := len(d.missing) > 0
	if s.variant == xds.Delta || world { // else "the API provides no mechanism" for it
		gone = gone || len(d.removed) > 0
		// "Removals last", also of what the client brought along.
		if !last && len(d.upserts) == 0 && slices.ContainsFunc(d.removed, func(n string) bool { return stands(u.told(n)) }) {
			return nil
		}
	}
	if gone && !send && !last {
		return nil
	}
	send = send || gone
	u.stated = ""
	old, whole := u.base, u.anew
	u.due = false
	if !send {
		s.tell(u, t, &d)
		s.rest(u)
		return nil
	}
	u.asked = false
	f := delivery{version: version, sent: s.now}
	stuck := s.warm(u, d.upserts, world)
	if f.items = s.tell(u, t, &d); u.wildcard {
		f.from, f.to, f.whole = old, u.base, whole
	}
	changes := d.shared
	switch {
	case world:
		changes = u.world(t)
		for r := range u.lingering {
			e := u.entry(r.Name)
			e.told, e.again = r.Stamp, false // the last it was, news or not
		}
	case s.variant == xds.SotW:
		changes = &xds.Changes{Upserts: d.upserts}
	case changes == nil:
		changes = &xds.Changes{Upserts: d.upserts, Removed: minus(d.removed, d.absent), Absent: d.absent}
	}
	if len(d.missing) > 0 {
		changes = &xds.Changes{Upserts: changes.Upserts, Removed: changes.Removed, Absent: changes.Absent, Missing: d.missing}
	}
	parts := []*xds.Changes{changes}
	if !world {
		parts = changes.Split(s.opts.MaxResponse)
	}
	out := s.send(u, t, f, parts)
	s.rest(u)
	if stuck {
		u.deliveries[len(u.deliveries)-1].stuck = u.nonce
	}
	return out
}

// send makes the messages of a delivery.
func (s *Session) send(u *subscription, t *xds.Table, d delivery, parts []*xds.Changes) (out []*xds.Response) {
	var world *World // the same, whichever part the client accepts last
	if s.variant == xds.SotW {
		world = s.worldOf(u, t, &d, len(parts))
	}
	for _, c := range parts {
		s.nonces++
		p := partOf(s.nonces, c)
		p.world = s.variant == xds.SotW && u.typ.FullState
		d.parts = append(d.parts, p)
		r := &xds.Response{Type: u.typ, Version: d.version, Nonce: strconv.FormatUint(s.nonces, 10), TTL: s.ttl, Changes: c}
		s.event(Event{Kind: Sent, Type: u.typ, Nonce: r.Nonce, Version: r.Version, Count: len(c.Upserts), Removed: len(c.Removed) + len(c.Absent), Beats: len(c.Beats), World: world})
		out = append(out, r)
	}
	u.deliver(s, d)
	for _, c := range parts { // also of what was unlisted for this one
		s.feed(u, c)
	}
	return out
}

// partOf is the message that carries the changes.
func partOf(nonce uint64, c *xds.Changes) part {
	p := part{nonce: nonce, lo: "-", gone: "-"} // of nothing: no name stands between "-" and ""
	if n := len(c.Upserts); n > 0 {
		p.lo, p.hi = c.Upserts[0].Name, c.Upserts[n-1].Name
	}
	if n := len(c.Beats); n > 0 {
		p.lo, p.hi = c.Beats[0].Name, c.Beats[n-1].Name
	}
	first := true
	for _, gone := range [][]string{c.Removed, c.Absent} {
		if n := len(gone); n > 0 {
			if first || gone[0] < p.gone {
				p.gone = gone[0]
			}
			p.last, first = max(p.last, gone[n-1]), false
		}
	}
	return p
}

// tell counts the diff as told and returns what it said of entries.
func (s *Session) tell(u *subscription, t *xds.Table, d *diff) (items []item) {
	// What waits keeps what it was told before as an exception to the base.
	var extra []entry
	for _, n := range d.waiting {
		if u.entry(n) == nil {
			told := u.told(n)
			extra = append(extra, entry{name: n, told: told, sent: told != absent, again: u.anew && told != absent})
		}
	}
	items = slices.Grow(items, len(u.dirty)+len(d.kept))
	said := func(e *entry, is *xds.Stamp) {
		was := e.told
		if orphan := u.orphans[e.name]; orphan != nil && stands(is) {
			was = orphan
			delete(u.orphans, e.name)
		}
		u.regain(e.name)
		if stands(is) {
			delete(u.lapsed, e.name)
		}
		if s.variant == xds.Delta && same(was, is) && u.comesFirst(e.name) {
			was = absent // it may have been given up since, and asked for again
		}
		items = append(items, item{name: e.name, was: was, is: is})
		e.told, e.sent, e.again = is, true, false
	}
	if u.names.len() > 0 {
		for _, r := range d.upserts {
			if e := u.entry(r.Name); e != nil {
				said(e, r.Stamp)
			}
		}
	}
	if len(u.orphans) > 0 { // what the wildcard tells anew of what it could not tell to be gone
		for _, r := range d.upserts {
			if orphan := u.orphans[r.Name]; orphan != nil && u.entry(r.Name) == nil {
				items = append(items, item{name: r.Name, was: orphan, is: r.Stamp})
				delete(u.orphans, r.Name)
			}
		}
	}
	untold := s.variant == xds.SotW && !u.typ.FullState
	stray := false
	for _, n := range d.removed {
		delete(u.unfed, n)
		e := u.entry(n)
		if e == nil {
			continue
		}
		stray = stray || !u.wildcard && !u.wants(e)
		if untold && stands(e.told) {
			u.orphan(n, e.told)
		}
		said(e, absent)
		if u.lapsed[n] {
			items[len(items)-1].lapsed = true
			delete(u.lapsed, n)
		}
		if u.matches[n] != nil {
			e.told = others
		}
		s.departed(u, n)
	}
	slices.SortFunc(items, itemByName)
	listed := u.dirty
	if u.anew || u.wildcard && u.base != t.Versions() || s.variant == xds.SotW && u.typ.FullState {
		u.moves++ // it is told of the table
	} else if u.heeded {
		u.stirred = append(u.stirred, listed...)
		for n := range d.names {
			u.stir(n)
		}
	}
	u.anew, u.dirty = false, nil
	for _, n := range listed {
		if e := u.entry(n); e != nil {
			// What must not be told yet, since the view is looking for it, stays listed.
			if e.dirty = false; u.leaving[n] == nil && u.outdated(t, n, e.told) || s.hopes(u, t, e) {
				u.mark(e)
			}
		}
	}
	if untold && u.wildcard {
		for _, n := range d.removed {
			if st := u.base.Get(n); st != nil && u.entry(n) == nil {
				u.orphan(n, st)
			}
		}
	}
	if u.wildcard {
		u.base = t.Versions()
		u.add(extra...)
	}
	for _, n := range d.waiting {
		if e := u.entry(n); e != nil {
			u.mark(e)
		}
	}
	told := items              // in order
	for _, n := range d.kept { // of these nothing was said
		if _, ok := slices.BinarySearchFunc(told, item{name: n}, itemByName); !ok {
			items = append(items, item{name: n})
		}
	}
	for i := range extra {
		items = append(items, item{name: extra[i].name})
	}
	slices.SortFunc(items, itemByName)
	if stray { // forget what no name finds
		u.removeFunc(func(e *entry) bool { return e.told == absent && !u.wants(e) })
	}
	if u.wildcard && u.names.len() > u.named { // forget exceptions that are none
		none := func(e *entry) bool {
			if u.wants(e) || e.dirty || e.again || u.leaving[e.name] != nil {
				return false
			}
			is := u.base.Get(e.name)
			return e.told == absent && is == nil || is != nil && same(e.told, is)
		}
		if len(listed)+len(items) > 64 {
			u.removeFunc(none)
		} else { // only these can have become so
			for _, it := range items {
				listed = append(listed, it.name)
			}
			for _, n := range listed {
				if e := u.entry(n); e != nil && none(e) {
					u.remove(n)
				}
			}
		}
	}
	return items
}

// orphan notes that the client keeps what the view has lost.
func (u *subscription) orphan(name string, st *xds.Stamp) {
	if u.orphans == nil {
		u.orphans = map[string]*xds.Stamp{}
	}
	u.orphans[name] = st
}

// world is everything the subscription covers: "the server must include the
// complete state of the world".
func (u *subscription) world(t *xds.Table) *xds.Changes {
	var all []*xds.Resource
	for e := range u.entries() { // of a wildcard, what it does not cover itself
		if r := t.Lookup(e.name); u.shows(r) && (!u.wildcard || r.OnDemand) {
			all = append(all, r)
		}
	}
	for r := range u.lingering {
		all = append(all, r)
	}
	if u.wildcard {
		if len(all) == 0 {
			return t.Since(nil)
		}
		all = append(all, t.Since(nil).Upserts...)
	}
	return &xds.Changes{Upserts: byName(all)}
}

// sayBy yields the times at which something may have to be said though nothing
// happens.
func (s *Session) sayBy(u *subscription, yield func(time.Time)) {
	yield(u.beatAt)
	overdue := !u.beatAt.IsZero() && !s.now.Before(u.beatAt)
	if d := u.newest(s.variant); d != nil && (u.stalled || overdue || len(u.leaving) > 0) {
		yield(d.sent.Add(patience))
	}
	if len(u.mutings) > 0 {
		yield(u.mutings[0].until)
	}
}
