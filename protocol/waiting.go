package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A waiting is what of one type waits for another.
//
// What was found to wait rests: it is not listed as dirty, and not looked at again, before
// it is marked, or something has moved on which its wait depends: a name to which it refers
// (stir), or what all depend on (sight). So a request costs what it asks for, and not all that
// waits.
//
// Invariant: ends and patient are of waits, or of none while the type is blocked; roused are
// some of waits, and none unless the others rest, of which there are some; what they wait for
// is heeded.
type waiting struct {
	waits   map[string]wait
	ends    earliest // when one may wait no longer though nobody answers
	patient earliest // since when one waits that does so until the client has been silent for too long

	rest   bool               // what waits rests, save the roused
	roused map[string]bool    // of these, marked since
	seen   sight              // on what that depended when they were looked at
	found  anyReady           // what was found then of those that may refer to anything
	behind map[cause][]string // what waits, by what it is behind, and some that waits no more; nil: not known
	put    int                // how many names were added to that
}

// A heed is what those have to know of a type that wait for it.
//
// Invariant: nothing has stirred unless it is heeded.
type heed struct {
	heeded  bool     // others rest that wait for this type
	stirred []string // of these names something has moved since they were asked about
	moves   uint64   // counts what may make any others wait for this type, or wait no longer
}

// moveAll notes that something has moved that may make any others wait for this type, or
// wait no longer.
func (h *heed) moveAll() { h.moves++ }

// len is how many wait.
func (w *waiting) len() int {
	if w == nil {
		return 0
	}
	return len(w.waits)
}

// of returns since when a name waits, if it does.
func (w *waiting) of(name string) (one wait, waits bool) {
	if w != nil {
		one, waits = w.waits[name]
	}
	return one, waits
}

// all yields what waits.
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

// rests reports whether what waits rests, save the roused.
func (w *waiting) rests() bool { return w != nil && w.rest }

// restsStill reports whether any of it does.
func (w *waiting) restsStill() bool { return w.rests() && len(w.waits) > len(w.roused) }

// resting reports whether a name rests.
func (w *waiting) resting(name string) bool {
	if !w.rests() || w.roused[name] {
		return false
	}
	_, waits := w.waits[name]
	return waits
}

// rouse makes a name that rests be looked at.
func (w *waiting) rouse(name string) {
	if !w.resting(name) {
		return
	}
	if w.roused == nil {
		w.roused = map[string]bool{}
	}
	w.roused[name] = true
}

// blocked notes that what waits for another type waits for its own first.
func (w *waiting) blocked() {
	if w != nil {
		w.ends, w.patient = earliest{}, earliest{}
	}
}

// A wait is since when a name waits, when that may end though nobody answers; zero: never;
// and whether it ends when the client has been silent for too long.
type wait struct {
	since, until time.Time
	patient      bool
}

// A waiter is what is to wait, until when that may end though nobody answers, and whether
// it ends when the client has been silent for too long.
type waiter struct {
	name    string
	until   time.Time // zero: never
	patient bool
}

// A cause is what others may wait for: a name of the type that comes first, or of the one
// that this warms.
type cause struct {
	warms bool
	name  string
}

// A sight is all on which it depends whether a name of a type waits, but for the time, the
// name itself, and the names to which it refers.
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

// waitNoMore notes that nothing of u waits.
func (u *subscription) waitNoMore() { u.waiting = nil }

// rest lets rest what waits.
func (s *Session) rest(u *subscription, d *diff) {
	w := u.waiting
	if w.len() == 0 {
		u.waitNoMore()
		return
	}
	w.roused = nil
	w.rest = u.stated == ""
	if !w.rest { // what is stated may turn out to be all
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

// rouse makes what rests be looked at, if it may wait no longer.
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

// stir notes that something has moved of a name for which others may wait.
func (u *subscription) stir(name string) {
	if u.heeded {
		u.stirred = append(u.stirred, name)
	}
}

// stirEach does so for several names.
func (u *subscription) stirEach(names []string) {
	if u.heeded {
		u.stirred = append(u.stirred, names...)
	}
}

// stirAll does so for what a delivery carries; that the client answers is something, too.
func (u *subscription) stirAll(d *delivery) {
	if !u.heeded {
		return
	}
	u.stir("")
	for name := range d.each {
		u.stir(name)
	}
}

// spread makes what waits for the names of a type that have stirred be looked at.
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
			u.wake() // it costs less to look at all
			continue
		}
		s.findBehind(u)
		for _, n := range names {
			s.rouseBehind(u, cause{warms, n})
		}
		// What may refer to anything: of each the answer is the same.
		if first := s.sub(u.typ.After); len(w.behind[cause{}]) > 0 && first != nil && w.found != s.findAny(first, s.table(first.typ)) {
			s.rouseBehind(u, cause{})
		}
	}
}

func (s *Session) rouseBehind(u *subscription, a cause) {
	for _, n := range u.waiting.behind[a] {
		switch e := u.entry(n); {
		case !u.waiting.resting(n):
		case e == nil: // nothing of the table was told yet, and all of it will be
			u.wake()
			return
		default:
			u.mark(e)
		}
	}
}

// findBehind finds what rests behind what.
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

// putBehind lists a name behind all on which it depends whether that waits: see ready.
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

// wake lists all that waits as dirty again.
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

// listed yields what is dirty, and what rests.
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

// waitEnds is when something of u may wait no longer though nobody answers; zero: never.
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

// waitsSince is since when a name of u waits: if it did not, since now.
func (s *Session) waitsSince(u *subscription, name string) time.Time {
	if u.waiting != nil {
		if w, ok := u.waiting.waits[name]; ok {
			return w.since
		}
	}
	return s.now
}

// waitedFor reports whether something of another type waits for what u is told.
func (s *Session) waitedFor(u *subscription) bool {
	return slices.ContainsFunc(s.subs, func(v *subscription) bool { return v.waiting.len() > 0 && u.typ.Is(v.typ.After) })
}

// wait notes which of the names that were looked at wait, and since when.
func (s *Session) wait(u *subscription, d *diff) {
	w := u.waiting
	if w == nil && len(d.waiting) == 0 {
		return
	}
	if w == nil {
		w = &waiting{}
		u.waiting = w
	}
	if s.tellsWorld(u) && len(d.waiting) > 0 { // a world is told whole, or not yet
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
		if w.rest { // it may be looked at twice before it rests, for removals come last
			w.drop(n.name)
		}
		w.waits[n.name] = fresh[i]
		if w.behind != nil && !roused[n.name] {
			s.putBehind(u, n.name)
		}
		w.endsBy(fresh[i])
	}
	if w.ends.over() || w.patient.over() { // the first is over: when is the next?
		w.ends, w.patient = earliest{}, earliest{}
		for _, one := range w.waits {
			w.endsBy(one)
		}
	}
}

// waive tells of what has waited for a client that did not answer.
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

// drop makes a name wait no longer.
func (w *waiting) drop(name string) {
	one := w.waits[name]
	w.ends.less(one.until)
	if one.patient {
		w.patient.less(one.since)
	}
	delete(w.waits, name)
}

// endsBy counts when a wait may end.
func (w *waiting) endsBy(one wait) {
	w.ends.more(one.until)
	if one.patient {
		w.patient.more(one.since)
	}
}

// An earliest is the first of some times, and how many these are. The zero time counts not.
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

// over reports whether none of these is left, so that another is the first.
func (e *earliest) over() bool { return e.count == 0 && !e.at.IsZero() }
