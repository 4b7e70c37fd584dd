package quarantine

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Watch is one stream's. It implements [server.HistoryWatch], and belongs to the stream's goroutine,
// but for what mu guards.
type Watch struct {
	of     server.Watch
	source *Source
	node   *xds.Node
	scope  string
	owner  string // whose stream it is: an identity, or else an address

	counted int // of the source's count; guarded by source.mu

	needs needs
	made  tables
	keeps []*xds.Resource // what is shown that the view has not

	mu      sync.Mutex // held for memory only
	pending []order
	holds   []held // that the stream's goroutine has taken; it alone writes
	waits   []Held // what needs keeps back
	closed  bool
	asked   asked
}

// held is a resource in quarantine.
type held struct {
	typ        *xds.Type
	name       string
	refused    xds.Sum
	version    string
	nonce      uint64 // of the newest response with it that was refused
	has        bool   // the client has accepted something of that name
	had        xds.Sum
	hadVersion string

	by     Reason
	text   string // at fault: what the client says, or as much of it as is kept
	proven bool   // the client has accepted the others since, or has refused it alone

	body *xds.Resource // what was refused
	old  *xds.Resource // what is shown instead; nil: nothing
	refs *xds.Stamp    // Dependent: what it refers to
}

func (h *held) key() key { return keyOf(h.typ, h.name) }

// fault reports whether it is at fault itself.
func (h *held) fault() bool { return h.by == Named || h.by == Found }

func (h *held) unproven() bool { return !h.proven && h.by != Dependent }

// hadIs reports whether that is what the client has accepted last. Of what it states to have from before
// only the version may be known.
func (h *held) hadIs(st *xds.Stamp) bool {
	return st.Sum == h.had || h.had == xds.Sum{} && h.hadVersion != "" && st.Version == h.hadVersion
}

func (h *held) told() Held {
	is := Held{Type: h.typ, Name: h.name, Refused: h.version, Body: h.body, By: h.by}
	if h.old != nil {
		is.Instead = h.old.Version
	}
	return is
}

// number is the number that a nonce is; 0 if it is none.
func number(nonce string) uint64 {
	n, err := strconv.ParseUint(nonce, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// An order changes what is in quarantine, of one type: first it drops, and then it adds.
type order struct {
	typ  *xds.Type
	drop func(*held) bool // nil: none
	add  []held
}

// A ringer has its doorbell rung by others.
type ringer interface{ Ring() }

// order has the stream carry out an order when it is rung.
func (w *Watch) order(o order) {
	r, ok := w.of.(ringer)
	if !ok {
		return
	}
	w.mu.Lock()
	if !w.closed {
		w.pending = append(w.pending, o)
	}
	w.mu.Unlock()
	r.Ring()
}

// moving reports whether the stream has not carried out all that it was ordered.
func (w *Watch) moving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) > 0
}

// take carries out what was ordered, and lets go of what has changed. It reports whether that moved anything.
func (w *Watch) take(view xds.View) (moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending)+len(w.holds) == 0 {
		return false
	}
	was := map[key]held{}
	for _, h := range w.holds {
		was[h.key()] = h
	}
	is, faults := map[key]held{}, 0
	for k, h := range was {
		if h.stands(view) {
			is[k] = h
		}
	}
	for _, h := range is {
		if h.fault() {
			faults++
		}
	}
	for _, o := range w.pending {
		for k, h := range is {
			if o.drop != nil && h.typ.Is(o.typ) && o.drop(&h) {
				if delete(is, k); h.fault() {
					faults--
				}
			}
		}
		for _, h := range o.add {
			k := h.key()
			before, known := was[k]
			known = known && before.refused == h.refused
			now, also := is[k]
			switch {
			case !h.stands(view), h.fault() && faults >= maxHeld && (!also || !now.fault()):
				continue
			case known:
				h.body, h.old, h.has = before.body, before.old, before.has // it may be remembered by nobody else
			case !w.remembers(&h):
				continue
			default:
				h.body = view.Table(h.typ).Lookup(h.name)
			}
			if h.fault() && (!also || !now.fault()) {
				faults++
			}
			if h.fault() && (!known || !before.fault()) {
				w.asked.news = append(w.asked.news, h.told())
			}
			is[k] = h
		}
	}
	w.pending = nil
	holds := make([]held, 0, len(is))
	for k, h := range is {
		moved = moved || was[k] != h
		holds = append(holds, h)
	}
	if !slices.ContainsFunc(holds, func(h held) bool { return h.by != Dependent }) {
		holds = nil
	}
	moved = moved || len(holds) != len(w.holds)
	if !moved {
		return false
	}
	slices.SortFunc(holds, byName)
	w.end(holds)
	if len(w.asked.news) > 0 && w.asked.st != nil && w.asked.add(ask{st: w.asked.st, typ: w.asked.news[0].Type}) {
		w.source.enqueue(w)
	}
	if w.holds = holds; len(holds) == 0 {
		w.holds = nil
	}
	w.count()
	return true
}

