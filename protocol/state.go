package protocol

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// This file reports the state of each type and each name of a session. The code only reads the
// rooms and stores nothing, so it has no cost until a caller asks for a state. Terms: see doc.go.
//
// The session must have its view: call these functions between Change and Release. A result is
// valid until the next input, or until Responses are drained.

// A TypeState is the state of one type on a stream.
type TypeState struct {
	Type       *xds.Type
	Wildcard   bool           // subscribed to everything, or (VHDS) to everything under the subscribed names of the parent type
	Names      int            // number of subscribed names
	Version    string         // version of the current view, as in a response
	Unanswered []Message      // oldest first
	Refused    []RefusedState // responses whose names the client has not accepted since, oldest first
	Refusing   bool           // the client refuses a resource (HEAL-5); a retry or a successor may be in flight
	Waiting    int            // number of names that wait for another type
	Leaving    int            // number of names that are removed from the view and still kept
	Due        bool           // something is to be sent now, or as soon as the client answers; waiting names do not count
}

// A Message is a response without an answer.
type Message struct {
	Nonce, Version string
	Sent           time.Time
	Beat           bool // a heartbeat
}

// A RefusedState is a response that the client has refused. The client may have applied some of its
// names.
type RefusedState struct {
	Nonce  string // empty: the response was on an earlier stream
	Names  int    // names that the client has not accepted since
	Retold bool   // all of these names were sent again, or will be, because one of them has changed
}

// A Reason is the kind of subscription by which a client wants a name.
type Reason uint8

// The reasons. If several apply, the first in this list is reported.
const (
	NotWanted    Reason = iota
	ByName              // the client subscribes to the name
	ByCollection        // the client subscribes to the collection of the name
	ByAlias             // the client subscribes to an alias of the resource
	ByWildcard          // the client subscribes to the wildcard
)

var reasons = [...]string{"", "name", "collection", "alias", "wildcard"}

// String returns "name", "collection", "alias" or "wildcard"; empty for NotWanted.
func (r Reason) String() string { return reasons[r] }

// A NameStatus is the state of one name on a stream.
type NameStatus uint8

// The states of a name.
const (
	StateUnwanted  NameStatus = iota // the client does not want the name
	StateSynced                      // the client has accepted the content of the view
	StateAbsent                      // the name does not exist; the client was told so, if the protocol can express that
	StateSent                        // the last response with the name is unanswered
	StateRefused                     // the client refused the resource; nothing is sent until the view or the subscription changes
	StateWaiting                     // to be sent after the client has answered for WaitsFor; empty: the view still looks for the name
	StateDue                         // to be sent after an answer of the client, or in this step
	StateLingering                   // removed from the view, but kept because the resources in WaitsFor refer to it, or for the grace period
	StateUnknown                     // the client may hold the resource from an earlier stream, with unknown content
)

var statuses = [...]string{"unwanted", "synced", "absent", "sent", "refused", "waiting", "due", "lingering", "unknown"}

func (s NameStatus) String() string { return statuses[s] }

// A NameState is the state of one name of a type on a stream.
type NameState struct {
	Name string
	Why  Reason
	By   string // ByAlias, ByCollection: the alias or the collection

	// Finds is the number of resources that the name matches as an alias or a collection. Each of
	// these resources has its own state.
	Finds int

	State NameStatus

	// View is the state of the name in the view, whether the client wants the name or not. Told is
	// the state that was sent last, answered or not. Held is the state that the client accepted
	// last, if known. The client may hold an unanswered or refused state instead. Nil: no such
	// state. For a state from an earlier stream, perhaps only the version is known.
	View, Told, Held *xds.Stamp

	// Before is a state from an earlier stream with unknown content, which the client may also have
	// accepted. Only the version is set; an empty version is unknown, too. Nil: no such state.
	Before *xds.Stamp

	Nonce     string    // StateSent, StateRefused: nonce of the response; empty: no longer known
	RefusedIn string    // nonce of the newest refused response with the name, if the client has not accepted a newer state
	RetryAt   time.Time // time of the next retry of the refused name (HEAL-2); zero: none is scheduled
	Since     time.Time // StateSent, StateWaiting, StateLingering: the time when this state began; zero if unknown
	Until     time.Time // StateLingering: when the resource is removed even if the client does not answer; zero: never

	// Because is the reason why a resource in WaitsFor delays this one, for people, like "the client refused a newer
	// state". StateWaiting, StateLingering; empty: unknown.
	Because string

	// StateWaiting: the resources for which the client must answer first: referenced by this one or by
	// another one of the same full state. Or the listeners of which this one takes an address (HEAL-4).
	// StateLingering: the resources on the client that refer to the name. The name "*" means any
	// resource of the type.
	WaitsFor []xds.Ref
}

