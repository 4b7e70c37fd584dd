package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A waiting is the set of names of one type that wait for another type.
//
// A name that was found to wait then rests: it is not dirty, and not evaluated again. It is
// evaluated when it is marked, or when something changes that its wait depends on: a name that it
// refers to (stir), or a condition of all waits (sight). So a request costs the names in it, not
// all that wait.
//
// Invariant: ends and patient are of waits, or zero while the type is blocked. roused is a subset
// of waits, and empty unless rest is set; then other names rest. The types they wait for are
// heeded.
type waiting struct {
	waits   map[string]wait
	ends    earliest // when a name may stop waiting without an answer
	patient earliest // start of the oldest wait that ends when the client has been silent for too long

	rest   bool               // all waiting names rest, except the roused
	roused map[string]bool    // names to evaluate
	seen   sight              // the sight when they were evaluated
	found  anyReady           // the result of readyForAny then
	behind map[cause][]string // waiting names by cause, and some that no longer wait; nil: not computed
	put    int                // how many names were added to behind
}

// A heed is, for a type that others wait for, the list of changes since those were evaluated.
//
// Invariant: stirred is empty unless heeded is set.
type heed struct {
	heeded  bool     // names of other types rest that wait for this type
	stirred []string // changed names since then
	moves   uint64   // counts changes that may affect any name that waits for this type
}

// moveAll notes a change that may affect any name that waits for this type.
func (h *heed) moveAll() { h.moves++ }

// len is the number of waiting names.
func (w *waiting) len() int {
	if w == nil {
		return 0
	}
	return len(w.waits)
}

// of returns the wait of a name, if it waits.
func (w *waiting) of(name string) (one wait, waits bool) {
	if w != nil {
		one, waits = w.waits[name]
	}
	return one, waits
}

// all yields the waiting names.
func (w *waiting) all(yield func(string) bool) {
	if w == nil {
		return
	}
	for n := range w.waits {
		if !yield(n) {
			return
		}
	}
}

// rests reports whether all waiting names rest, except the roused.
func (w *waiting) rests() bool { return w != nil && w.rest }

// restsStill reports whether any name rests.
func (w *waiting) restsStill() bool { return w.rests() && len(w.waits) > len(w.roused) }

// resting reports whether a name rests.
func (w *waiting) resting(name string) bool {
	if !w.rests() || w.roused[name] {
		return false
	}
	_, waits := w.waits[name]
	return waits
}

// rouse lists a resting name for evaluation.
func (w *waiting) rouse(name string) {
	if !w.resting(name) {
		return
	}
	if w.roused == nil {
		w.roused = map[string]bool{}
	}
	w.roused[name] = true
}

// blocked notes that the type's own response must be answered first, so no wait has a time limit.
func (w *waiting) blocked() {
	if w != nil {
		w.ends, w.patient = earliest{}, earliest{}
	}
}

// A wait is the wait of one name: its start, the time at which it may end without an answer (zero:
// never), and whether it ends when the client has been silent for too long (patient).
type wait struct {
	since, until time.Time
	patient      bool
}

// A waiter is a name that is found to wait, with the limits of its wait as in wait.
type waiter struct {
	name    string
	until   time.Time // zero: never
	patient bool
}

// A cause is a name that others may wait for. It is of the type that comes first or, with warms
// set, of the type that this one warms with. The zero cause is any name.
type cause struct {
	warms bool
	name  string
}

// A sight is all that the waits of a type depend on, except the time, the name itself, and the
// names that it refers to.
type sight struct {
	view, first, warms uint64
	stuck, wildcard    bool
	base               *xds.Versions
}

func (s *Session) sight(u *subscription) sight {
	is := sight{view: s.views, wildcard: u.wildcard, base: u.base}
	if first := s.sub(u.typ.After); first != nil {
		is.first, is.stuck = first.moves, first.stuck()
	}
	if w := u.typ.After.Warms; w != nil && s.sub(w) != nil {
		is.warms = s.sub(w).moves
	}
	return is
}

// waitNoMore notes that no name of u waits.
func (u *subscription) waitNoMore() { u.waiting = nil }

// rest lets all waiting names rest.
func (s *Session) rest(u *subscription, d *diff) {
	w := u.waiting
	if w.len() == 0 {
		u.waitNoMore()
		return
	}
	w.roused = nil
	w.rest = u.stated == ""
	if !w.rest { // the stated version may turn out to be the full state
		w.behind = nil
		return
	}
	w.seen = s.sight(u)
	if d.any.known {
		w.found = d.any
	}
	for _, t := range []*xds.Type{u.typ.After, u.typ.After.Warms} {
		if t != nil && s.sub(t) != nil {
			s.sub(t).heeded = true
		}
	}
	u.unmark(w.waits)
}

