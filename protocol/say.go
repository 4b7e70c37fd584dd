package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A saying is the record of what may have to be sent for one type. Terms: see doc.go.
//
// Invariant: the name of each dirty entry is in dirty. A muted name is in mute with the same time.
// beatAt is zero if and only if beats is empty.
type saying struct {
	dirty  []string // names of entries that may have to be sent; may include names that are gone or not dirty
	looked int      // number of dirty names that were compared since the view changed, while the type is blocked
	all    bool     // any entry may differ from the view
	anew   bool     // all that the wildcard covers is to be sent again; only set with a wildcard
	due    bool     // a response is to be sent even if nothing differs
	asked  bool     // the client has subscribed, or unsubscribed under a wildcard, since the last response

	stalled bool   // something is to be sent, but the newest response is unanswered
	mute    *mutes // names whose absence is not reported yet; nil: none
	stated  string // the version that the client states (SotW, full state), until something is sent

	beats  map[time.Duration]time.Time // next heartbeat of resources with a TTL, by TTL
	beatAt time.Time                   // the earliest time in beats when heartbeats were last computed; zero: no heartbeat
	// Names that get no heartbeats, with the time of the last response that has the name. Either
	// the ACK of this response is late, or the response came when a heartbeat was due.
	unfed map[string]time.Time
}

// ask records that the client has subscribed to a name, or unsubscribed from a name under a
// wildcard.
func (y *saying) ask() { y.asked = true }

// askAll records that the client has subscribed to the wildcard: everything is sent again.
func (y *saying) askAll() { y.anew, y.due = true, true }

// dropAll records that the wildcard has ended.
func (y *saying) dropAll() { y.anew, y.due = false, false }

// renew sets whether all that the wildcard covers is sent again.
func (y *saying) renew(anew bool) { y.anew = anew }

// owe sets whether a response is due even if nothing differs.
func (y *saying) owe(due bool) { y.due = due }

// doubtAll records that any entry may differ from the view.
func (y *saying) doubtAll() { y.all = true }

// lookAnew records that the view has changed: all dirty names must be compared again.
func (y *saying) lookAnew() { y.looked = 0 }

// unstall records that nothing waits for the answer to the newest response.
func (y *saying) unstall() { y.stalled = false }

// state sets the version that the client states; "": no version, or a version for another
// subscription.
func (y *saying) state(version string) { y.stated = version }

// mark makes an entry dirty: something may have to be sent for its name.
func (u *subscription) mark(e *entry) {
	if !e.dirty {
		e.dirty = true
		u.dirty = append(u.dirty, e.name)
	}
	u.stir(e.name)
	u.waiting.rouse(e.name)
}

// addMarked adds entries and marks them.
func (u *subscription) addMarked(extra []entry) {
	for i := range extra {
		u.mark(&extra[i])
	}
	u.add(extra...)
}

// unmark removes names from the list of dirty names.
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

// relisted replaces the list of dirty names by a shorter one in the same memory.
func (u *subscription) relisted(dirty []string) {
	clear(u.dirty[len(dirty):])
	u.dirty = dirty
	if len(dirty) == 0 {
		u.dirty = nil
	}
}

// pending reports whether the type may have something to send.
func (u *subscription) pending(t *xds.Table) bool {
	return len(u.dirty) > 0 || u.waiting.restsStill() || u.news(t)
}

// news reports whether the type may have something to send other than dirty and waiting names.
func (u *subscription) news(t *xds.Table) bool {
	return u.due || u.all || u.anew || u.wildcard && u.base != t.Versions()
}

// blocked reports whether nothing may be sent before the client has answered the newest response.
// Meanwhile changes collect (SOTW-3). "The management server should not send a DiscoveryResponse
// for any DiscoveryRequest that has a stale nonce."
func (s *Session) blocked(u *subscription) bool {
	d := u.newest(s.variant)
	if d == nil || !s.now.Before(d.sent.Add(patience)) || u.stuck() {
		return false
	}
	// Delta: "the server must honor changes to the subscription state even if the nonce is stale"
	// (DELTA-3).
	return s.variant == xds.SotW || !u.asked || u.crowded()
}

// blockedBy returns the time at which the type is no longer blocked by its newest response. It
// returns zero if no difference, heartbeat or removal waits for the answer.
func (s *Session) blockedBy(u *subscription) time.Time {
	if d := u.newest(s.variant); d != nil && (u.stalled || u.overdueBeat(s.now) || len(u.leaving) > 0) {
		return d.sent.Add(patience)
	}
	return time.Time{}
}

// crowded reports whether the list of responses in flight is full.
func (u *subscription) crowded() bool {
	n := 0
	for range u.underWay() {
		n++
	}
	return n >= maxDeliveries
}

// markAll marks all entries, if any entry may differ from the view (all).
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

