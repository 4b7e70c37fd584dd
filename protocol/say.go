package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A saying is what may have to be said of one type.
//
// Invariant: an entry that is dirty is listed; a name that is muted is among mutings, with the
// same time; beatAt is zero if and only if there are no beats.
type saying struct {
	dirty  []string // names of entries of which something may have to be told, and some that are gone, or are not dirty
	looked int      // at how many of these since the view changed, while nothing may be said
	all    bool     // of any entry
	anew   bool     // all that the wildcard covers is to be told again; never without one
	due    bool     // answer even if nothing differs
	asked  bool     // names were asked for, or given up under a wildcard, since the last response

	stalled bool   // something is to be said, but the newest response is unanswered
	mute    *mutes // whose absence is kept back; nil: nobody's
	stated  string // the version that the client states to have (SotW, full state), until it is told something

	beats  map[time.Duration]time.Time // when resources with a TTL are told next, by TTL
	beatAt time.Time                   // the first of these, as it was when heartbeats were last looked for; zero: never
	unfed  map[string]time.Time        // when names were told that were accepted late, or when a heartbeat was due, and got none since
}

// ask notes that names were asked for, or given up under a wildcard.
func (y *saying) ask() { y.asked = true }

// askAll notes that everything was asked for: all of it is told again.
func (y *saying) askAll() { y.anew, y.due = true, true }

// dropAll notes that nobody asks for everything any more.
func (y *saying) dropAll() { y.anew, y.due = false, false }

// renew says whether all that the wildcard covers is told again.
func (y *saying) renew(anew bool) { y.anew = anew }

// owe says whether an answer is due, even if nothing differs.
func (y *saying) owe(due bool) { y.due = due }

// doubtAll notes that any entry may differ from the view.
func (y *saying) doubtAll() { y.all = true }

// lookAnew notes that the view has changed: what was looked at may differ from it.
func (y *saying) lookAnew() { y.looked = 0 }

// unstall notes that nothing waits for the answer to the newest response.
func (y *saying) unstall() { y.stalled = false }

// state notes the version that the client states to have; "": it asks for something else.
func (y *saying) state(version string) { y.stated = version }

// mark notes that something may have to be told of an entry.
func (u *subscription) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		u.dirty = append(u.dirty, e.name)
	}
	u.stir(e.name)
	u.waiting.rouse(e.name)
}

// addMarked adds entries of which something may have to be told.
func (u *subscription) addMarked(extra []entry) {
	for i := range extra {
		u.mark(&extra[i])
	}
	u.add(extra...)
}

// unmark takes names off the list.
func (u *subscription) unmark(names map[string]wait) {
	dirty := u.dirty[:0]
	for _, n := range u.dirty {
		if _, off := names[n]; !off {
			dirty = append(dirty, n)
		} else if e := u.entry(n); e != nil {
			e.dirty = false
		}
	}
	u.relisted(dirty)
}

// relisted makes the list a part of what it was, which stands at its beginning.
func (u *subscription) relisted(dirty []string) {
	clear(u.dirty[len(dirty):])
	u.dirty = dirty
	if len(dirty) == 0 {
		u.dirty = nil
	}
}

