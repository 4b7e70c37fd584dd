package quarantine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxSuspects = 5000             // of one refusal; of more nobody looks for who is at fault
	maxRounds   = 100              // responses of one search: five culprits among 5000
	stepTime    = 5 * time.Second  // for an answer
	searchTime  = 30 * time.Second // for a search
	restTime    = 10 * time.Minute // until a stream is searched again, if that led nowhere

	maxSearches = 8                // at a time, of all streams
	maxWaiting  = 10_000           // streams that wait for the end of a search
	maxResults  = 1000             // that are remembered
	resultTime  = 10 * time.Minute // for which they are
)

// A search finds out which resources a delta client refuses, though it says no name. What it
// has refused, new or changed, it is shown by halves: what is not shown stays as it was accepted last, or is
// not told yet. What it accepts stays shown; of what it refuses again, halves are shown; one that it
// refuses alone is at fault. What it has accepted before does not move.
//
// One that is refused with nothing else that is new is at fault without a search, in SotW, too; there is no search in
// SotW, since a client that is told a part of the world takes the rest for removed.
//
// One stream is searched for all that have refused the same and are clients of the same kind. What was
// found holds for another only until that refuses again, without it: then it is searched itself. So a client that lies
// harms itself.
type search struct {
	typ    *xds.Type
	st     *server.Stream
	key    searchKey
	groups [][]held // that are not shown yet, the next one last
	trying []held   // is shown
	bad    []held   // was refused alone
	needs  []held   // refers to new ones of them, and has not been ordered yet
	since  uint64   // the newest nonce that was refused before trying was shown
	rounds int
	total  int

	began, moved time.Time // by searches.mu
}

// A searchKey is what a search is about: the content, and who refuses it.
type searchKey struct {
	url, agent string
	suspects   [16]byte
	own        uint64 // of a stream that is searched for itself: its number
}

func keyOfSearch(a ask, suspects []held, own bool) searchKey {
	slices.SortFunc(suspects, func(a, b held) int { return cmp.Compare(a.name, b.name) })
	h := sha256.New()
	for i := range suspects {
		h.Write([]byte(suspects[i].name + "\x00" + suspects[i].refused.String() + "\x00"))
	}
	k := searchKey{url: a.typ.URL, agent: a.st.Node.UserAgentName + " " + a.st.Node.UserAgentVersion}
	k.agent = k.agent[:min(len(k.agent), 512)]
	copy(k.suspects[:], h.Sum(nil))
	if own {
		k.own = a.st.ID
	}
	return k
}

// search begins a search, unless one like it is under way, or was.
func (s *Source) search(w *Watch, a ask, suspects, needs []held) {
	now := time.Now()
	if len(suspects) == 0 || len(suspects) > maxSuspects || !w.maySearch(a.typ, now) {
		return
	}
	k := keyOfSearch(a, suspects, w.distrusts(a.typ))
	x := &search{typ: a.typ, st: a.st, key: k, total: len(suspects), needs: needs, began: now, moved: now}
	switch found, begins := s.searches.begin(x, w, a); {
	case found != nil:
		var put []held
		for _, h := range suspects {
			if sum, is := found[h.name]; is && sum == h.refused {
				h.by = Found
				put = append(put, h)
			}
		}
		w.order(order{typ: a.typ, add: append(put, needs...), drop: (*held).unproven})
	case begins:
		w.setSearch(x)
		s.step(w, x, suspects)
	}
}

// step notes what was refused of what was shown, and shows the next group.
func (s *Source) step(w *Watch, x *search, refused []held) {
	for i := range refused {
		x.since = max(x.since, refused[i].nonce)
	}
	switch n := len(refused); {
	case n == 1:
		refused[0].by, refused[0].proven = Found, true
		x.bad = append(x.bad, refused[0])
		if all := slices.Concat(x.groups...); len(all) > 0 { // it may have been the only one
			x.groups = [][]held{all}
		}
	case n > 1:
		x.groups = append(x.groups, refused[n/2:], refused[:n/2])
	}
	o := order{typ: x.typ, add: slices.Clone(x.bad), drop: func(h *held) bool { return h.by == Searching || h.unproven() }}
	n := len(x.groups)
	o.add = append(o.add, x.needs...)
	x.needs = nil
	done := n == 0
	if !done {
		x.trying, x.groups = x.groups[n-1], x.groups[:n-1]
		if x.rounds++; x.rounds > maxRounds {
			s.giveUp(w, x)
			return
		}
		for _, g := range x.groups {
			for _, h := range g {
				h.by, h.proven = Searching, true
				o.add = append(o.add, h)
			}
		}
		s.searches.move(x, time.Now())
	}
	w.order(o)
	if done {
		s.end(w, x, true)
	}
}