// States returns the states of the types that the client has opened, in push order.
func (s *Session) States() []TypeState {
	all := make([]TypeState, len(s.subs))
	for i, u := range s.subs {
		all[i] = s.typeState(u)
	}
	return all
}

func (s *Session) typeState(u *subscription) TypeState {
	t := s.table(u.typ)
	is := TypeState{
		Type: u.typ, Wildcard: u.wildcard || u.scopes != nil, Names: int(u.named), Version: s.version(u, t),
		Refusing: u.refusing != nil, Waiting: u.waiting.len(), Due: !u.idle() && s.owesAny(u, t),
	}
	for n := range u.leaving {
		if u.lingers(n) != nil {
			is.Leaving++
		}
	}
	if !u.idle() { // a client without subscriptions need not answer
		is.Unanswered = s.messages(u)
	}
	for i := range u.refusals {
		r := &u.refusals[i]
		is.Refused = append(is.Refused, RefusedState{Nonce: nonceOf(r.nonce), Names: r.left, Retold: r.retold && !r.retried && len(r.apart) == 0})
	}
	return is
}

// messages returns the messages that the client may still answer.
func (s *Session) messages(u *subscription) (all []Message) {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		for _, p := range d.parts {
			if s.mayAnswer(u, p) {
				all = append(all, Message{Nonce: nonceOf(p.nonce), Version: d.version, Sent: d.sent, Beat: d.beats != nil})
			}
		}
	}
	return all
}

// NameStates yields the states of all names of a type that the client wants or may hold, in the
// order of names.
func (s *Session) NameStates(t *xds.Type) iter.Seq[NameState] {
	return func(yield func(NameState) bool) {
		u := s.sub(t)
		if u == nil {
			return
		}
		o := outlook{s: s, u: u, t: s.table(u.typ)}
		for _, name := range o.names() {
			if n := o.state(name); !n.idle() && !yield(n) {
				return
			}
		}
	}
}

// Refused returns the names for which NameStates yields a RefusedIn, in order. The cost is the
// number of refused names, not the number of all names.
func (s *Session) Refused(t *xds.Type) (names []string) {
	u := s.sub(t)
	if u == nil || len(u.refusals) == 0 {
		return nil
	}
	names = u.refusedNames("")
	if s.tellsWorld(u) { // a refused full state also contains the unanswered names of earlier responses
		names = append(names, u.inFlight()...)
	}
	slices.Sort(names)
	o := outlook{s: s, u: u, t: s.table(u.typ)}
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		n := o.state(name)
		return n.RefusedIn == "" || n.idle()
	})
}

// inFlight returns the names of the responses in flight. A name may be in several of them.
func (u *subscription) inFlight() (names []string) {
	for i := range u.deliveries {
		for name := range u.deliveries[i].Each {
			names = append(names, name)
		}
	}
	return names
}

// NameState returns the state of one name, whether the client wants it or not.
func (s *Session) NameState(t *xds.Type, name string) NameState {
	u := s.sub(t)
	if u == nil {
		n := NameState{Name: name}
		n.compare(s.table(t).Lookup(name), absent)
		return n
	}
	o := outlook{s: s, u: u, t: s.table(u.typ)}
	return o.state(name)
}

// Resource returns the resource of the view with this name, or nil. The result includes the body,
// which the session itself does not keep.
func (s *Session) Resource(t *xds.Type, name string) *xds.Resource { return s.table(t).Lookup(name) }

// idle reports whether NameStates skips the name. It skips a name that the client neither wants nor
// holds, and a name that does not exist and that only a wildcard covers.
func (n *NameState) idle() bool {
	return n.State == StateUnwanted || n.State == StateAbsent && n.Why == ByWildcard && n.Held == nil
}

// An outlook computes the states of the names of one type.
type outlook struct {
	s *Session
	u *subscription
	t *xds.Table

	holders []holder // resources on the client that may refer to the type; valid if looked is set
	looked  bool

	whole  []xds.Ref // references for which the full state waits; valid if waited is set
	waited bool
}

