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
	maxSuspects = 5000             // resources of one refusal; larger refusals are not searched
	maxRounds   = 100              // responses of one search, enough to find five faulty resources among 5000
	stepTime    = 5 * time.Second  // timeout for one answer
	searchTime  = 30 * time.Second // timeout for one search
	pauseTime   = 10 * time.Minute // pause of searches for a type on a stream after a search without result

	maxSearches = 8                // concurrent searches over all streams
	maxOfPeer   = 2                // concurrent searches of one peer, so that a reconnecting peer does not block others
	maxResults  = 1000             // cached results
	resultTime  = 10 * time.Minute // validity of a cached result
)

// A search finds the faulty resources of a refusal in which a delta client named none. It shows the
// client one half of the refused changes at a time. For the resources of the other half, it shows the
// version that the client accepted last. Accepted changes stay shown. If the client refuses again, the
// search continues with halves of the refused part. A resource that the client refuses alone is faulty.
//
// A refusal with a resource that is new to the client is not searched. The client may have applied this
// resource though it refused the response, and hiding the resource would remove it. If only one resource
// of a refusal is a suspect, it is faulty without a search, in SotW, too. SotW clients are not searched,
// because a SotW client that gets a part of the resources considers the others removed.
//
// The result is a hint for other streams that refused the same content and have the same kind of client.
// Each stream decides for itself. If the hint has one resource, this resource is left out, and the
// client's own answer proves or disproves the hint. If the hint has several resources, an ACK without
// them would prove only that at least one is faulty. So they are searched again on the client's own
// stream, after the other resources.
type search struct {
	typ    *xds.Type
	st     *server.Stream
	text   string
	key    searchKey
	groups [][]held // groups that are not shown yet; the last is the next to show
	trying []held   // currently shown
	bad    []held   // resources that the client refused alone
	since  uint64   // newest refused nonce before trying was shown
	rounds int
	total  int

	began, moved time.Time // guarded by searches.mu
}

// A searchKey identifies a search: the refused content and the kind of client.
type searchKey struct {
	url, agent string
	suspects   [16]byte
	own        uint64 // stream ID, if the search must not share its result with other streams
}

