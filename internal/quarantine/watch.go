package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Watch is the watch of one stream. It implements [server.HistoryWatch]. Only the stream's goroutine
// uses it, except for the fields that mu guards.
type Watch struct {
	of     server.Watch
	source *Source
	node   *xds.Node
	scope  string // the groups and the identity
	groups string
	owner  string // owner of the stream: the identity, else the address

	agent    string                         // kind of client
	evidence atomic.Pointer[evidence.Scope] // nil: the stream has no node
	lane     bool                           // the client sees the lane of a rollout, and evidence is that of its group
	types    []*xds.Type                    // types that the client has opened

	counted, early int // shares of this stream in source.held and source.early; guarded by source.mu

	deps  dependencies
	made  tables
	keeps []*xds.Resource // resources that the client is shown and that the wrapped view lacks
	freed []*xds.Resource // the last replacements of resources that the view has lost, at most maxHeld

	borrowed []Kept // resources that siblings lend and that the wrapped view lacks

	mu      sync.Mutex // held for memory access only
	pending []order
	holds   []held // the applied orders; only the stream's goroutine writes the field
	delays  []Held // held back dependents
	kept    []Kept // resources that are shown only because of the quarantine
	closed  bool
	exam    examination
}

// held is a resource in quarantine.
type held struct {
	typ        *xds.Type
	name       string
	refused    xds.Sum
	version    string
	nonce      uint64 // of the newest refused response that had the resource
	has        bool   // the client has accepted a version of the resource
	had        xds.Sum
	hadVersion string

	// The table lacks the resource if it has no replacement. Otherwise the full state of a response would
	// have the resource, and the client would refuse all of the response.
	hidden bool

	// The client blamed another resource and may have applied this one, so its removal is sent. The table
	// lacks the resource.
	applied bool

	by     Reason
	text   string // for a faulty resource: the client's error text, shortened
	proven bool   // the client has accepted the other resources without this one, or refused this one alone

	body *xds.Resource // the refused version
	old  *xds.Resource // the replacement; nil: none

	// The replacement is a version that other clients accepted (HEAL-3). The client has refused the first
	// versions of alsoRefused, too.
	others             bool
	alsoRefused        [evidence.MaxBack]xds.Sum
	oldSince, badSince string // revisions of the replacement and of the refused version; "": unknown

	refs *xds.Stamp // for a Dependent: its references

	// The retries (HEAL-2). While trying, the view shows the refused version.
	trying  bool
	tries   int
	retryAt time.Time // trying: from this time, other retries do not wait for the answer
	planned time.Time // time of the retry of the back-off, if a hastened retry precedes it
}

func (h *held) key() key { return keyOf(h.typ, h.name) }

// fault reports whether the resource itself is faulty.
func (h *held) fault() bool { return h.by == Named || h.by == Found || h.by == Unaccepted }

// isIn reports whether the client has accepted the refused version.
func (h *held) isIn(all protocol.Acceptance) bool {
	if st := all.All.Get(h.name); st != nil {
		return st.Sum == h.refused
	}
	for st := range all.Each {
		if st.Name == h.name {
			return st.Sum == h.refused
		}
	}
	return false
}

func (h *held) unproven() bool { return !h.proven && h.by != Dependent }

// hadIs reports whether st is the version that the client accepted last. If the client stated the version
// in its first request, possibly only the version string is known.
func (h *held) hadIs(st *xds.Stamp) bool {
	return st.Sum == h.had || h.had == xds.Sum{} && h.hadVersion != "" && st.Version == h.hadVersion
}

func (h *held) exported() Held {
	is := Held{Type: h.typ, Name: h.name, Refused: h.version, Body: h.body, By: h.by, Others: h.others}
	if h.old != nil {
		is.Instead = h.old.Version
	}
	return is
}

// An order changes the resources of one type that are in quarantine. The stream first applies drop, then
// edit, then add.
type order struct {
	typ  *xds.Type
	drop func(*held) bool // nil: drop none
	edit func(*held)      // nil: edit none
	add  []held
}

// A ringer is a watch whose stream another goroutine can wake.
type ringer interface{ Ring() }

// order adds an order and wakes the stream. The stream's goroutine applies the order.
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

// moving reports whether orders are pending.
func (w *Watch) moving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) > 0
}