// rouse re-evaluates waiting names whose dependencies changed or whose time limit has passed.
func (s *Session) rouse(u *subscription) {
	for _, v := range s.subs {
		s.spread(v)
	}
	if !u.waiting.rests() {
		return
	}
	if ends := s.waitEnds(u); u.waiting.seen != s.sight(u) || !ends.IsZero() && !s.now.Before(ends) {
		u.wake()
	}
}

// stir notes a change of a name that others may wait for.
func (u *subscription) stir(name string) {
	if u.heeded {
		u.stirred = append(u.stirred, name)
	}
}

// stirEach calls stir for several names.
func (u *subscription) stirEach(names []string) {
	if u.heeded {
		u.stirred = append(u.stirred, names...)
	}
}

// stirAll calls stir for the names of a delivery, and for the empty name: an answer, too, is a
// change.
func (u *subscription) stirAll(d *delivery) {
	if !u.heeded {
		return
	}
	u.stir("")
	for name := range d.each {
		u.stir(name)
	}
}

// spread lists the names for evaluation that wait for the changed names of type v.
func (s *Session) spread(v *subscription) {
	if !v.heeded {
		return
	}
	names := v.stirred
	v.heeded, v.stirred = false, nil
	for _, u := range s.subs {
		w := u.waiting
		if !w.rests() {
			continue
		}
		first, warms := v.typ.Is(u.typ.After), v.typ.Is(u.typ.After.Warms)
		v.heeded = v.heeded || first || warms
		if !first && !warms || len(names) == 0 {
			continue
		}
		if len(names) > len(w.waits) {
			u.wake() // evaluating all costs less
			continue
		}
		s.findBehind(u)
		for _, n := range names {
			s.rouseBehind(u, cause{warms, n})
		}
		// The answer is the same for all names that may refer to anything.
		if first := s.sub(u.typ.After); len(w.behind[cause{}]) > 0 && first != nil && w.found != s.findAny(first, s.table(first.typ)) {
			s.rouseBehind(u, cause{})
		}
	}
}

func (s *Session) rouseBehind(u *subscription, a cause) {
	for _, n := range u.waiting.behind[a] {
		switch e := u.entry(n); {
		case !u.waiting.resting(n):
		case e == nil: // nothing of the table was sent yet, and all of it will be
			u.wake()
			return
		default:
			u.mark(e)
		}
	}
}

// findBehind computes behind, or cleans it up if it has grown too large.
func (s *Session) findBehind(u *subscription) {
	w := u.waiting
	if w.behind != nil && w.put <= 2*len(w.waits)+16 {
		return
	}
	w.behind, w.put = map[cause][]string{}, 0
	for n := range w.waits {
		s.putBehind(u, n)
	}
}

// putBehind adds a name to behind under each cause of its wait: see ready.
func (s *Session) putBehind(u *subscription, name string) {
	u.waiting.put++
	if r := s.table(u.typ).Lookup(name); r != nil {
		s.putBody(u, r)
	}
	if l := u.leaving[name]; l != nil && l.body != nil {
		s.putBody(u, l.body)
	}
}

func (s *Session) putBody(u *subscription, r *xds.Resource) {
	put := func(a cause) {
		if at := u.waiting.behind[a]; len(at) == 0 || at[len(at)-1] != r.Name {
			u.waiting.behind[a] = append(at, r.Name)
		}
	}
	if r.Refs == nil {
		put(cause{})
	}
	t := s.table(u.typ.After)
	one := func(name string) {
		put(cause{name: name})
		c := t.Lookup(name)
		if c == nil || u.typ.After.Warms == nil {
			return
		}
		for _, ref := range c.Refs {
			if ref.Type.Is(u.typ.After.Warms) {
				put(cause{true, ref.Name})
			}
		}
	}
	for _, ref := range r.Refs {
		switch {
		case !ref.Type.Is(u.typ.After):
		case ref.Name == xds.Wildcard:
			put(cause{})
		default:
			one(ref.Name)
			for c := range t.Aliased(ref.Name).All() {
				one(c.Name)
			}
		}
	}
}

// wake makes all waiting names dirty again.
func (u *subscription) wake() {
	w := u.waiting
	if !w.rests() {
		return
	}
	w.rest, w.roused, w.behind = false, nil, nil
	for n := range w.waits {
		if e := u.entry(n); e != nil {
			u.mark(e)
		}
	}
}

