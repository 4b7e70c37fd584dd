package quarantine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
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
	maxOfPeer   = 2                // of them: nobody holds all by coming back
	maxResults  = 1000             // that are remembered
	resultTime  = 10 * time.Minute // for which they are
)

// A search finds out which resources a delta client refuses, though it says no name. What it
// has refused, new or changed, it is shown by halves: what is not shown stays as it was accepted last, or is
// not told yet. What it accepts stays shown; of what it refuses again, halves are shown; one that it
// refuses alone is at fault.
//
// There is no search if something that was refused is new to the client: it may have applied that, though it refused
// the response, and not to show it would remove it. One that is refused with nothing else that is new is at fault without
// a search, in SotW, too; there is no search in SotW, since a client that is told a part of the world takes the
// rest for removed.
//
// What was found on one stream is a hint for others that have refused the same and are clients of the same kind: each
// decides for itself. One that was found is left out, and the client's own answer proves it or takes it back. Of several
// an answer to all others would prove that one is at fault, not each: these are searched on the client's own stream, after the others.
type search struct {
	typ    *xds.Type
	st     *server.Stream
	text   string
	key    searchKey
	groups [][]held // that are not shown yet, the next one last
	trying []held   // is shown
	bad    []held   // was refused alone
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

// search begins a search, unless one like it is under way, or was. It reports whether the client is about to be
// shown something else.
func (s *Source) search(w *Watch, a ask, suspects []held) bool {
	now := time.Now()
	if len(suspects) == 0 || len(suspects) > maxSuspects || slices.ContainsFunc(suspects, isNew) || !w.maySearch(a.typ, now) {
		return false
	}
	x := &search{typ: a.typ, st: a.st, key: keyOfSearch(a, suspects, w.distrusts(a.typ)), total: len(suspects), began: now, moved: now}
	x.text = a.kept()
	found, begins := s.searches.begin(x, w, a)
	var hinted, others []held
	for _, h := range suspects {
		if sum, is := found[h.name]; is && sum == h.refused {
			h.by, h.text = Found, x.text
			hinted = append(hinted, h)
		} else {
			others = append(others, h)
		}
	}
	switch {
	case begins && len(hinted) > 0 && len(others) > 0:
		w.setSearch(x)
		x.groups = [][]held{hinted, others}
		for i := range suspects {
			x.since = max(x.since, suspects[i].nonce)
		}
		s.step(w, x, nil)
	case begins:
		w.setSearch(x)
		s.step(w, x, suspects)
	case len(hinted) == 1:
		w.order(order{typ: a.typ, add: hinted, drop: (*held).unproven})
	default:
		return false
	}
	return true
}

// isNew reports whether the client has accepted nothing of that name, and may have applied what it refused.
func isNew(h held) bool { return !h.has }

// step notes what was refused of what was shown, and shows the next group.
func (s *Source) step(w *Watch, x *search, refused []held) {
	for i := range refused {
		x.since = max(x.since, refused[i].nonce)
	}
	switch n := len(refused); {
	case n == 1:
		refused[0].by, refused[0].proven, refused[0].text = Found, true, x.text
		x.bad = append(x.bad, refused[0])
		if all := slices.Concat(x.groups...); len(all) > 0 { // it may have been the only one
			x.groups = [][]held{all}
		}
	case n > 1:
		x.groups = append(x.groups, refused[n/2:], refused[:n/2])
	}
	o := order{typ: x.typ, add: slices.Clone(x.bad), drop: func(h *held) bool { return h.by == Searching || h.unproven() }}
	n := len(x.groups)
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
	}) != nil || open || len(refused) > maxSuspects {
		return
	}
	if slices.ContainsFunc(refused, isNew) { // it came meanwhile
		s.stop(w, x)
		return
	}
	s.step(w, x, refused)
}

// giveUp ends a search that leads nowhere, and has the stream rest.
func (s *Source) giveUp(w *Watch, x *search) {
	w.rest(x.typ, time.Now())
	s.stop(w, x)
}