// applyOrders applies the pending orders, and releases resources whose content has changed. It reports
// whether the quarantine changed.
func (w *Watch) applyOrders(view xds.View) (moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending)+len(w.holds) == 0 {
		return false
	}
	c := change{view: view, was: map[key]held{}, is: map[key]held{}}
	w.freed = slices.DeleteFunc(w.freed, func(r *xds.Resource) bool { return view.Table(r.Type).Lookup(r.Name) != nil })
	for _, h := range w.holds {
		c.was[h.key()] = h
		if h.old != nil && view.Table(h.typ).Lookup(h.name) == nil {
			w.freed = append(w.freed, h.old)
		}
		if h.current(view) {
			c.is[h.key()] = h
			c.count(&h, 1)
		}
	}
	for _, o := range w.pending {
		c.drop(o)
		c.edit(o)
		for _, h := range o.add {
			w.admit(&c, h)
		}
	}
	was, is := c.was, c.is
	w.pending, w.freed = nil, w.freed[max(0, len(w.freed)-maxHeld):]
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
	if len(w.exam.news) > 0 && w.exam.st != nil && w.exam.add(answer{st: w.exam.st, typ: w.exam.news[0].Type}) {
		w.source.enqueue(w)
	}
	w.holds = holds
	if len(holds) == 0 {
		w.holds = nil
	}
	w.count()
	return true
}

// A change is a change in progress of the resources in quarantine.
type change struct {
	view    xds.View
	was, is map[key]held // before and after
	bare    int          // faulty resources in is without a replacement
	full    int          // faulty resources in is with a replacement
	bytes   int          // of full, see heldBytes
}

// heldBytes is the memory of a resource in quarantine, in addition to its versions.
const heldBytes = 512

// count counts a resource n times.
func (c *change) count(h *held, n int) {
	switch {
	case !h.fault():
	case h.old == nil:
		c.bare += n
	default:
		c.full += n
		c.bytes += n * (heldBytes + len(h.old.Body))
	}
}

// hasRoom reports whether one more resource may come into quarantine. A resource with a replacement costs the
// client nothing, so only memory limits their number.
func (w *Watch) hasRoom(c *change, h *held) bool {
	if h.old == nil {
		return c.bare < maxHeld
	}
	return c.full < maxHeld || c.full < maxSuspects && c.bytes < maxHeldBytes && w.source.Held() < maxHeldAll
}

// drop removes the resources that an order drops.
func (c *change) drop(o order) {
	if o.drop == nil {
		return
	}
	for k, h := range c.is {
		if h.typ.Is(o.typ) && o.drop(&h) {
			delete(c.is, k)
			c.count(&h, -1)
		}
	}
}

// edit edits the resources of the type of an order.
func (c *change) edit(o order) {
	if o.edit == nil {
		return
	}
	for k, h := range c.is {
		if h.typ.Is(o.typ) {
			o.edit(&h)
			c.is[k] = h
		}
	}
}