// end has somebody say of which types nothing is in quarantine any more.
func (w *Watch) end(holds []held) {
	for i := range w.holds {
		t := w.holds[i].typ
		if w.asked.st == nil || slices.ContainsFunc(holds, func(h held) bool { return h.typ.Is(t) }) {
			continue
		}
		if w.asked.add(ask{st: w.asked.st, typ: t, ended: true}) {
			w.source.enqueue(w)
		}
	}
}

func byName(a, b held) int {
	if a.typ.URL != b.typ.URL {
		if a.typ.URL < b.typ.URL {
			return -1
		}
		return 1
	}
	switch {
	case a.name < b.name:
		return -1
	case a.name > b.name:
		return 1
	}
	return 0
}

// stands reports whether the view has still just what was refused.
func (h *held) stands(view xds.View) bool {
	r := view.Table(h.typ).Lookup(h.name)
	return r != nil && r.Sum == h.refused
}

// remembers finds what the client has accepted last. What is not known any more cannot be shown: a working
// resource is never taken away.
func (w *Watch) remembers(h *held) bool {
	if !h.has {
		return true
	}
	for _, t := range w.recent(h.typ) {
		if r := t.Lookup(h.name); r != nil && h.hadIs(r.Stamp) {
			h.old = r
			return true
		}
	}
	if r := w.source.kept.find(w.scope, h.typ, h.name); r != nil && h.hadIs(r.Stamp) {
		h.old = r
	}
	return h.old != nil
}

// keep remembers what is shown that the view has not.
func (w *Watch) keep(all []*xds.Resource) {
	was := w.keeps
	w.keeps = all
	for _, r := range all {
		w.source.kept.hold(w.scope, r)
	}
	for _, r := range was {
		w.source.kept.release(w.scope, r)
	}
}

func (w *Watch) count() {
	n := 0
	for i := range w.holds {
		if w.holds[i].fault() {
			n++
		}
	}
	w.source.mu.Lock()
	w.source.held += n - w.counted
	w.counted = n
	w.source.mu.Unlock()
	w.source.moved()
}

// Next implements [server.Watch].
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	view, names, err := w.of.Next()
	if err != nil || view == nil {
		return view, names, err
	}
	moved := w.take(view)
	if len(w.holds) == 0 && !moved {
		return view, names, nil
	}
	moved = w.needs.look(w, view) || moved
	if moved {
		names = nil
		w.mu.Lock()
		w.waits = w.needs.told()
		w.mu.Unlock()
		w.keep(w.needs.all(w.holds))
	}
	if len(w.holds) == 0 {
		return view, names, nil
	}
	s := &shown{of: view, holds: w.made.group(w.holds, w.needs.active, w.needs.beside), made: &w.made}
	if u, ok := view.(xds.Undecided); ok {
		return &undecided{shown: s, of: u}, names, nil
	}
	return s, names, nil
}

// Withholds implements [server.WithholdingWatch]. It is asked when the client has accepted a response and refuses nothing that it is
// shown: that proves what was found on another stream. An answer to what was under way before does not.
func (w *Watch) Withholds(t *xds.Type) (is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.holds {
		if h := &w.holds[i]; h.typ.Is(t) && h.by != Dependent {
			is = true
			h.proven = h.proven || h.by == Found && len(w.pending) == 0
		}
	}
	return is
}

func (w *Watch) held(t *xds.Type) (all []Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.holds {
		if h := &w.holds[i]; h.typ.Is(t) && h.by != Dependent {
			all = append(all, h.told())
		}
	}
	for _, h := range w.waits {
		if h.Type.Is(t) {
			all = append(all, h)
		}
	}
	return all
}

// C implements [server.Watch].
func (w *Watch) C() <-chan struct{} { return w.of.C() }

// Interested implements [server.Watch].
func (w *Watch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	w.of.Interested(t, wildcard, added, removed)
}

// Recent implements [server.HistoryWatch]: what the client has refused, and has nothing of, it is not told
// again because something refers to it.
func (w *Watch) Recent(t *xds.Type) []*xds.Table {
	all := w.recent(t)
	if names := w.needs.absentOf(t); len(names) > 0 {
		all = slices.Clone(all)
		for i := range all {
			all[i], _ = all[i].Substitute(nil, names...)
		}
	}
	return all
}

func (w *Watch) recent(t *xds.Type) []*xds.Table {
	if r, ok := w.of.(server.HistoryWatch); ok {
		return r.Recent(t)
	}
	return nil
}