// proceed looks at what the client has made of what it was shown.
func (s *Source) proceed(ctx context.Context, w *Watch, x *search) {
	if s.searches.late(x, time.Now()) {
		s.giveUp(w, x)
		return
	}
	if w.moving() {
		return
	}
	var refused []held
	open := false
	if s.inspect(ctx, x.st, func(session *protocol.Session) {
		for i := range x.trying {
			switch n := session.NameState(x.typ, x.trying[i].name); {
			case n.View == nil || n.View.Sum != x.trying[i].refused: // it has changed
			case n.State == protocol.StateSent, n.State == protocol.StateDue, n.State == protocol.StateWaiting, n.State == protocol.StateRefused && number(n.RefusedIn) <= x.since:
				open = true
				return
			}
		}
		for n := range session.NameStates(x.typ) { // what has come meanwhile may be at fault, too
			if h, ok := suspect(x.typ, &n); ok && h.nonce > x.since {
				refused = append(refused, h)
			}
		}
		x.needs = dependents(session, x.typ, refused)
	}) != nil || open || len(refused) > maxSuspects {
		return
	}
	s.step(w, x, refused)
}

// giveUp ends a search that leads nowhere: the client is shown all that it may see, save what was found.
func (s *Source) giveUp(w *Watch, x *search) {
	w.rest(x.typ, time.Now())
	w.order(order{typ: x.typ, drop: func(h *held) bool { return h.by == Searching }})
	s.end(w, x, false)
}

// end ends a search, and has those looked at that have waited for that.
func (s *Source) end(w *Watch, x *search, whole bool) {
	w.setSearchDone(x)
	s.askAgain(s.searches.end(x, whole))
}

// searches are those of all streams. The zero value has none.
type searches struct {
	mu      sync.Mutex // held for memory only
	running map[searchKey]*running
	waits   []waiting
	results map[searchKey]result
	ended   [3]uint64 // something was found; nothing; it led nowhere
}

type running struct {
	*search
	w *Watch
}

// A waiting stream is asked when a search ends.
type waiting struct {
	w   *Watch
	ask ask
	key searchKey
}

type result struct {
	bad   map[string]xds.Sum
	until time.Time
}

// begin returns what was found by a search like this one, or else reports whether it is to begin. If
// it is not, the stream waits.
func (ss *searches) begin(x *search, w *Watch, a ask) (found map[string]xds.Sum, begins bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if r := ss.results[x.key]; x.began.Before(r.until) {
		return r.bad, false
	}
	if ss.running[x.key] == nil && len(ss.running) < maxSearches {
		if ss.running == nil {
			ss.running = map[searchKey]*running{}
		}
		ss.running[x.key] = &running{x, w}
		return nil, true
	}
	if len(ss.waits) < maxWaiting {
		a.nobody, a.text = true, ""
		ss.waits = append(ss.waits, waiting{w, a, x.key})
	}
	return nil, false
}

// end forgets a search, and returns who is to be looked at: those that waited for it, and one more.
func (ss *searches) end(x *search, whole bool) (all []waiting) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if r := ss.running[x.key]; r == nil || r.search != x {
		return nil
	}
	delete(ss.running, x.key)
	switch {
	case !whole:
		ss.ended[2]++
	case len(x.bad) == 0:
		ss.ended[1]++
	default:
		ss.ended[0]++
	}
	if whole && len(x.bad) > 0 && x.key.own == 0 {
		if ss.results == nil || len(ss.results) >= maxResults {
			ss.results = map[searchKey]result{}
		}
		r := result{map[string]xds.Sum{}, x.moved.Add(resultTime)}
		for _, h := range x.bad {
			r.bad[h.name] = h.refused
		}
		ss.results[x.key] = r
	}
	return ss.wake(x.key)
}

// wake takes those out that wait for a search that has ended, and one that waits for another.
func (ss *searches) wake(k searchKey) (all []waiting) {
	one := false
	ss.waits = slices.DeleteFunc(ss.waits, func(w waiting) bool {
		if w.key != k && one {
			return false
		}
		one = one || w.key != k
		all = append(all, w)
		return true
	})
	return all
}

// leave forgets a stream, and returns who is to be looked at.
func (ss *searches) leave(w *Watch) (all []waiting) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.running)+len(ss.waits) == 0 {
		return nil
	}
	ss.waits = slices.DeleteFunc(ss.waits, func(o waiting) bool { return o.w == w })
	for k, r := range ss.running {
		if r.w == w {
			delete(ss.running, k)
			all = append(all, ss.wake(k)...)
		}
	}
	return all
}

// move notes that a search has taken a step.
func (ss *searches) move(x *search, now time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	x.moved = now
}

// late reports whether a search has not moved for too long, or takes too long.
func (ss *searches) late(x *search, now time.Time) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return x.late(now)
}

func (x *search) late(now time.Time) bool {
	return now.Sub(x.moved) >= stepTime || now.Sub(x.began) >= searchTime
}

// overdue returns the streams whose search is late.
func (ss *searches) overdue(now time.Time) (all []waiting) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, r := range ss.running {
		if r.late(now) {
			all = append(all, waiting{w: r.w, ask: ask{st: r.st, typ: r.typ}})
		}
	}
	return all
}