// admit adds a resource. It does not add the resource if the content has changed, if too many are in
// quarantine, or if the version to show instead is not available.
func (w *Watch) admit(c *change, h held) {
	k := h.key()
	before, known := c.was[k]
	known = known && before.refused == h.refused
	now, also := c.is[k]
	counted := also && now.fault()
	switch {
	case h.by == Dependent && also && now.by != Dependent && now.refused == h.refused:
		return // it is in quarantine itself
	case !h.current(c.view):
		return
	case known:
		h.body, h.old, h.has, h.others = before.body, before.old, before.has, before.others // the cache may no longer have these versions
		h.oldSince, h.badSince = before.oldSince, before.badSince
		h.trying, h.tries, h.retryAt, h.planned = now.trying, before.tries, before.retryAt, now.planned
		if h.alsoRefused != before.alsoRefused {
			w.findOthers(c.view, &h)
		}
	case !w.findAccepted(c.view, &h):
		return
	default:
		h.body = c.view.Table(h.typ).Lookup(h.name)
	}
	if h.fault() && !counted && !w.hasRoom(c, &h) {
		return
	}
	if h.fault() && (h.retryAt.IsZero() || also && !now.fault()) {
		w.schedule(&h, time.Now())
	}
	if counted {
		c.count(&now, -1)
	}
	c.count(&h, 1)
	if h.fault() && (!known || !before.fault()) {
		w.exam.news = append(w.exam.news, h.exported())
	}
	c.is[k] = h
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

// current reports whether the view still has the refused version.
func (h *held) current(view xds.View) bool {
	r := view.Table(h.typ).Lookup(h.name)
	return r != nil && r.Sum == h.refused
}

// findAccepted finds the version that the client accepted last. If the version is not available, the
// resource does not come into quarantine, because a working resource must never be removed from the
// client.
func (w *Watch) findAccepted(view xds.View, h *held) bool {
	if !h.has {
		w.findOthers(view, h)
		return true
	}
	for _, t := range w.recent(h.typ) {
		if r := t.Lookup(h.name); r != nil && h.hadIs(r.Stamp) {
			h.old = r
			return true
		}
	}
	if r := w.source.replacements.find(w.scope, h.typ, h.name); r != nil && h.hadIs(r.Stamp) {
		h.old = r
	}
	return h.old != nil
}

// findOthers finds the version that other clients accepted, for a client that has accepted none (HEAL-3). It
// omits versions that the client has refused, and endpoints with addresses that others now have.
func (w *Watch) findOthers(view xds.View, h *held) {
	h.old, h.others, h.oldSince, h.badSince = nil, false, "", ""
	if h.alsoRefused[evidence.MaxBack-1] != (xds.Sum{}) {
		return
	}
	for _, r := range w.before(h) {
		if r.Sum != h.refused && !slices.Contains(h.alsoRefused[:], r.Sum) && (!r.Type.Is(xds.Endpoint) || !w.source.taken.has(view.Table(h.typ), r)) {
			h.old, h.others = r, true
			h.oldSince = w.evidence.Load().RevisionOf(h.typ, h.name, r.Sum)
			h.badSince = w.source.revision(w.groups, h.typ, h.name, h.refused)
			return
		}
	}
}

// before returns the versions that other clients accepted, best first.
func (w *Watch) before(h *held) []*xds.Resource {
	e := w.evidence.Load()
	if e == nil {
		return nil
	}
	return e.Before(time.Now(), h.typ, h.name, h.refused, w.agent)
}

// ofType returns the resources of a type that are in quarantine, by name.
func (w *Watch) ofType(t *xds.Type) map[string]held {
	all := map[string]held{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.holds {
		if h.typ.Is(t) {
			all[h.name] = h
		}
	}
	return all
}

// original turns the refusal of a version that others accepted into the refusal of the resource that this
// version replaces, and reports whether it is one. A refused retry of the resource keeps the versions that the
// client has refused, too.
func (h *held) original(of map[string]held) bool {
	was, is := of[h.name]
	switch {
	case !is:
	case was.refused == h.refused:
		h.alsoRefused = was.alsoRefused
	case was.others && was.old.Sum == h.refused:
		h.refused, h.version, h.alsoRefused = was.refused, was.version, was.alsoRefused
		if n := slices.Index(h.alsoRefused[:], xds.Sum{}); n >= 0 {
			h.alsoRefused[n] = was.old.Sum
		}
		return true
	}
	return false
}

// keep replaces the resources of this stream in the cache: the client is shown them, and the wrapped view lacks
// them.
func (w *Watch) keep(all []*xds.Resource) {
	was := w.keeps
	w.keeps = all
	for _, r := range all {
		w.source.replacements.hold(w.scope, r)
	}
	for _, r := range was {
		w.source.replacements.release(w.scope, r)
	}
}

// count reports the number of resources in quarantine, and the time of the next retry, to the source.
func (w *Watch) count() {
	n, early := 0, 0
	var retryAt time.Time
	for i := range w.holds {
		h := &w.holds[i]
		if h.fault() {
			n++
		}
		if h.others {
			early++
		}
		if h.isKept() && (retryAt.IsZero() || h.retryAt.Before(retryAt)) {
			retryAt = h.retryAt
		}
	}
	s := w.source
	s.mu.Lock()
	s.held += n - w.counted
	s.early += early - w.early
	w.counted, w.early = n, early
	if retryAt.IsZero() {
		delete(s.retries, w)
	} else {
		s.retries[w] = retryAt
	}
	s.mu.Unlock()
	s.moved()
}

// Next implements [server.Watch].
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	view, names, err := w.of.Next()
	if err != nil || view == nil {
		return view, names, err
	}
	entered := names == nil && w.enter()
	w.show(view, w.types...)
	moved := w.applyOrders(view) || entered && len(w.holds) > 0
	if len(w.holds) > 0 || moved {
		moved = w.deps.look(w, view) || moved
	}
	if moved {
		names = nil
		w.mu.Lock()
		w.delays = w.deps.exported()
		w.mu.Unlock()
		w.keep(w.deps.all(w.holds))
		if w.hasSiblings() {
			w.source.siblings.lend(w, w.deps.extra)
		}
	}
	if w.borrow(view) {
		names = nil
	}
	kept := slices.Concat(w.deps.extra, w.borrowed)
	if len(kept)+len(w.kept) > 0 {
		w.mu.Lock()
		w.kept = kept
		w.mu.Unlock()
	}
	if len(w.holds)+len(w.borrowed) == 0 {
		return view, names, nil
	}
	s := &substituted{of: view, holds: w.made.group(w.holds, w.deps.active, bodies(kept)), made: &w.made}
	if u, ok := view.(xds.Undecided); ok {
		return &undecided{substituted: s, of: u}, names, nil
	}
	return s, names, nil
}

// enter follows the groups that the client sees. It reports whether they have changed. The lane of a rollout
// shares the evidence of its group (HEAL-3).
func (w *Watch) enter() bool {
	if w.node == nil {
		return false // the stream cannot be identified
	}
	var names []string
	if g, ok := w.of.(interface{ Groups() []string }); ok {
		names = g.Groups()
	}
	if len(names) == 0 && w.source.opts.Scope != nil {
		names = []string{w.source.opts.Scope(w.node)}
	}
	w.groups = strings.Join(names, "\x00")
	scope, identity := w.groups, ""
	w.lane = false
	of := slices.Clone(names)
	for i, name := range names {
		of[i] = groups.BaseOf(name)
		w.lane = w.lane || of[i] != name
	}
	if id := w.Identity(); id != nil {
		identity = id.String()
		scope += "\x00" + identity
	}
	if w.evidence.Load() != nil && scope == w.scope {
		return false
	}
	w.keep(nil)
	if w.hasSiblings() {
		w.source.siblings.leave(w)
	}
	w.scope = scope
	if w.hasSiblings() {
		w.source.siblings.join(w)
	}
	w.evidence.Store(w.source.evidence.Scope(strings.Join(of, "\x00"), identity))
	return true
}

// show records for the evidence that the client now sees the tables of a view. The tables of a lane are not
// those of its group.
func (w *Watch) show(view xds.View, types ...*xds.Type) {
	e := w.evidence.Load()
	if e == nil || w.lane {
		return
	}
	for _, t := range types {
		e.Show(time.Now(), t, view.Table(t), w.recent)
	}
}

// Withholds implements [server.WithholdingWatch].
func (w *Watch) Withholds(t *xds.Type) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.holds, func(h held) bool { return h.typ.Is(t) && h.by != Dependent })
}

