package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// A saying is the record of what may have to be sent for one type. Terms: see doc.go.
//
// Invariant: beatAt is zero if and only if beats is empty.
type saying struct {
	looked  int  // number of dirty names that were compared since the view changed, while the type is blocked
	stalled bool // something is to be sent, but the newest response is unanswered

	beats  map[time.Duration]time.Time // next heartbeat of resources with a TTL, by TTL
	beatAt time.Time                   // the earliest time in beats when heartbeats were last computed; zero: no heartbeat
}

// lookAnew records that the view has changed: all dirty names must be compared again.
func (y *saying) lookAnew() { y.looked = 0 }

// unstall records that nothing waits for the answer to the newest response.
func (y *saying) unstall() { y.stalled = false }

// blockedBy returns the time at which the type is no longer blocked by its newest response. It
// returns zero if no difference, heartbeat or removal waits for the answer.
func (s *Session) blockedBy(u *subscription) time.Time {
	if d := u.newest(s.variant); d != nil && (u.stalled || u.overdueBeat(s.now) || len(u.leaving) > 0) {
		return d.sent.Add(delay.Behind.Limit(0))
	}
	return time.Time{}
}

// markAll marks all entries, if any entry may differ from the view (all).
func (s *Session) markAll(u *subscription) {
	if !u.TakeAll() {
		return
	}
	for e := range u.Entries() {
		s.recognize(u, e)
		u.Touch(e)
	}
}

// prepare finds the names for which something is to be sent. It updates the matches, keeps lost
// names (retain), and then removes from the list of dirty names those that do not differ.
func (s *Session) prepare(u *subscription) {
	t, blocked := s.table(u.typ), s.blocked(u)
	s.recheck(u)
	if blocked {
		u.recheckAll()
	}
	switch {
	case !blocked:
		s.retain(u, nil)
	case len(u.Dirty) < u.looked+u.looked/8:
		return // only a few names were added: all names are compared when the type is no longer blocked
	default:
		s.retain(u, []xds.Names{}) // Change has handled the names that only the wildcard covers
	}
	s.matchDirty(u, t)
	for _, n := range s.sift(u, t) {
		u.regain(n)
		u.Set.Remove(n)
	}
	s.endWaits(u)
	u.looked = 0
	if blocked {
		u.looked = len(u.Dirty)
	}
}

// matchDirty computes again what the dirty names match.
func (s *Session) matchDirty(u *subscription, t *xds.Table) {
	if s.variant != xds.Delta || !t.HasAliases() && len(u.matches) == 0 {
		return
	}
	for _, n := range slices.Sorted(slices.Values(u.Dirty)) { // their order depends on hints, and must not change the result
		u.match(t, n)
		s.returnMatched(u)
	}
	u.dropUnwanted()
}

// sift removes the names that do not differ from the list of dirty names. It returns those that the client has
// dropped, and that the view was still looking for: if the view finds a resource, a scope will match it.
func (s *Session) sift(u *subscription, t *xds.Table) (gone []string) {
	u.Sift(func(n string, e *entry) bool {
		if e != nil && (s.lists(u, t, e) || s.hopes(u, t, e)) {
			return true
		}
		u.waiting.dropParked(n)
		if e != nil && u.dropped[n] && !u.covers(n) && e.Told == absent {
			gone = append(gone, n)
		}
		return false
	})
	return gone
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
		if s.waitsTogether(u) && len(d.waiting) > 0 {
			d.waitAll(u.waiting)
		}
		s.wait(u, d.waiting, d.upserts)
		if s.waitsWhole(u, &d) {
			s.park(u, d.bound, d.any)
			return nil
		}
		decided = s.decide(u, &d, last)
	}
	if decided == later {
		return nil
	}
	u.state("")
	u.Owe(false)
	var out []*xds.Response
	if decided == now {
		out = s.bring(u, t, &d)
	} else {
		s.tell(u, t, &d, 0)
	}
	s.park(u, d.bound, d.any)
	return out
}

// respondInside returns the responses of respond. After each one, the names that waited for its content are
// evaluated again: no ACK may be expected for it (ADS-6).
func (s *Session) respondInside(u *subscription, last bool) []*xds.Response {
	out := s.respond(u, last)
	for more := out; len(more) > 0 && u.ordersItself() && u.waiting.len() > 0; out = append(out, more...) {
		u.NoteAll()
		more = s.respond(u, last)
	}
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
		u.recheckAll()
		u.waiting.blocked()
		return false
	}
	s.recheck(u)
	if u.waiting.parks() {
		if len(u.Dirty) == 0 {
			return false
		}
		if s.tellsWorld(u) || u.news(t) { // the table is sent as a whole
			u.recheckAll()
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
	return u.stated != "" && u.stated == t.VersionWith(u.lingeringStamps) && t.Hashed() && !s.refusedBefore(u.typ)
}

// waitsWhole reports whether the whole diff must wait for the waiting names, because an empty response
// would mislead.
func (s *Session) waitsWhole(u *subscription, d *diff) bool {
	owed := len(d.upserts)+len(d.removed) > 0 || u.ordersItself() && u.Due
	return u.waiting.len() > 0 && (s.waitsTogether(u) || !owed)
}

// decide returns the decision for a diff that need not wait as a whole.
func (s *Session) decide(u *subscription, d *diff, last bool) decision {
	send := u.Due || len(d.upserts) > 0
	gone := len(d.missing) > 0
	if !s.forsakes(u) { // otherwise "the API provides no mechanism" for removals
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
