package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A waiting is the set of names of one type that wait for another type. Terms: see doc.go.
//
// A name that must wait then rests: the name is not dirty and is not evaluated in each step. It is
// evaluated again in three cases: the name is marked, a name that it refers to changes (stir), or a
// condition of all waits changes (sight). So the cost of a request depends on the names in it, not
// on all waiting names.
//
// Invariant: ends and patient are the earliest times in waits, or zero while the type is blocked.
// The names in roused are in waits. roused is empty unless rest is set. While rest is set, the
// types for which the names wait are heeded.
type waiting struct {
	waits   map[string]wait
	ends    earliest // when the first name may stop waiting without an answer
	patient earliest // start of the oldest wait that ends when the client has been silent for too long

	rest   bool               // all waiting names rest, except those in roused
	roused map[string]bool    // waiting names to evaluate
	seen   sight              // the sight when the names were evaluated
	found  anyComing          // the result of mayAnyCome at that time
	behind map[cause][]string // waiting names by cause; may include names that no longer wait; nil: not computed
	put    int                // number of names added to behind
}

// A heed belongs to a type for which names of other types may wait. It lists the changes since
// these names were evaluated.
//
// Invariant: stirred is empty unless heeded is set.
type heed struct {
	heeded  bool     // names of other types wait for this type and rest
	stirred []string // names of this type that changed since the last spread
	moves   uint64   // counts changes that may affect any name that waits for this type
}

// moveAll records a change that may affect any name that waits for this type.
func (h *heed) moveAll() { h.moves++ }

// len returns the number of waiting names.
func (w *waiting) len() int {
	if w == nil {
		return 0
	}
	return len(w.waits)
}

// of returns the wait of a name, and whether the name waits.
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

// rests reports whether all waiting names rest, except those in roused.
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

// blocked clears the time limits of the waits: the client must first answer the newest response of
// the same type.
func (w *waiting) blocked() {
	if w != nil {
		w.ends, w.patient = earliest{}, earliest{}
	}
}

// A wait is the wait of one name: its start, and the condition that it must go on.
type wait struct {
	since time.Time
	condition
}

// A waiter is a name of a diff that must wait.
type waiter struct {
	name string
	condition
}

// A cause is a name for which names of another type may wait. The cause is a cluster, or with warms
// set an assignment that a cluster needs to become warm (see xds.Type, After and Warms). The zero
// cause means any name.
type cause struct {
	warms bool
	name  string
}

// A sight has the conditions on which all waits of a type depend. It leaves out the time, the
// waiting name itself, and the names to which the waiting name refers.
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

// waitNoMore records that no name of u waits.
func (u *subscription) waitNoMore() { u.waiting = nil }

// rest puts all waiting names of u to rest: they are not evaluated until a change or a time limit.
func (s *Session) rest(u *subscription, d *diff) {
	w := u.waiting
	if w.len() == 0 {
		u.waitNoMore()
		return
	}
	w.roused = nil
	w.rest = u.stated == "" && !d.bound
	if !w.rest {
		// The version that the client stated may still prove equal to the full state, so nothing rests. A name
		// that waits for an address does not rest, because no type that it refers to ends its wait.
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

// stir records a change of a name for which other names may wait.
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

// stirAll calls stir for all names of a delivery. It also calls stir for the empty name, because
// the answer itself may end waits.
func (u *subscription) stirAll(d *delivery) {
	if !u.heeded {
		return
	}
	u.stir("")
	for name := range d.each {
		u.stir(name)
	}
}

// spread rouses the names of other types that wait for changed names of the type v.
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
			u.wake() // it costs less to evaluate all waiting names
			continue
		}
		s.findBehind(u)
		for _, n := range names {
			s.rouseBehind(u, cause{warms, n})
		}
		// The result of mayAnyCome is the same for all names that may refer to anything.
		if first := s.sub(u.typ.After); len(w.behind[cause{}]) > 0 && first != nil && w.found.condition != s.mayAnyCome(first) {
			s.rouseBehind(u, cause{})
		}
	}
}

func (s *Session) rouseBehind(u *subscription, a cause) {
	for _, n := range u.waiting.behind[a] {
		switch e := u.entry(n); {
		case !u.waiting.resting(n):
		case e == nil: // nothing of the table was sent yet, so the table will be sent as a whole
			u.wake()
			return
		default:
			u.mark(e)
		}
	}
}

// findBehind computes behind, or computes it again if it has grown too large.
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

// putBehind adds a waiting name to behind, under each cause of its wait (see mustWait).
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

// waitEnds returns the time at which the first name of u may stop waiting without an answer; zero:
// never.
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

// waitsSince returns the start of a name's wait, or the present time if the name does not wait yet.
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

// wait records which of the evaluated names must wait, and since when.
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
		fresh[i] = wait{s.waitsSince(u, n.name), n.condition}
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
		if w.rest { // removals are sent last, so a name may be evaluated twice before it rests
			w.drop(n.name)
		}
		w.waits[n.name] = fresh[i]
		if w.behind != nil && !roused[n.name] {
			s.putBehind(u, n.name)
		}
		w.endsBy(fresh[i])
	}
	if w.ends.over() || w.patient.over() { // the earliest time has left the set: find the next
		w.ends, w.patient = earliest{}, earliest{}
		for _, one := range w.waits {
			w.endsBy(one)
		}
	}
}

// waive reports an event for each name whose wait has ended because the client was silent for too
// long.
func (s *Session) waive(u *subscription, d *diff) {
	if u.waiting.len() == 0 {
		return
	}
	first := s.sub(u.typ.After)
	for _, r := range d.upserts {
		if _, waited := u.waiting.waits[r.Name]; !waited {
			continue
		}
		over := first == nil && !s.opensLater().holds || first != nil && !s.canWait(u, first, r.Name).holds
		if over {
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

// An earliest is the first of several times, with the number of times equal to it. Zero times do
// not count.
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

// over reports whether all times equal to the first were removed, so that the next time must be
// found.
func (e *earliest) over() bool { return e.count == 0 && !e.at.IsZero() }
