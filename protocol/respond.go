package protocol

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/chancery-xds/chancery/xds"
)

// current returns what the client should have of a name now, or nil.
func (u *subscription) current(t *xds.Table, name string) *xds.Resource {
	if r := t.Lookup(name); r != nil || len(u.leaving) == 0 {
		return r
	}
	return u.lingers(name)
}

// shows reports whether the subscription covers a resource of the view: those
// on demand are part of no wildcard.
func (u *subscription) shows(r *xds.Resource) bool {
	if r == nil || !r.OnDemand {
		return r != nil
	}
	e := u.entry(r.Name)
	return e != nil && u.wants(e)
}

func differs(told *xds.Stamp, r *xds.Resource) bool { return told.Sum != r.Sum }

// pending reports whether there may be something to say.
func (u *subscription) pending(t *xds.Table) bool {
	return u.due || len(u.dirty) > 0 || u.anew || u.wildcard && u.base != t.Versions()
}

// blocked reports whether the newest response must be answered first: changes
// coalesce behind a slow client. "The management server should not send a
// DiscoveryResponse for any DiscoveryRequest that has a stale nonce."
func (s *Session) blocked(u *subscription) bool {
	if !u.open {
		return false
	}
	i := len(u.flights) - 1
	for i >= 0 && u.flights[i].beats != nil && (s.variant == xds.Delta || !u.typ.FullState) {
		i-- // "not treated as resource updates"
	}
	if i < 0 {
		return false
	}
	f := &u.flights[i]
	if !s.now.Before(f.sent.Add(patience)) || u.stuck() {
		return false
	}
	// Delta: "the server must honor changes to the subscription state even if
	// the nonce is stale".
	return s.variant == xds.SotW || !u.asked || len(u.flights) >= maxFlights
}

// A diff is what the client is to be told, by name.
type diff struct {
	upserts []*xds.Resource
	removed []string // of which absent are told otherwise
	absent  []string
	missing []string
	waiting []string // upserts kept back until another type is answered
	shared  *xds.Changes
}

// diff compares the view with what was told, where they may differ.
func (s *Session) diff(u *subscription, t *xds.Table) (d diff) {
	ordered := s.ordered(u)
	upsert := func(r *xds.Resource) {
		if ordered && s.waits(u, r) {
			d.waiting = append(d.waiting, r.Name)
		} else {
			d.upserts = append(d.upserts, r)
		}
	}
	if u.wildcard && (u.anew || u.base != t.Versions()) {
		c := t.Since(u.base)
		if u.anew && u.base.Len() > 0 {
			c = &xds.Changes{Upserts: t.Since(nil).Upserts, Removed: c.Removed}
		}
		if len(u.entries) == 0 && !ordered {
			return diff{upserts: c.Upserts, removed: c.Removed, shared: c}
		}
		for _, r := range c.Upserts {
			if e := u.entry(r.Name); e != nil {
				u.mark(e)
			} else {
				upsert(r)
			}
		}
		for _, n := range c.Removed {
			if e := u.entry(n); e != nil {
				u.mark(e)
			} else {
				d.removed = append(d.removed, n)
			}
		}
	}
	look := func(e *entry) {
		if r, removed := s.owed(u, t, e); removed {
			d.removed = append(d.removed, e.name)
			if e.told == absent && e.named && s.bodyless(u) && !u.scopes[e.name] {
				d.absent = append(d.absent, e.name)
			}
			if s.opts.ResourceErrors && e.named && e.name != "" && !u.scopes[e.name] {
				d.missing = append(d.missing, e.name)
			}
		} else if r != nil {
			upsert(r)
		}
	}
	for _, n := range u.dirty {
		if e := u.entry(n); e != nil {
			look(e)
		}
	}
	slices.SortFunc(d.upserts, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(d.removed)
	slices.Sort(d.absent)
	slices.Sort(d.missing)
	return d
}

// minus returns the names that are not in the second list; both are sorted.
func minus(names, others []string) []string {
	if len(others) == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, has := slices.BinarySearch(others, n); return has })
}

// names yields the names that the diff mentions.
func (d *diff) names(yield func(string) bool) {
	for _, r := range d.upserts {
		if !yield(r.Name) {
			return
		}
	}
	for _, n := range append(d.waiting, d.removed...) {
		if !yield(n) {
			return
		}
	}
}