func (w *Watch) held(t *xds.Type) (all []Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.holds {
		if h := &w.holds[i]; h.typ.Is(t) && h.by != Dependent {
			is := h.exported()
			if h.isKept() && !h.trying && w.exam.st.Retries() {
				is.RetryAt = h.retryAt
			}
			all = append(all, is)
		}
	}
	for _, h := range w.delays {
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
	if slices.ContainsFunc(w.types, t.Is) {
		return
	}
	if w.hasSiblings() {
		w.source.siblings.leave(w)
	}
	w.types = append(w.types, t)
	if w.hasSiblings() {
		w.source.siblings.join(w)
	}
}

// Recent implements [server.HistoryWatch]. It leaves out a hidden resource that is new to the client: the
// server must not send it again when another resource refers to it.
func (w *Watch) Recent(t *xds.Type) []*xds.Table {
	all := w.recent(t)
	if names := w.hidden(t); len(names) > 0 {
		all = slices.Clone(all)
		for i := range all {
			all[i], _ = all[i].Substitute(nil, names...)
		}
	}
	return all
}

// hidden returns the names of a type that the tables lack because they are in quarantine.
func (w *Watch) hidden(t *xds.Type) (names []string) {
	for i := range w.holds {
		if h := &w.holds[i]; (h.hidden || h.applied) && h.old == nil && h.typ.Is(t) {
			names = append(names, h.name)
		}
	}
	return names
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
	w.closed, w.pending, w.exam = true, nil, examination{}
	w.mu.Unlock()
	w.keep(nil)
	if w.hasSiblings() {
		w.source.siblings.leave(w)
	}
	w.source.leave(w)
	w.of.Close()
}

// An examination is the state of a stream's examinations. Watch.mu guards it.
type examination struct {
	news       []Held         // resources to report
	st         *server.Stream // nil: the stream has not been examined yet
	answers    []answer       // waiting answers: the newest of each type
	queued     bool
	searches   []*search
	refusals   int // number of refusals since the time since
	since      time.Time
	shownAgain map[key]xds.Sum // resources that were shown once more
	cleared    map[key]xds.Sum // resources that a text names, and whose quarantine did not help
	paused     map[string]time.Time
}

// addAnswer adds an answer to examine. It reports whether the caller must add the stream to the queue.
func (w *Watch) addAnswer(a answer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.exam.add(a)
}

func (q *examination) add(a answer) bool {
	q.st = a.st
	switch i := slices.IndexFunc(q.answers, func(o answer) bool { return o.typ.Is(a.typ) }); {
	case i >= 0 && (a.refused || !q.answers[i].refused):
		q.answers[i] = a
	case i >= 0: // a waiting refusal is examined in any case
	case len(q.answers) >= maxTypes:
		return false
	default:
		q.answers = append(q.answers, a)
	}
	was := q.queued
	q.queued = true
	return !was
}

// takeNews takes the resources that came into quarantine since the last call.
func (w *Watch) takeNews() (all []Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.exam.news = w.exam.news, nil
	return all
}

// nextAnswer takes the oldest answer.
func (w *Watch) nextAnswer() (a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := &w.exam; len(q.answers) > 0 {
		a, q.answers = q.answers[0], q.answers[1:]
	}
	return a
}

// moreAnswers reports whether another answer waits. If not, it notes that the stream is not in the queue.
func (w *Watch) moreAnswers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exam.queued = len(w.exam.answers) > 0
	if !w.exam.queued {
		w.exam.answers = nil
	}
	return w.exam.queued
}