// stop ends a search without an end: the client is shown all that it may see, save what was found.
func (s *Source) stop(w *Watch, x *search) {
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
	waits   []waiting        // the oldest first, each stream once for a type
	waiting map[waitKey]bool // what is in waits
	results map[searchKey]result
	found   []searchKey // of results, the oldest first
	ended   [3]uint64   // something was found; nothing; it led nowhere
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

type waitKey struct {
	w   *Watch
	url string
}

func (w *waiting) is() waitKey { return waitKey{w.w, w.ask.typ.URL} }

type result struct {
	bad   map[string]xds.Sum
	until time.Time
}

// begin returns what was found by a search like this one, and reports whether it is to begin: it is not for
// one resource, which the client's answer proves. Else the stream waits.
func (ss *searches) begin(x *search, w *Watch, a ask) (found map[string]xds.Sum, begins bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if r := ss.results[x.key]; x.began.Before(r.until) {
		if len(r.bad) == 1 {
			return r.bad, false
		}
		found, x.key.own = r.bad, a.st.ID
	}
	if ss.running[x.key] == nil && len(ss.running) < maxSearches && ss.of(peerOf(a.st)) < maxOfPeer {
		if ss.running == nil {
			ss.running = map[searchKey]*running{}
		}
		ss.running[x.key] = &running{x, w}
		return found, true
	}
	a.nobody, a.text = true, ""
	if o := (waiting{w, a, x.key}); !ss.waiting[o.is()] {
		if ss.waiting == nil {
			ss.waiting = map[waitKey]bool{}
		}
		ss.waiting[o.is()] = true
		ss.waits = append(ss.waits, o)
	}
	return nil, false
}

// of returns how many searches of a peer's streams are under way.
func (ss *searches) of(peer string) (n int) {
	for _, r := range ss.running {
		if peerOf(r.st) == peer {
			n++
		}
	}
	return n
}

// peerOf is whose a stream is.
func peerOf(st *server.Stream) string { return fair.Owner(st.Peer) }

// end forgets a search, and returns who is to be looked at: those that waited for it, and whose turn it is.
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
		if ss.results == nil {
			ss.results = map[searchKey]result{}
		}
		if _, known := ss.results[x.key]; !known {
			if len(ss.found) >= maxResults {
				delete(ss.results, ss.found[0])
				ss.found = ss.found[1:]
			}
			ss.found = append(ss.found, x.key)
		}
		r := result{map[string]xds.Sum{}, x.moved.Add(resultTime)}
		for _, h := range x.bad {
			r.bad[h.name] = h.refused
		}
		ss.results[x.key] = r
	}
	return ss.wake(x.key)
}

// wake takes those out that wait for a search that has ended, and those whose turn it is.
func (ss *searches) wake(k searchKey) (all []waiting) {
	all = ss.take(func(w *waiting) bool { return w.key == k })
	return append(all, ss.next()...)
}

// turns takes out those that have waited longest, as many as may begin now. Whoever begins no search, since it
// has left, or nothing is wrong any more, passes its turn on by that.
func (ss *searches) turns() []waiting {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.next()
}

func (ss *searches) next() []waiting {
	free := maxSearches - len(ss.running)
	if free <= 0 || len(ss.waits) == 0 {
		return nil
	}
	keys, peers := map[searchKey]bool{}, map[string]int{}
	for k, r := range ss.running {
		keys[k] = true
		peers[peerOf(r.st)]++
	}
	return ss.take(func(w *waiting) bool {
		if free == 0 || keys[w.key] || peers[peerOf(w.ask.st)] >= maxOfPeer {
			return false
		}
		keys[w.key] = true
		peers[peerOf(w.ask.st)]++
		free--
		return true
	})
}

// take takes out some that wait.
func (ss *searches) take(is func(*waiting) bool) (all []waiting) {
	ss.waits = slices.DeleteFunc(ss.waits, func(w waiting) bool {
		if !is(&w) {
			return false
		}
		delete(ss.waiting, w.is())
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
	ss.take(func(o *waiting) bool { return o.w == w })
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