// prepare finds the names for which something is to be sent. It updates the matches, keeps lost
// names (retain), and then removes from the list of dirty names those that do not differ.
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
		return // only a few names were added: all names are compared when the type is no longer blocked
	default:
		s.retain(u, []xds.Names{}) // Change has handled the names that only the wildcard covers
	}
	if s.variant == xds.Delta && (t.HasAliases() || len(u.matches) > 0) {
		slices.Sort(u.dirty) // the order of dirty names depends on hints, and must not change the result
		for _, n := range slices.Clone(u.dirty) {
			u.match(t, n)
		}
		u.dropUnwanted()
	}
	dirty := u.dirty[:0]
	slices.Sort(u.dirty)
	for _, n := range slices.Compact(u.dirty) { // a name may have been removed and added again
		e := u.entry(n)
		if e == nil || !e.dirty {
			continue
		}
		e.dirty = s.lists(u, t, e) || s.hopes(u, t, e)
		if e.dirty {
			dirty = append(dirty, n)
		} else if u.dropped[n] && !u.wants(e) && !u.wildcard && e.told == absent {
			// The view is still looking for the name. If the view finds a resource, a scope will
			// match it.
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

// lists reports whether an entry belongs in the list of dirty names. A difference also counts if it
// cannot be sent yet because the view is looking for the name: the client may hold the old state.
func (s *Session) lists(u *subscription, t *xds.Table, e *entry) bool {
	r, gone := s.owed(u, t, e)
	return r != nil || gone || u.leaving[e.name] == nil && u.outdated(t, e.name, e.told)
}

// respond returns the messages that bring the client up to date for one type, if they may be sent
// now. A response with nothing but removals is sent only if last is set (ADS-2).
//
// A step of a stream runs on a new goroutine with a small stack. So that the stack need not grow,
// this function and its callees do rare work in separate functions.
func (s *Session) respond(u *subscription, last bool) []*xds.Response {
	t := s.table(u.typ)
	if !s.prepareDiff(u, t) {
		return nil
	}
	var d diff
	s.diff(u, t, &d)
	if u.holdsBack() {
		s.diffAnew(u, t, &d)
	}
	s.waitForAddresses(u, t, &d)
	decided := quietly
	switch {
	case u.wildcard && s.undecided(u.typ, xds.Wildcard):
		return nil // the response to "*" has everything, and the view is still looking for that
	case s.holdsStated(u, t):
		d.waitNone()
		u.waitNoMore()
	case s.tellsWorld(u) && s.searching(u):
		return nil // for the client, a name that a full state lacks does not exist
	default:
		s.wait(u, &d)
		if s.waitsWhole(u, &d) {
			s.rest(u, &d)
			return nil
		}
		decided = s.decide(u, &d, last)
	}
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

// prepareDiff reports whether the type may have something to send now. It updates the waiting names
// that a diff must evaluate.
func (s *Session) prepareDiff(u *subscription, t *xds.Table) bool {
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
		if s.tellsWorld(u) || u.news(t) { // the table is sent as a whole
			u.wake()
		}
	}
	return true
}

// A decision is the way in which respond handles a diff.
type decision int

const (
	later   decision = iota // do not send the diff yet
	quietly                 // count the diff as told without a response: the client already holds this state, or the protocol cannot express the change
	now                     // send the diff
)

// holdsStated reports whether the client has stated the version of the present full state: "It is
// generally safe for servers to do this optimization for LDS and CDS when the only subscription is
// a wildcard subscription." (SOTW-12)
func (s *Session) holdsStated(u *subscription, t *xds.Table) bool {
	if !s.tellsWorld(u) || !u.wildcard || u.named > 0 {
		return false
	}
	return u.stated == s.version(u, t) && t.Hashed() && !s.refusedBefore(u.typ)
}

// waitsWhole reports whether the whole diff must wait for the waiting names. A full state is sent as
// a whole, and an empty response would mislead.
func (s *Session) waitsWhole(u *subscription, d *diff) bool {
	return u.waiting.len() > 0 && (s.tellsWorld(u) || len(d.upserts)+len(d.removed) == 0)
}

// decide returns the decision for a diff that need not wait as a whole.
func (s *Session) decide(u *subscription, d *diff, last bool) decision {
	world := s.tellsWorld(u)
	send := u.due || len(d.upserts) > 0
	gone := len(d.missing) > 0
	if s.variant == xds.Delta || world { // otherwise "the API provides no mechanism" for removals
		gone = gone || len(d.removed) > 0 && !s.withholds(u, d.removed)
		// Removals are sent last (ADS-2). That includes the removal of names that the client
		// stated.
		removes := func(n string) bool { return stands(u.told(n)) }
		if !last && len(d.upserts) == 0 && slices.ContainsFunc(d.removed, removes) {
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