// pending reports whether there may be something to say.
func (u *subscription) pending(t *xds.Table) bool {
	return len(u.dirty) > 0 || u.waiting.restsStill() || u.news(t)
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

// blockedBy is when the newest response is waited for no longer, if anything waits for its
// answer: what is to be said, a heartbeat, or what leaves; zero: never.
func (s *Session) blockedBy(u *subscription) time.Time {
	if d := u.newest(s.variant); d != nil && (u.stalled || u.overdueBeat(s.now) || len(u.leaving) > 0) {
		return d.sent.Add(patience)
	}
	return time.Time{}
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
func (s *Session) markAll(u *subscription) {
	if !u.all {
		return
	}
	u.all = false
	for e := range u.entries() {
		s.recognize(u, e)
		u.mark(e)
	}
}

// prepare finds of which names something is to be said: what others find anew,
// what is lost and stays for a while, and of the rest what differs.
func (s *Session) prepare(u *subscription) {
	t, blocked := s.table(u.typ), s.blocked(u)
	s.rouse(u)
	if blocked {
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
	if s.variant == xds.Delta && (t.HasAliases() || len(u.matches) > 0) {
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
		e.dirty = s.lists(u, t, e) || s.hopes(u, t, e)
		if e.dirty {
			dirty = append(dirty, n)
		} else if u.dropped[n] && !u.wants(e) && !u.wildcard && e.told == absent {
			// It is not decided whether it exists. If it does its route will find it.
			u.regain(n)
			u.names.remove(n)
		}
	}
	u.relisted(dirty)
	u.looked = 0
	if blocked {
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
//
// A step of a stream runs on a new goroutine. Its stack need not grow as long as what
// is seldom done stands in functions of its own, here and in what this calls.
func (s *Session) respond(u *subscription, last bool) []*xds.Response {
	t := s.table(u.typ)
	if !s.mayRespond(u, t) {
		return nil
	}
	var d diff
	s.diff(u, t, &d)
	if u.holdsBack() {
		s.diffAnew(u, t, &d)
	}
	decided := s.decide(u, t, &d, last)
	if decided == later {
		return nil
	}
	u.stated, u.due = "", false
	var out []*xds.Response
	if decided == now {
		out = s.bring(u, t, &d)
	} else {
		s.tell(u, t, &d)
	}
	s.rest(u, &d)
	return out
}

// mayRespond reports whether there may be something to say that may be said now.
func (s *Session) mayRespond(u *subscription, t *xds.Table) bool {
	if !u.pending(t) {
		u.waitNoMore()
		return false
	}
	u.stalled = s.blocked(u)
	if u.stalled {
		u.wake()
		u.waiting.blocked()
		return false
	}
	s.rouse(u)
	if u.waiting.rests() {
		if len(u.dirty)+len(u.waiting.roused) == 0 {
			return false
		}
		if s.tellsWorld(u) || u.news(t) { // what is told of the table is told of all of it
			u.wake()
		}
	}
	return true
}

// A decision is what becomes of a diff.
type decision int

const (
	later   decision = iota // it is not told yet
	quietly                 // it counts as told, and no response is needed: the client has it, or cannot be told
	now                     // a response tells it
)

// decide decides what becomes of a diff, and notes what of it waits for another type.
func (s *Session) decide(u *subscription, t *xds.Table, d *diff, last bool) decision {
	if u.wildcard && s.undecided(u.typ, xds.Wildcard) {
		return later // "*" is answered with all there is, and that is not known
	}
	world := s.tellsWorld(u)
	// "It is generally safe for servers to do this optimization for LDS and CDS
	// when the only subscription is a wildcard subscription."
	if world && u.stated == s.version(u, t) && u.wildcard && u.named == 0 && t.Hashed() && !s.refusedBefore(u.typ) {
		d.waitNone() // it has all
		u.waitNoMore()
		return quietly
	}
	if world && s.searching(u) {
		return later // what a world does not have does not exist
	}
	s.wait(u, d)
	if u.waiting.len() > 0 && (world || len(d.upserts)+len(d.removed) == 0) {
		s.rest(u, d)
		return later // a world is told whole, or not yet; an empty one would mislead
	}
	send := u.due || len(d.upserts) > 0
	gone := len(d.missing) > 0
	if s.variant == xds.Delta || world { // else "the API provides no mechanism" for it
		gone = gone || len(d.removed) > 0
		// "Removals last", also of what the client brought along.
		if !last && len(d.upserts) == 0 && slices.ContainsFunc(d.removed, func(n string) bool { return stands(u.told(n)) }) {
			return later
		}
	}
	switch {
	case send || gone && last:
		return now
	case gone:
		return later
	}
	return quietly
}