// listed yields the names that are dirty or rest.
func (u *subscription) listed(yield func(string) bool) {
	for _, n := range u.dirty {
		if !yield(n) {
			return
		}
	}
	if !u.waiting.rests() {
		return
	}
	for n := range u.waiting.waits {
		if !u.waiting.roused[n] && !yield(n) {
			return
		}
	}
}

// waitEnds is the time at which a name of u may stop waiting without an answer; zero: never.
func (s *Session) waitEnds(u *subscription) time.Time {
	w := u.waiting
	if w == nil {
		return time.Time{}
	}
	ends := w.ends.at
	if w.patient.at.IsZero() {
		return ends
	}
	if first := s.sub(u.typ.After); first != nil && first.unacked {
		if until := first.waitsUntil(w.patient.at); ends.IsZero() || until.Before(ends) {
			ends = until
		}
	}
	return ends
}

// waitsSince is the start of a name's wait; now if it does not wait yet.
func (s *Session) waitsSince(u *subscription, name string) time.Time {
	if u.waiting != nil {
		if w, ok := u.waiting.waits[name]; ok {
			return w.since
		}
	}
	return s.now
}

// waitedFor reports whether a name of another type waits for u.
func (s *Session) waitedFor(u *subscription) bool {
	return slices.ContainsFunc(s.subs, func(v *subscription) bool { return v.waiting.len() > 0 && u.typ.Is(v.typ.After) })
}

// wait records which of the evaluated names wait, and since when.
func (s *Session) wait(u *subscription, d *diff) {
	w := u.waiting
	if w == nil && len(d.waiting) == 0 {
		return
	}
	if w == nil {
		w = &waiting{}
		u.waiting = w
	}
	if s.tellsWorld(u) && len(d.waiting) > 0 { // a full state waits as a whole
		d.waitAll(w.waits)
	}
	s.waive(u, d)
	roused, fresh := w.roused, make([]wait, len(d.waiting))
	for i, n := range d.waiting {
		fresh[i] = wait{since: s.waitsSince(u, n.name), until: n.until, patient: n.patient}
	}
	if !w.rest {
		*w = waiting{found: w.found}
	}
	for n := range roused {
		w.drop(n)
	}
	if w.waits == nil {
		w.waits = make(map[string]wait, len(d.waiting))
	}
	for i, n := range d.waiting {
		if w.rest { // removals come last, so it may be evaluated twice before it rests
			w.drop(n.name)
		}
		w.waits[n.name] = fresh[i]
		if w.behind != nil && !roused[n.name] {
			s.putBehind(u, n.name)
		}
		w.endsBy(fresh[i])
	}
	if w.ends.over() || w.patient.over() { // the earliest is gone: find the next
		w.ends, w.patient = earliest{}, earliest{}
		for _, one := range w.waits {
			w.endsBy(one)
		}
	}
}

// waive reports the names that waited until the client had been silent for too long.
func (s *Session) waive(u *subscription, d *diff) {
	if u.waiting.len() == 0 {
		return
	}
	first := s.sub(u.typ.After)
	for _, r := range d.upserts {
		w, waited := u.waiting.waits[r.Name]
		if waited && (first == nil && !s.opensLater() || first != nil && first.unacked && !s.now.Before(first.waitsUntil(w.since))) {
			s.event(Event{Kind: Waived, Type: u.typ, By: u.typ.After, Name: r.Name})
		}
	}
}

// drop ends the wait of a name.
func (w *waiting) drop(name string) {
	one := w.waits[name]
	w.ends.less(one.until)
	if one.patient {
		w.patient.less(one.since)
	}
	delete(w.waits, name)
}

// endsBy adds the time limits of a wait.
func (w *waiting) endsBy(one wait) {
	w.ends.more(one.until)
	if one.patient {
		w.patient.more(one.since)
	}
}

// An earliest is the first of several times, and how many are equal to it. Zero times do not count.
type earliest struct {
	at    time.Time
	count int
}

func (e *earliest) more(t time.Time) {
	switch {
	case t.IsZero():
	case e.at.IsZero() || t.Before(e.at):
		e.at, e.count = t, 1
	case t.Equal(e.at):
		e.count++
	}
}

func (e *earliest) less(t time.Time) {
	if !t.IsZero() && t.Equal(e.at) {
		e.count--
	}
}

// over reports whether none of these is left, so that another time is the first.
func (e *earliest) over() bool { return e.count == 0 && !e.at.IsZero() }