// A holder is a resource that the client may hold and the view no longer has.
type holder struct {
	typ *xds.Type
	st  *xds.Stamp
}

// names returns all names that may have a state to report, in order.
func (o *outlook) names() (all []string) {
	u := o.u
	for e := range u.Entries() {
		all = append(all, e.Name)
	}
	if u.wildcard {
		for st := range o.t.Versions().All() {
			all = append(all, st.Name)
		}
		for was, is := range o.t.Versions().Since(u.base) {
			if is == nil {
				all = append(all, was.Name)
			}
		}
	}
	for _, name := range slices.Concat(u.remembered(), u.inFlight()) { // the wildcard's table already has most of these names, and a lookup is cheaper than to sort them
		if !u.wildcard || o.t.Versions().Get(name) == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// state returns the state of a name: what the session does next for the name or, if that is nothing,
// the answer to the last response with the name (answer.go).
func (o *outlook) state(name string) NameState {
	u := o.u
	e, r := u.Entry(name), o.t.Lookup(name)
	told := u.toldBy(e, name)
	n := NameState{Name: name, Finds: u.matches[name].Len(), RetryAt: u.retryOf(name), Before: o.before(name)}
	n.compare(r, told)
	if !u.shows(r) {
		r = nil
	}
	n.Why, n.By = o.why(e, name, r)
	has := n.Why != NotWanted || u.stillHeld(name)
	d, p, refusedIn, answer := u.answer(e, name)
	n.RefusedIn = nonceOf(refusedIn)
	l, due := u.lingers(name), o.owes(e, name, told, r)
	w, waits := u.waiting.of(name)
	switch {
	case waits && due:
		n.State, n.Since, n.WaitsFor, n.Because = StateWaiting, w.since, o.waitsFor(r), w.why.String()
	case l != nil:
		n.State, n.Since, n.Until, n.WaitsFor, n.Because = StateLingering, l.since, l.until, o.keepers(name, l), l.why.String()
	case due:
		n.State = StateDue
	case has && answer == names.InFlight:
		n.State, n.Since, n.Nonce = StateSent, d.sent, nonceOf(p.nonce)
	case has && answer == names.Refused && !o.isUnreported(told):
		n.State, n.Nonce = StateRefused, n.RefusedIn
	default:
		n.State = o.settled(&n, e, r, told)
	}
	if has || n.State != StateUnwanted {
		n.Held = o.held(name, told)
	}
	return n
}

// isUnreported reports whether a name was told to be absent, and SotW cannot report that.
func (o *outlook) isUnreported(told *xds.Stamp) bool { return !stands(told) && o.s.forsakes(o.u) }

// compare sets the states of the name in the view and in the last response with the name.
func (n *NameState) compare(r *xds.Resource, told *xds.Stamp) {
	if r != nil {
		n.View = r.Stamp
	}
	if stands(told) {
		n.Told = told
	}
}

// settled returns the state of a name for which nothing is in flight, refused, or to be sent by its
// entry.
func (o *outlook) settled(n *NameState, e *entry, r *xds.Resource, told *xds.Stamp) NameStatus {
	switch {
	case n.Why == NotWanted:
		return StateUnwanted
	case o.unknown(n.Name, told):
		return StateUnknown
	case n.Finds > 0:
		return StateSynced
	case r == nil:
		return o.missing(n.Name, e, told)
	case differs(told, r):
		return StateDue
	}
	return StateSynced
}

// missing returns the state of a wanted name without a resource in the view.
func (o *outlook) missing(name string, e *entry, told *xds.Stamp) NameStatus {
	answered := e != nil && !e.Untold() && !e.Again
	switch {
	case o.s.undecided(o.u.typ, name) && (stands(told) || !answered):
		return StateWaiting
	case stands(told), e != nil && e.Named && e.Untold():
		return StateDue // the absence of the name is not reported yet (DELTA-7)
	}
	return StateAbsent
}

// before returns a state of a name from an earlier stream, with unknown content; nil: none.
func (o *outlook) before(name string) *xds.Stamp {
	if i, ok := place(o.u.brought, name); ok {
		return o.u.brought[i]
	}
	if o.u.vagueAll && !o.u.adopted {
		return &xds.Stamp{Name: name}
	}
	return nil
}

// why returns the reason why the client wants a name, and the alias or collection for it.
func (o *outlook) why(e *entry, name string, r *xds.Resource) (Reason, string) {
	u := o.u
	switch {
	case e != nil && e.Named:
		return ByName, ""
	case e != nil && e.Matched > 0:
		by := u.matchedBy(name)[0]
		if by == u.typ.Collection(name) {
			return ByCollection, by
		}
		return ByAlias, by
	case u.scopes[name]:
		return ByWildcard, ""
	case u.wildcard && (r != nil || o.t.Lookup(name) == nil): // a wildcard does not cover resources on demand
		return ByWildcard, ""
	}
	return NotWanted, ""
}

// owes reports whether something is to be sent for a name.
func (o *outlook) owes(e *entry, name string, told *xds.Stamp, r *xds.Resource) bool {
	u := o.u
	switch {
	case e != nil:
		return o.s.owes(u, o.t, e)
	case !u.wildcard:
		return false
	case r == nil:
		return stands(told)
	}
	return u.Anew || differs(told, r)
}

// unknown reports whether the client may hold a name from an earlier stream with unknown content.
// If nothing is to be sent for the name, the session forgets the name at the time record.vague.
func (o *outlook) unknown(name string, told *xds.Stamp) bool {
	if o.u.hadBefore(name) && (stands(told) || o.s.now.Before(o.u.record.vague)) {
		return true
	}
	return o.u.vagueAll && !stands(told) && o.s.vague(o.u)
}

// held returns the state of a name that the client accepted last. That is the state before the
// first message with the name that is refused or unanswered.
func (o *outlook) held(name string, told *xds.Stamp) *xds.Stamp {
	u := o.u
	was, first := told, u.nonce+1
	for i := range u.refusals {
		if r := &u.refusals[i]; r.nonce < first && r.has(name) {
			was, first = r.Before(name), r.nonce
		}
	}
	for i := range u.deliveries {
		d := &u.deliveries[i]
		is := d.Carries(name)
		if !stands(is) && (is == nil || o.s.forsakes(u)) {
			continue // SotW does not report that a name is removed
		}
		if d.beats == nil && d.first() < first && d.open(name, is) {
			was, first = d.Before(name), d.first()
		}
	}
	switch left := u.leftovers[name].stamp; {
	case o.unknown(name, told):
		return nil
	case stands(was):
		return was
	case left == nil || u.hasRefused(name, left): // the client has accepted no version of a refused leftover
		return nil
	default:
		return left
	}
}

// waitsFor returns the references for which a name waits. A name without such a reference waits for others of its
// type: for listeners that release its address (HEAL-4), or, as a full state waits as a whole, for their references.
func (o *outlook) waitsFor(r *xds.Resource) (refs []xds.Ref) {
	if r == nil {
		return nil
	}
	refs = o.s.lacks(o.u, r)
	switch {
	case len(refs) > 0:
		return refs
	case o.s.tellsWorld(o.u):
		return o.wholeWaitsFor()
	}
	for _, name := range slices.Sorted(o.u.waiting.all) {
		if o.u.frees(o.t, name, r) {
			refs = append(refs, xds.Ref{Type: o.u.typ, Name: name})
		}
	}
	return refs
}

// wholeWaitsFor returns the references of the first name that makes a full state wait.
func (o *outlook) wholeWaitsFor() []xds.Ref {
	if !o.waited {
		o.waited = true
		for _, name := range slices.Sorted(o.u.waiting.all) {
			if r := o.t.Lookup(name); r != nil && len(o.whole) == 0 {
				o.whole = o.s.lacks(o.u, r)
			}
		}
	}
	return o.whole
}

// keepers returns the resources on the client that refer to a kept name.
func (o *outlook) keepers(name string, l *leaver) (all []xds.Ref) {
	if !o.looked {
		o.looked = true
		o.s.holders(o.u.typ, func(from origin, st *xds.Stamp) { o.holders = append(o.holders, holder{from.typ, st}) })
	}
	called := l.called(o.u.typ, name)
	for _, h := range o.holders {
		ref := xds.Ref{Type: h.typ, Name: cmp.Or(h.st.Name, xds.Wildcard)}
		if h.st.MayRefer(o.u.typ, name, called...) && !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	slices.SortFunc(all, func(a, b xds.Ref) int { // the order of mayHold is random
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Name, b.Name))
	})
	return all
}