// accepted notes that the client accepted a response, and reports whether the ACK must be examined: for a
// search, or because the client has accepted a refused version. The ACK proves a hint from another stream (Found)
// only if the client refuses no shown resource. It proves nothing while an order is pending, because it may be for
// an earlier view.
func (w *Watch) accepted(t *xds.Type, refusesShown bool, all protocol.Acceptance) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		for i := range w.holds {
			if h := &w.holds[i]; h.typ.Is(t) && (h.by != Found || !refusesShown) {
				h.proven = true
			}
		}
	}
	return w.exam.search(t) != nil || w.unansweredRetry(t) != nil || slices.ContainsFunc(w.holds, func(h held) bool {
		return w.waits(&h) || h.typ.Is(t) && h.fault() && !h.isKept() && h.isIn(all)
	})
}

// countRefusal returns the number of refusals of the stream in examPeriod, with this one. Its limit ensures that
// a client that refuses everything does not block other clients.
func (w *Watch) countRefusal(now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.exam
	if now.Sub(q.since) >= examPeriod {
		q.since, q.refusals = now, 0
	}
	q.refusals++
	return q.refusals
}

// clearUnproven notes that the unproven resources in quarantine are not faulty, or are not the only
// faulty ones. It returns these resources, so that the client is shown them again.
func (w *Watch) clearUnproven(t *xds.Type) (all []held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.holds {
		if !h.typ.Is(t) || !h.unproven() || len(w.exam.cleared) >= maxCleared {
			continue
		}
		if w.exam.cleared == nil {
			w.exam.cleared = map[key]xds.Sum{}
		}
		w.exam.cleared[h.key()] = h.refused
		all = append(all, h)
	}
	return all
}

// unprovenIn reports whether a resource of the type is in quarantine without proof: only a text or a hint
// names it.
func (w *Watch) unprovenIn(t *xds.Type) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.holds, func(h held) bool { return h.typ.Is(t) && h.unproven() })
}

func (w *Watch) isCleared(h *held) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum, is := w.exam.cleared[h.key()]
	return is && sum == h.refused
}

// distrusts reports whether a hint or a verdict for a type was wrong on this stream.
func (w *Watch) distrusts(t *xds.Type) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.exam.cleared {
		if k.url == t.URL {
			return true
		}
	}
	return false
}

func (q *examination) search(t *xds.Type) *search {
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
	return w.exam.search(t)
}

func (w *Watch) setSearch(x *search) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exam.searches = append(w.exam.searches, x)
}

func (w *Watch) setSearchDone(x *search) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exam.searches = slices.DeleteFunc(w.exam.searches, func(o *search) bool { return o == x })
}

// pause forbids searches for a type on the stream for pauseTime.
func (w *Watch) pause(t *xds.Type, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.exam.paused == nil || len(w.exam.paused) >= maxTypes {
		w.exam.paused = map[string]time.Time{}
	}
	w.exam.paused[t.URL] = now.Add(pauseTime)
}

func (w *Watch) maySearch(t *xds.Type, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !now.Before(w.exam.paused[t.URL])
}