// respond returns the messages that bring the client up to date, if there is
// anything to say now. Removals alone are told only if last is set.
func (s *Session) respond(u *subscription, last bool) []*xds.Response {
	t := s.table(u.typ)
	if s.settled(u) {
		return nil
	}
	if s.blocked(u) {
		u.stalled = u.pending(t)
		return nil
	}
	u.stalled = false
	d := s.diff(u, t)
	for len(u.refused) > 0 && u.dissolve(d.names) {
		d = s.diff(u, t)
	}
	world := s.variant == xds.SotW && u.typ.FullState
	s.wait(u, d.waiting)
	if len(d.waiting) > 0 && (world || len(d.upserts)+len(d.removed) == 0) {
		return nil // a world is told whole, or not yet; an empty one would mislead
	}
	if world && s.searching(u) {
		return nil // what a world does not have does not exist
	}
	send := u.due || len(d.upserts)+len(d.missing) > 0
	if s.variant == xds.Delta || world { // else "the API provides no mechanism" for it
		if !last && !send && len(d.removed) > 0 {
			return nil
		}
		send = send || len(d.removed) > 0
	}
	old := u.base
	if u.anew {
		old = nil
	}
	u.due, u.asked = false, false
	if !send {
		u.tell(t, &d)
		s.settled(u)
		return nil
	}
	f := flight{version: t.VersionWith(u.leavingStamps()), sent: s.now, stuck: s.warm(u, d.upserts, world)}
	f.items = u.tell(t, &d)
	if f.seq = u.reached(s.seq); len(d.waiting) > 0 {
		f.seq = u.acked
	}
	if u.wildcard {
		f.from, f.to = old, u.base
	}
	changes := d.shared
	switch {
	case world:
		changes = u.world(t)
		for name, l := range u.leaving {
			u.entry(name).told = l.Stamp // the last it was, news or not
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
	return s.send(u, f, parts)
}

// send makes the messages of a flight.
func (s *Session) send(u *subscription, f flight, parts []*xds.Changes) (out []*xds.Response) {
	for _, c := range parts {
		for _, r := range c.Upserts {
			if at, ok := u.beats[r.TTL]; ok && !s.now.Before(at) {
				u.beats[r.TTL] = s.nextBeat(r.TTL) // its time begins now
			}
		}
		s.nonces++
		u.nonce = s.nonces
		p := part{nonce: s.nonces, removed: len(c.Removed)+len(c.Absent) > 0}
		if n := len(c.Upserts); n > 0 {
			p.lo, p.hi = c.Upserts[0].Name, c.Upserts[n-1].Name
		}
		if n := len(c.Beats); n > 0 {
			p.lo, p.hi = c.Beats[0].Name, c.Beats[n-1].Name
		}
		f.parts = append(f.parts, p)
		r := &xds.Response{Type: u.typ, Version: f.version, Nonce: strconv.FormatUint(s.nonces, 10), TTL: s.ttl, Changes: c}
		s.event(Event{Kind: Sent, Type: u.typ, Nonce: r.Nonce, Version: r.Version, Count: len(c.Upserts), Removed: len(c.Removed) + len(c.Absent), Beats: len(c.Beats)})
		out = append(out, r)
	}
	if len(u.flights) == maxFlights {
		// A heartbeat is of the least interest.
		i := max(0, slices.IndexFunc(u.flights, func(f flight) bool { return f.beats != nil }))
		if i+1 < len(u.flights) {
			u.flights[i+1].stuck = u.flights[i+1].stuck || u.flights[i].stuck && !u.flights[i].passed
		}
		u.flights = slices.Delete(u.flights, i, i+1)
	}
	if !u.open {
		u.silent = s.now
	}
	u.flights, u.open = append(u.flights, f), true
	return out
}

// owed returns what the client is to be told of an entry's name: a resource, or
// that it is gone, or nothing.
func (s *Session) owed(u *subscription, t *xds.Table, e *entry) (r *xds.Resource, removed bool) {
	wanted := u.wants(e)
	if r = u.current(t, e.name); r != nil && r.OnDemand && !wanted {
		r = nil
	}
	switch {
	case u.via[e.name] != nil:
		// It finds others, which have entries of their own. The client may have
		// one of that name from before.
		return nil, e.told != others && u.lingers(e.name) == nil
	case !wanted && !u.wildcard:
		// No name finds it any more.
		return nil, (e.told != absent || e.again) && u.lingers(e.name) == nil
	case r != nil && u.unknown(e.name):
		return nil, e.again
	case r != nil && u.lingers(e.name) == r && (!e.again || real(e.told) && differs(e.told, r)):
		// It is about to leave: what the client has of it will do.
	case r != nil && (e.again || differs(e.told, r)):
		return r, false
	case r != nil || !e.again && e.told == absent:
	case s.mutes(u, e):
		u.muted = true
	case s.undecided(u.typ, e.name):
	default:
		return nil, true
	}
	return nil, false
}

// narrow leaves dirty only the entries of which there is something to say.
func (s *Session) narrow(u *subscription) {
	t := s.table(u.typ)
	look := func(e *entry) {
		r, removed := s.owed(u, t, e)
		if e.dirty = r != nil || removed; e.dirty {
			u.dirty = append(u.dirty, e.name)
		}
	}
	if s.variant == xds.Delta && (t.Finds() || len(u.via) > 0) {
		for _, n := range u.suspects() {
			u.look(t, n)
		}
	}
	names := u.dirty
	u.dirty = nil
	if u.all {
		u.all = false
		for i := range u.entries {
			look(&u.entries[i])
		}
		return
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) { // a name may have gone and come back
		if e := u.entry(n); e != nil {
			look(e)
		}
	}
}

// settled reports whether there is nothing to say. If nothing is unanswered or
// refused either, the client is up to the present.
func (s *Session) settled(u *subscription) bool {
	if u.pending(s.table(u.typ)) {
		return false
	}
	u.waiting = nil
	if !u.open && !u.refuses() {
		u.acked = max(u.acked, u.reached(s.seq))
	}
	return true
}

// tell counts the diff as told and returns what it said of entries.
func (u *subscription) tell(t *xds.Table, d *diff) (items []item) {
	// What waits keeps what it was told before as an exception to the base.
	var extra []entry
	for _, n := range d.waiting {
		if u.entry(n) == nil {
			extra = append(extra, entry{name: n, told: u.told(n), sent: u.base.Get(n) != nil, again: u.anew})
		}
	}
	for _, r := range d.upserts {
		if len(u.entries) == 0 {
			break
		}
		if e := u.entry(r.Name); e != nil {
			e.told, e.sent, e.again = r.Stamp, true, false
			items = append(items, item{e.name, e.told})
		}
	}
	stray := false
	for _, n := range d.removed {
		if e := u.entry(n); e != nil {
			stray = stray || !u.wildcard && !u.wants(e)
			e.told, e.sent, e.again = absent, true, false
			items = append(items, item{e.name, absent})
			if u.via[n] != nil {
				e.told = others
			}
		} else if u.anew {
			items = append(items, item{n, absent})
		}
	}
	byName := func(a, b item) int { return cmp.Compare(a.name, b.name) }
	slices.SortFunc(items, byName)
	for _, n := range u.dirty {
		if e := u.entry(n); e != nil {
			e.dirty = false
		}
	}
	u.anew, u.dirty = false, nil
	if u.wildcard {
		u.base = t.Versions()
		u.insert(extra)
	}
	for _, n := range d.waiting {
		if e := u.entry(n); e != nil {
			u.mark(e)
		}
	}
	if u.wildcard { // of what else has an entry nothing was said
		said := items
		for i := range u.entries {
			if _, ok := slices.BinarySearchFunc(said, item{name: u.entries[i].name}, byName); !ok {
				items = append(items, item{name: u.entries[i].name})
			}
		}
		slices.SortFunc(items, byName)
	}
	if stray { // forget what no name finds
		u.entries = slices.DeleteFunc(u.entries, func(e entry) bool { return e.told == absent && !u.wants(&e) })
	}
	if u.wildcard && len(u.entries) > 0 { // forget exceptions that are none
		u.entries = slices.DeleteFunc(u.entries, func(e entry) bool {
			if u.wants(&e) || e.dirty || e.again || u.lingers(e.name) != nil {
				return false
			}
			is := u.base.Get(e.name)
			return e.told == absent && is == nil || is != nil && e.told.Sum == is.Sum
		})
	}
	return items
}

// world is everything the subscription covers: "the server must include the
// complete state of the world".
func (u *subscription) world(t *xds.Table) *xds.Changes {
	c := &xds.Changes{}
	for _, e := range u.entries { // of a wildcard, what it does not cover itself
		if r := u.current(t, e.name); u.shows(r) && (!u.wildcard || r.OnDemand && u.lingers(e.name) == nil) {
			c.Upserts = append(c.Upserts, r)
		}
	}
	if u.wildcard {
		if len(c.Upserts)+len(u.leaving) == 0 {
			return t.Since(nil)
		}
		c.Upserts = append(c.Upserts, t.Since(nil).Upserts...)
		for _, l := range u.leaving {
			c.Upserts = append(c.Upserts, l.Resource)
		}
	}
	slices.SortFunc(c.Upserts, func(a, b *xds.Resource) int { return cmp.Compare(a.Name, b.Name) })
	return c
}