func keyOfSearch(a answer, suspects []held, own bool) searchKey {
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

// search begins a search, unless an equal search is running or has a result. It reports whether the
// client will soon be shown another view.
func (s *Source) search(w *Watch, a answer, suspects []held) bool {
	now := time.Now()
	if len(suspects) == 0 || len(suspects) > maxSuspects || slices.ContainsFunc(suspects, isNew) || !w.maySearch(a.typ, now) {
		return false
	}
	x := &search{typ: a.typ, st: a.st, key: keyOfSearch(a, suspects, w.distrusts(a.typ)), total: len(suspects), began: now, moved: now}
	x.text = a.shortText()
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

// isNew reports whether the client has accepted no version of the resource. Such a client may have
// applied the refused version.
func isNew(h held) bool { return !h.has }

// step splits the refused part of the shown resources, and shows the next group.
func (s *Source) step(w *Watch, x *search, refused []held) {
	for i := range refused {
		x.since = max(x.since, refused[i].nonce)
	}
	switch n := len(refused); {
	case n == 1:
		refused[0].by, refused[0].proven, refused[0].text = Found, true, x.text
		x.bad = append(x.bad, refused[0])
		if all := slices.Concat(x.groups...); len(all) > 0 { // show all others together: this resource may be the only faulty one
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
		x.rounds++
		if x.rounds > maxRounds {
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

// proceed examines the client's answer to the shown resources.
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
			case n.View == nil || n.View.Sum != x.trying[i].refused: // the resource has changed
			case n.State == protocol.StateSent, n.State == protocol.StateDue, n.State == protocol.StateWaiting, n.State == protocol.StateRefused && protocol.ParseNonce(n.RefusedIn) <= x.since:
				open = true
				return
			}
		}
		for n := range session.NameStates(x.typ) { // also resources that changed during the search: they may be faulty, too
			if h, ok := suspect(x.st, x.typ, &n); ok && h.nonce > x.since {
				refused = append(refused, h)
			}
		}
	}) != nil || open || len(refused) > maxSuspects {
		return
	}
	if slices.ContainsFunc(refused, isNew) { // a resource that is new to the client came during the search
		s.stop(w, x)
		return
	}
	s.step(w, x, refused)
}

// giveUp ends a search without a complete result, and pauses searches for the type on the stream.
func (s *Source) giveUp(w *Watch, x *search) {
	w.pause(x.typ, time.Now())
	s.stop(w, x)
}

// stop ends a search early. The client is shown all resources except the faulty ones that the search has
// found.
func (s *Source) stop(w *Watch, x *search) {
	w.order(order{typ: x.typ, drop: func(h *held) bool { return h.by == Searching }})
	s.end(w, x, false)
}

// end ends a search and examines the streams that waited for it.
func (s *Source) end(w *Watch, x *search, whole bool) {
	w.setSearchDone(x)
	s.reexamine(s.searches.end(x, whole))
}

// searches has the running and waiting searches of all streams. The zero value has none.
type searches struct {
	mu      sync.Mutex // held for memory access only
	running map[searchKey]*running
	waits   []waiting        // waiting streams, oldest first; each stream at most once for each type
	waiting map[waitKey]bool // set of the keys of waits
	results map[searchKey]result
	found   []searchKey // keys of results, oldest first
	ended   [3]uint64   // number of searches by result: found, nothing, given up
}

type running struct {
	*search
	w *Watch
}

// A waiting is a stream that waits for a search of its own, or for the result of an equal search.
type waiting struct {
	w      *Watch
	answer answer
	key    searchKey
}

type waitKey struct {
	w   *Watch
	url string
}

func (w *waiting) is() waitKey { return waitKey{w.w, w.answer.typ.URL} }

type result struct {
	bad   map[string]xds.Sum
	until time.Time
}

// begin returns the cached result of an equal search, and reports whether the new search begins. The
// search is not needed if the result has one resource, because the client's answer will prove or disprove
// it. If an equal search is running, or too many are, the stream waits.
func (ss *searches) begin(x *search, w *Watch, a answer) (found map[string]xds.Sum, begins bool) {
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
	a.unknown, a.text = true, ""
	if o := (waiting{w, a, x.key}); !ss.waiting[o.is()] {
		if ss.waiting == nil {
			ss.waiting = map[waitKey]bool{}
		}
		ss.waiting[o.is()] = true
		ss.waits = append(ss.waits, o)
	}
	return nil, false
}

// of returns the number of running searches of a peer.
func (ss *searches) of(peer string) (n int) {
	for _, r := range ss.running {
		if peerOf(r.st) == peer {
			n++
		}
	}
	return n
}

// peerOf returns the owner of a stream, by its address.
func peerOf(st *server.Stream) string { return fair.Owner(st.Peer) }

// end removes a search and returns the streams to examine now. whole reports whether the search has a
// complete result.
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

// wake removes and returns the streams that wait for a search with the key k, and those that may now
// begin a search.
func (ss *searches) wake(k searchKey) (all []waiting) {
	all = ss.take(func(w *waiting) bool { return w.key == k })
	return append(all, ss.next()...)
}

// turns removes and returns the waiting streams that may now begin a search, the oldest first. It is
// called again when a stream began no search because the stream has ended or its refusal is over: then
// the next stream gets the turn.
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
		if free == 0 || keys[w.key] || peers[peerOf(w.answer.st)] >= maxOfPeer {
			return false
		}
		keys[w.key] = true
		peers[peerOf(w.answer.st)]++
		free--
		return true
	})
}

// take removes and returns the waiting streams that match.
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

// leave removes a stream, and returns the streams to examine because a search of this stream has ended.
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

// move notes progress of a search.
func (ss *searches) move(x *search, now time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	x.moved = now
}

// late reports whether a search has exceeded stepTime since its last progress, or searchTime since its
// begin.
func (ss *searches) late(x *search, now time.Time) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return x.late(now)
}

func (x *search) late(now time.Time) bool {
	return now.Sub(x.moved) >= stepTime || now.Sub(x.began) >= searchTime
}

// overdue returns the streams with a late search.
func (ss *searches) overdue(now time.Time) (all []waiting) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, r := range ss.running {
		if r.late(now) {
			all = append(all, waiting{w: r.w, answer: answer{st: r.st, typ: r.typ}})
		}
	}
	return all
}