// Identity implements [server.IdentityWatch].
func (w *Watch) Identity() fmt.Stringer {
	if i, ok := w.of.(server.IdentityWatch); ok {
		return i.Identity()
	}
	return nil
}

// Close implements [server.Watch].
func (w *Watch) Close() {
	w.mu.Lock()
	w.closed, w.pending, w.asked = true, nil, asked{}
	w.mu.Unlock()
	w.keep(nil)
	w.source.leave(w)
	w.of.Close()
}

// asked is what is known of a stream by those who look at it; guarded by Watch.mu.
type asked struct {
	news     []Held         // to be told
	st       *server.Stream // nil: nobody has said yet which it is
	asks     []ask          // of each type the newest, that wait to be looked at
	queued   bool
	searches []*search
	looks    int // since
	since    time.Time
	cleared  map[key]xds.Sum // not at fault alone, though a text names them
	resting  map[string]time.Time
}

// ask has somebody look at what the client has answered. It reports whether the stream is to be queued.
func (w *Watch) ask(a ask) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.asked.add(a)
}

func (q *asked) add(a ask) bool {
	q.st = a.st
	switch i := slices.IndexFunc(q.asks, func(o ask) bool { return o.typ.Is(a.typ) }); {
	case i >= 0 && (a.refused || !q.asks[i].refused):
		q.asks[i] = a
	case i >= 0: // what was refused is looked at in any case
	case len(q.asks) >= maxTypes:
		return false
	default:
		q.asks = append(q.asks, a)
	}
	was := q.queued
	q.queued = true
	return !was
}

// takeNews takes what got into quarantine, and nobody has told.
func (w *Watch) takeNews() (all []Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.asked.news = w.asked.news, nil
	return all
}

// firstAsk takes the oldest.
func (w *Watch) firstAsk() (a ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := &w.asked; len(q.asks) > 0 {
		a, q.asks = q.asks[0], q.asks[1:]
	}
	return a
}

// askedMore reports whether there is another; if not, the stream is in no queue.
func (w *Watch) askedMore() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked.queued = len(w.asked.asks) > 0; !w.asked.queued {
		w.asked.asks = nil
	}
	return w.asked.queued
}

// accepted notes that the client has accepted a response, and reports whether somebody is to look at
// that.
func (w *Watch) accepted(t *xds.Type) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		for i := range w.holds {
			if h := &w.holds[i]; h.typ.Is(t) && h.by != Found { // a hint: see Holds
				h.proven = true
			}
		}
	}
	return w.asked.search(t) != nil
}

// mayLook reports whether who is at fault may be looked for once more: a client that refuses all it is told
// does not keep others from being looked at.
func (w *Watch) mayLook(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.asked
	if now.Sub(q.since) >= looksTime {
		q.since, q.looks = now, 0
	}
	q.looks++
	return q.looks <= maxLooks
}

// clearUnproven notes that what is in quarantine by what the client said is not at fault, or not alone,
// and returns it as it may be shown again.
func (w *Watch) clearUnproven(t *xds.Type) (all []held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.holds {
		if !h.typ.Is(t) || !h.unproven() || len(w.asked.cleared) >= maxCleared {
			continue
		}
		if w.asked.cleared == nil {
			w.asked.cleared = map[key]xds.Sum{}
		}
		w.asked.cleared[h.key()] = h.refused
		all = append(all, h)
	}
	return all
}

// unprovenIn reports whether something is in quarantine by what the client said, and refused since.
func (w *Watch) unprovenIn(t *xds.Type) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.holds, func(h held) bool { return h.typ.Is(t) && h.unproven() })
}

func (w *Watch) isCleared(h *held) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum, is := w.asked.cleared[h.key()]
	return is && sum == h.refused
}

// distrusts reports whether what was found out about others did not help.
func (w *Watch) distrusts(t *xds.Type) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.asked.cleared {
		if k.url == t.URL {
			return true
		}
	}
	return false
}

func (q *asked) search(t *xds.Type) *search {
	for _, x := range q.searches {
		if x.typ.Is(t) {
			return x
		}
	}
	return nil
}

func (w *Watch) searchOf(t *xds.Type) *search {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked.search(t)
}

func (w *Watch) setSearch(x *search) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked.searches = append(w.asked.searches, x)
}

func (w *Watch) setSearchDone(x *search) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked.searches = slices.DeleteFunc(w.asked.searches, func(o *search) bool { return o == x })
}

// rest has the stream not searched for a while.
func (w *Watch) rest(t *xds.Type, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked.resting == nil || len(w.asked.resting) >= maxTypes {
		w.asked.resting = map[string]time.Time{}
	}
	w.asked.resting[t.URL] = now.Add(restTime)
}

func (w *Watch) maySearch(t *xds.Type, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !now.Before(w.asked.resting[t.URL])
}
