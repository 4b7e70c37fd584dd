package protocol

import (
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// A waiting is the set of names of one type that wait for another type, or for others of their type
// (ADS-10). Terms: see doc.go.
//
// A name that must wait is then parked: the name is not dirty and is not evaluated in each step. It
// is evaluated again in three cases: the name is touched, a name to which it refers is noted
// (package names), or a condition of all waits changes (inputs). So the cost of a request depends on the names in it, not
// on all waiting names.
//
// Invariant: ends and patient are the earliest times in waits, or zero while the type is blocked.
// While parked is set, waits is not empty, and this type and the types for which the names wait are
// watched.
type waiting struct {
	waits   map[string]wait
	ends    earliest // when the first name may stop waiting without an answer
	patient earliest // start of the oldest wait that ends when the client has been silent for too long

	parked     bool                    // no waiting name is evaluated, except dirty ones
	fewer      bool                    // a name may have left since the names were evaluated
	seen       inputs                  // the inputs when the names were evaluated
	found      anyComing               // the result of mayAnyCome at that time
	dependents map[dependency][]string // waiting names by dependency; may include names that no longer wait; nil: not computed
	put        int                     // number of names added to dependents
}

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

// parks reports whether no waiting name is evaluated, except dirty ones.
func (w *waiting) parks() bool { return w != nil && w.parked }

// dropParked ends the wait of a name for which nothing is to be sent any more, or whose entry is gone.
func (w *waiting) dropParked(name string) {
	if _, waits := w.of(name); waits && w.parks() {
		w.fewer = true
		w.drop(name)
	}
}

// endWaits is called after dropParked.
func (s *Session) endWaits(u *subscription) {
	switch w := u.waiting; {
	case !w.parks():
	case len(w.waits) == 0:
		u.waitNoMore()
	case w.fewer && s.waitsTogether(u): // ADS-2: the others may have waited for the dropped name alone
		u.recheckAll()
	default:
		w.limit()
	}
}

// isParked reports whether a name waits and is not evaluated.
func (u *subscription) isParked(name string) bool {
	_, waits := u.waiting.of(name)
	e := u.Entry(name)
	return waits && u.waiting.parks() && (e == nil || !e.Dirty)
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

// A dependency is a name for which names of another type may wait: a cluster, or with warms
// set an assignment that a cluster needs to become warm (see xds.Type, After and Warms). The zero
// dependency means any name.
type dependency struct {
	warms bool
	name  string
}

// Inputs are the conditions on which all waits of a type depend. They leave out the time, the
// waiting name itself, and the names to which the waiting name refers.
type inputs struct {
	view, first, warms uint64
	siblings           uint64
	stuck, wildcard    bool
	base               *xds.Versions
}

func (s *Session) inputs(u *subscription) inputs {
	is := inputs{view: s.views, wildcard: u.wildcard, base: u.base}
	if first := s.other(u.first()); first != nil {
		is.first, is.stuck = first.Epoch, first.stuck()
	}
	if s.siblings != nil {
		is.siblings = s.siblings.epoch
	}
	if w := u.first().Warms; w != nil {
		if eds := s.sub(w); eds != nil {
			is.warms = eds.Epoch // of siblings, see Siblings.record
		}
	}
	return is
}

// waitNoMore records that no name of u waits.
func (u *subscription) waitNoMore() { u.waiting = nil }

// park parks all waiting names of u: they are not evaluated until a change or a time limit.
func (s *Session) park(u *subscription, bound bool, any anyComing) {
	w := u.waiting
	if w.len() == 0 {
		u.waitNoMore()
		return
	}
	w.parked = u.stated == "" && !bound
	if !w.parked {
		// The version that the client stated may still prove equal to the full state, so nothing is parked. A name
		// that waits for an address is not parked, because no type that it refers to ends its wait.
		w.dependents = nil
		return
	}
	w.seen = s.inputs(u)
	if any.known {
		w.found = any
	}
	for _, t := range []*xds.Type{u.first(), u.first().Warms} {
		if t == nil {
			continue
		}
		if v := s.sub(t); v != nil {
			v.Watch()
		}
	}
	u.Untouch(func(name string) bool { _, waits := w.waits[name]; return waits })
	u.Watch()
}

// recheck re-evaluates waiting names whose dependencies changed or whose time limit has passed.
func (s *Session) recheck(u *subscription) {
	for _, v := range s.subs {
		s.recheckDependents(v)
	}
	if !u.waiting.parks() {
		return
	}
	if ends := s.waitEnds(u); u.waiting.seen != s.inputs(u) || !ends.IsZero() && !s.now.Before(ends) {
		u.recheckAll()
	}
}

// recheckDependents hands the noted names of the type v to the names that wait for them.
func (s *Session) recheckDependents(v *subscription) {
	if !v.Watched || len(v.Noted) == 0 {
		return
	}
	names := v.TakeNoted()
	if v.waiting.parks() {
		v.Watch()
	}
	s.stir(v, names)
	s.evaluate(v, names)
	for _, u := range s.waiters() {
		w := u.waiting
		if !w.parks() {
			continue
		}
		first, warms := v.typ.Is(u.first()), v.typ.Is(u.first().Warms)
		if !first && !warms {
			continue
		}
		v.Watch()
		if len(names) > len(w.waits) {
			u.recheckAll() // it costs less to evaluate all waiting names
			continue
		}
		s.findDependents(u)
		for _, n := range names {
			s.evaluate(u, w.dependents[dependency{warms, n}])
		}
		// The result of mayAnyCome is the same for all names that may refer to anything.
		if first := s.other(u.first()); len(w.dependents[dependency{}]) > 0 && first != nil && w.found.condition != s.mayAnyCome(first) {
			s.evaluate(u, w.dependents[dependency{}])
		}
	}
}

// evaluate makes the parked names among some names dirty.
func (s *Session) evaluate(u *subscription, names []string) {
	for _, n := range names {
		switch e := u.Entry(n); {
		case !u.isParked(n):
		case e != nil:
			u.Touch(e)
		case u.wildcard: // nothing of the table was sent yet, so the table will be sent as a whole
			u.recheckAll()
			return
		default: // the client has unsubscribed
			u.waiting.dropParked(n)
		}
	}
	s.endWaits(u)
}

// findDependents computes dependents, or computes it again if it has grown too large.
func (s *Session) findDependents(u *subscription) {
	w := u.waiting
	if w.dependents != nil && w.put <= 2*len(w.waits)+16 {
		return
	}
	w.dependents, w.put = map[dependency][]string{}, 0
	for n := range w.waits {
		s.addDependent(u, n)
	}
}

// addDependent adds a waiting name to dependents, under each dependency of its wait (see mustWait).
func (s *Session) addDependent(u *subscription, name string) {
	u.waiting.put++
	if r := s.table(u.typ).Lookup(name); r != nil {
		s.addDependentBody(u, r)
	}
	if l := u.Kept(name); l != nil && l.Body != nil {
		s.addDependentBody(u, l.Body)
	}
}

func (s *Session) addDependentBody(u *subscription, r *xds.Resource) {
	put := func(a dependency) {
		if at := u.waiting.dependents[a]; len(at) == 0 || at[len(at)-1] != r.Name {
			u.waiting.dependents[a] = append(at, r.Name)
		}
	}
	if r.Refs == nil {
		put(dependency{})
	}
	t, warms := s.table(u.first()), u.first().Warms
	for _, ref := range r.Refs {
		if ref.Type.Is(u.first()) && ref.Name == xds.Wildcard {
			put(dependency{})
		}
	}
	for name := range s.reached(t, u.first(), r) {
		put(dependency{name: name})
		c := t.Lookup(name)
		if c == nil || warms == nil {
			continue
		}
		for _, ref := range c.Refs {
			if ref.Type.Is(warms) {
				put(dependency{true, ref.Name})
			}
		}
	}
}

// recheckAll makes all waiting names dirty again.
func (u *subscription) recheckAll() {
	w := u.waiting
	if !w.parks() {
		return
	}
	w.parked, w.dependents = false, nil
	for n := range w.waits {
		if e := u.Entry(n); e != nil {
			u.Touch(e)
		}
	}
}

// parked returns the names that wait and are not dirty, in no order.
func (u *subscription) parked() []string {
	if !u.waiting.parks() {
		return nil
	}
	names := make([]string, 0, len(u.waiting.waits))
	for n := range u.waiting.waits {
		if e := u.Entry(n); e == nil || !e.Dirty {
			names = append(names, n)
		}
	}
	return names
}

// waitEnds returns the time at which the first name of u may stop waiting without an answer; zero:
// never.
func (s *Session) waitEnds(u *subscription) time.Time {
	w := u.waiting
	if w == nil {
		return time.Time{}
	}
	ends := w.ends.at
	if first := s.other(u.first()); !w.patient.at.IsZero() && first != nil && first.unacked {
		ends = sooner(ends, first.silentUntil(delay.Unanswered, w.patient.at))
	}
	return ends
}

// waitsSince returns the start of a name's wait, or the present time if the name does not wait yet.
func (s *Session) waitsSince(u *subscription, name string) time.Time {
	if w, waits := u.waiting.of(name); waits {
		return w.since
	}
	return s.now
}

// waitedFor reports whether a name waits for u.
func (s *Session) waitedFor(u *subscription) bool {
	for _, v := range s.subs {
		if v.waiting.len() > 0 && u.typ.Is(v.first()) {
			return true
		}
	}
	return false
}

// wait records which of the evaluated names must wait, and since when. The other evaluated resources are sent.
func (s *Session) wait(u *subscription, must []waiter, sent []*xds.Resource) {
	w := u.waiting
	if w == nil && len(must) == 0 {
		return
	}
	if w == nil {
		w = &waiting{}
		u.waiting = w
	}
	s.waive(u, sent)
	fresh := make([]wait, len(must))
	for i, n := range must {
		fresh[i] = wait{s.waitsSince(u, n.name), n.condition}
	}
	if !w.parked {
		*w = waiting{found: w.found}
	}
	known := map[string]bool{}  // names that are in dependents already
	for _, n := range u.Dirty { // evaluated again
		if _, waits := w.waits[n]; waits {
			known[n] = true
			w.drop(n)
		}
	}
	if w.waits == nil {
		w.waits = make(map[string]wait, len(must))
	}
	for i, n := range must {
		if w.parked { // removals are sent last, so a name may be evaluated twice before it is parked
			w.drop(n.name)
		}
		w.waits[n.name] = fresh[i]
		if w.dependents != nil && !known[n.name] {
			s.addDependent(u, n.name)
		}
		w.endsBy(fresh[i])
	}
	w.limit()
}

// limit finds the earliest times again if they have left the set.
func (w *waiting) limit() {
	if !w.ends.over() && !w.patient.over() {
		return
	}
	w.ends, w.patient = earliest{}, earliest{}
	for _, one := range w.waits {
		w.endsBy(one)
	}
}

// waive reports an event for each name whose wait has ended because the client was silent for too
// long.
func (s *Session) waive(u *subscription, sent []*xds.Resource) {
	first := s.other(u.first())
	for _, r := range sent {
		if _, waited := u.waiting.of(r.Name); !waited {
			continue
		}
		over := first == nil && !s.opensLater(u.first()).holds || first != nil && !s.canWait(u, first, r.Name).holds
		if over {
			s.event(Event{Kind: Waived, Type: u.typ, By: u.first(), Name: r.Name})
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
