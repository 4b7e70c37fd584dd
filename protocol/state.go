package protocol

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// What a session says of itself to whoever asks: how the client stands with each type, and
// with each name. It is read from the rooms, of which none is written to, and nothing is
// remembered for it: a session that nobody asks pays nothing.
//
// The session must have its view: ask between Change and Release. What it says holds until
// the next input, or until Responses are drained.

// A TypeState says how the client stands with one type.
type TypeState struct {
	Type       *xds.Type
	Wildcard   bool           // it subscribes to everything, or to everything under the names of the type above
	Names      int            // that it subscribes to
	Version    string         // of what the view has now, as a response would state it
	Unanswered []Message      // the oldest first
	Refused    []RefusedState // responses of which it has not accepted since what they told; the oldest first
	Waiting    int            // names that wait for another type
	Leaving    int            // names that the view has lost, and that are kept for now
	Due        bool           // something is to be told, but for what waits: now, or when the client has answered
}

// A Message is a response that the client has not answered.
type Message struct {
	Nonce, Version string
	Sent           time.Time
	Beat           bool // a heartbeat
}

// A RefusedState is a response that the client has refused. What it made of the names in it
// nobody knows: it may have applied some.
type RefusedState struct {
	Nonce  string // "": it was on an earlier stream
	Names  int    // of which it has not accepted anything since
	Retold bool   // they were, or will be, told again
}

// A Reason says why a client wants a name.
type Reason uint8

// Reasons. One that subscribes to a name in several ways has the first of these.
const (
	NotWanted    Reason = iota
	ByName              // it subscribes to it
	ByCollection        // to the collection that it belongs to
	ByAlias             // to an alias of it
	ByWildcard          // to everything
)

var reasons = [...]string{"", "name", "collection", "alias", "wildcard"}

// String is "name", "collection", "alias" or "wildcard", and "" of NotWanted.
func (r Reason) String() string { return reasons[r] }

// A NameStatus says how the client stands with one name.
type NameStatus uint8

// The states of a name.
const (
	StateUnwanted  NameStatus = iota // the client does not subscribe to it
	StateSynced                      // it has accepted what the view has
	StateAbsent                      // it does not exist, and the client was told so, as far as it can be told
	StateSent                        // what the client was told last is unanswered
	StateRefused                     // it was refused, and nothing is sent until something changes
	StateWaiting                     // it has to be told, and waits: for WaitsFor, or, if that is empty, until it is known whether it exists
	StateDue                         // it has to be told: when the client has answered, or its turn has come
	StateLingering                   // the view has lost it; it is kept since something refers to it (WaitsFor), or for a while
	StateUnknown                     // the client may have it from an earlier stream, and nobody knows what
)

var statuses = [...]string{"unwanted", "synced", "absent", "sent", "refused", "waiting", "due", "lingering", "unknown"}

func (s NameStatus) String() string { return statuses[s] }

// A NameState says how the client stands with one name of a type.
type NameState struct {
	Name  string
	Why   Reason
	By    string // ByAlias, ByCollection: the alias, or the collection
	Finds int    // no resource is called so, and it finds this many, which have states of their own
	State NameStatus

	// View is what the view has, wanted or not; Told what the client was told last, answered
	// or not; Held what it has accepted last, as far as is known. While something is unanswered
	// or refused, it may have that instead of Held. Nil: nothing. Of what a client states to
	// have from before, only the version may be known.
	View, Told, Held *xds.Stamp

	// Before is what the client may have besides, from an earlier stream, if nobody knows its content: only
	// its version, or, if that is empty, not even that. Nil: nothing.
	Before *xds.Stamp

	Nonce     string    // StateSent, StateRefused: of the response; "": it is not known any more
	RefusedIn string    // the nonce of the newest response that told of it and was refused, of which nothing was accepted since
	Since     time.Time // StateSent, StateWaiting, StateLingering: since when, zero if that is not known
	Until     time.Time // StateLingering: when it may leave though nobody answers; zero: never

	// StateWaiting: to what it refers that the client has to answer for first.
	// StateLingering: what refers to it, on the client. The name "*" stands for any of the type.
	WaitsFor []xds.Ref
}

// States returns how the client stands with the types that it has opened, in push order.
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
		Waiting: u.waiting.len(), Due: !u.idle() && s.owes(u, t),
	}
	for n := range u.leaving {
		if u.lingers(n) != nil {
			is.Leaving++
		}
	}
	if !u.idle() { // else no answer is owed
		is.Unanswered = s.messages(u)
	}
	for i := range u.refusals {
		r := &u.refusals[i]
		is.Refused = append(is.Refused, RefusedState{Nonce: nonceOf(r.nonce), Names: r.left, Retold: r.retold})
	}
	return is
}

// messages returns those that the client may still answer. In SotW it does so in order.
func (s *Session) messages(u *subscription) (all []Message) {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		for _, p := range d.parts {
			if p.fate == unanswered && (s.variant == xds.Delta || p.nonce > u.heard) {
				all = append(all, Message{Nonce: nonceOf(p.nonce), Version: d.version, Sent: d.sent, Beat: d.beats != nil})
			}
		}
	}
	return all
}

func nonceOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// NameStates yields how the client stands with all names of a type that it wants or may have,
// in the order of names.
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

// Refused returns the names that NameStates yields with a RefusedIn, in order. It looks at those that were
// refused and not at all that the client has.
func (s *Session) Refused(t *xds.Type) (names []string) {
	u := s.sub(t)
	if u == nil || len(u.refusals) == 0 {
		return nil
	}
	o := outlook{s: s, u: u, t: s.table(u.typ)}
	is := func(name string) bool {
		n := o.state(name)
		return n.RefusedIn != "" && !n.idle()
	}
	for i := range u.refusals {
		if u.refusals[i].nonce == 0 {
			continue
		}
		for name := range u.refusals[i].members {
			r := o.t.Lookup(name)
			wanted, _ := o.why(u.entry(name), name, r)
			if r != nil && u.shows(r) && wanted != NotWanted || is(name) {
				names = append(names, name)
			}
		}
	}
	if s.tellsWorld(u) { // which also has what is unanswered of those before
		for i := range u.deliveries {
			for name := range u.deliveries[i].each {
				if is(name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// NameState returns how the client stands with one name, wanted or not.
func (s *Session) NameState(t *xds.Type, name string) NameState {
	u := s.sub(t)
	if u == nil {
		n := NameState{Name: name}
		if r := s.table(t).Lookup(name); r != nil {
			n.View = r.Stamp
		}
		return n
	}
	o := outlook{s: s, u: u, t: s.table(u.typ)}
	return o.state(name)
}

// Resource returns what the view has under a name, nil if nothing: with its body, of which the
// session remembers none.
func (s *Session) Resource(t *xds.Type, name string) *xds.Resource { return s.table(t).Lookup(name) }

// idle reports whether there is nothing to list: what is not there, and only a wildcard
// covers, and what the client neither wants nor has.
func (n *NameState) idle() bool {
	return n.State == StateUnwanted || n.State == StateAbsent && n.Why == ByWildcard && n.Held == nil
}

// An outlook is what is looked at of one type, for the states of its names.
type outlook struct {
	s *Session
	u *subscription
	t *xds.Table

	holders []holder // what may refer to the type on the client; nil: not looked for yet
	looked  bool
}

// A holder is something that the client may have, and that the view has not.
type holder struct {
	typ *xds.Type
	st  *xds.Stamp
}

// names returns the names of which there may be anything to say, in order.
func (o *outlook) names() (all []string) {
	u := o.u
	for e := range u.entries() {
		all = append(all, e.name)
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
	also := u.remembered()
	for i := range u.deliveries {
		for name := range u.deliveries[i].each {
			also = append(also, name)
		}
	}
	for _, name := range also { // of a wildcard most are among those above: to look is less than to sort
		if !u.wildcard || o.t.Versions().Get(name) == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// state returns how the client stands with a name.
func (o *outlook) state(name string) NameState {
	s, u := o.s, o.u
	e, r := u.entry(name), o.t.Lookup(name)
	n := NameState{Name: name, Finds: u.matches[name].Len()}
	told := u.toldBy(e, name)
	if stands(told) {
		n.Told = told
	}
	if r != nil {
		n.View = r.Stamp
	}
	if !u.shows(r) {
		r = nil
	}
	n.Why, n.By = o.why(e, name, r)
	var d *delivery
	var p *part
	if stands(told) || !s.forsakes(u) { // else no response says so
		d, p = u.unanswered(name)
	}
	refused := o.refusedIn(name, d)
	n.RefusedIn = nonceOf(refused)
	if d != nil && d.last() < refused { // in SotW, an answer to the older one need not come any more
		d = nil
	}
	l, due := u.lingers(name), o.owes(e, name, told, r)
	has := n.Why != NotWanted || u.lapses(name)
	switch w, waits := u.waiting.of(name); {
	case waits && due:
		n.State, n.Since, n.WaitsFor = StateWaiting, w.since, o.waitsFor(name, r)
	case l != nil:
		n.State, n.Since, n.Until, n.WaitsFor = StateLingering, l.since, l.due, o.keepers(name, l)
	case due:
		n.State = StateDue
	case d != nil && has:
		// What only a delivery told that is not listed any more has no nonce.
		n.State, n.Since = StateSent, d.sent
		if p != nil && d.tells(name, d.carries(name)) {
			n.Nonce = nonceOf(p.nonce)
		}
	case (refused > 0 || u.refuses(name)) && has && (r != nil || stands(told) || !s.forsakes(u)): // here, or on an earlier stream; what is gone, and no response can say so, is absent
		n.State, n.Nonce = StateRefused, n.RefusedIn
	case n.Why == NotWanted:
		n.State = StateUnwanted
	case o.unknown(name, told):
		n.State = StateUnknown
	case n.Finds > 0:
		n.State = StateSynced
	case r == nil && s.undecided(u.typ, name) && (stands(told) || e == nil || !e.sent || e.again):
		n.State = StateWaiting
	case r == nil && (stands(told) || e != nil && e.named && !e.sent):
		n.State = StateDue // its absence is kept back for a while
	case r == nil:
		n.State = StateAbsent
	case differs(told, r):
		n.State = StateDue
	default:
		n.State = StateSynced
	}
	if has || l != nil || due {
		n.Held = o.held(name, told)
	}
	if i, ok := place(u.brought, name); ok {
		n.Before = u.brought[i]
	} else if u.vagueAll {
		n.Before = &xds.Stamp{Name: name}
	}
	return n
}

// why returns why the client wants a name, and by which other.
func (o *outlook) why(e *entry, name string, r *xds.Resource) (Reason, string) {
	u := o.u
	switch {
	case e != nil && e.named:
		return ByName, ""
	case e != nil && e.matched > 0:
		for by := range u.matchedBy(name) { // the collection first
			if by == u.typ.Collection(name) {
				return ByCollection, by
			}
			return ByAlias, by
		}
	case u.scopes[name]:
		return ByWildcard, ""
	case u.wildcard && (r != nil || o.t.Lookup(name) == nil): // what is on demand it does not cover
		return ByWildcard, ""
	}
	return NotWanted, ""
}

// owes reports whether something is to be told of a name.
func (o *outlook) owes(e *entry, name string, told *xds.Stamp, r *xds.Resource) bool {
	u := o.u
	if e != nil {
		is, gone := o.s.owed(u, o.t, e)
		return is != nil || gone
	}
	switch {
	case !u.wildcard:
		return false
	case r == nil:
		return stands(told)
	}
	return u.anew || differs(told, r)
}

// unknown reports whether the client may have a name from before, and nobody knows what of it.
// Of what there is nothing to tell it is forgotten after a while.
func (o *outlook) unknown(name string, told *xds.Stamp) bool {
	if o.u.hadBefore(name) && (stands(told) || o.s.now.Before(o.u.record.vague)) {
		return true
	}
	return o.u.vagueAll && !stands(told) && o.s.vague(o.u)
}

// refusedIn returns the nonce of the newest refusal that has a name; 0: none, or one of an
// earlier stream. A world has all that it was told of again, too: what is unanswered of the
// worlds before it, d, was refused with it.
func (o *outlook) refusedIn(name string, d *delivery) uint64 {
	world := o.s.tellsWorld(o.u) && d != nil
	for i := len(o.u.refusals) - 1; i >= 0; i-- {
		if r := &o.u.refusals[i]; r.has(name) || world && d.last() < r.nonce {
			return r.nonce
		}
	}
	return 0
}

// held returns what the client has accepted last of a name: what was in force before the
// first message that it has not, be it refused or unanswered.
func (o *outlook) held(name string, told *xds.Stamp) *xds.Stamp {
	u := o.u
	was, first := told, u.nonce+1
	for i := range u.refusals {
		if r := &u.refusals[i]; r.nonce < first && r.has(name) {
			was, first = r.before(name), r.nonce
		}
	}
	for i := range u.deliveries {
		d := &u.deliveries[i]
		is := d.carries(name)
		if !stands(is) && (is == nil || o.s.forsakes(u)) {
			continue // by nothing is it told that it is lost
		}
		if d.beats == nil && d.parts[0].nonce < first && d.open(name, is) {
			was, first = d.before(name), d.parts[0].nonce
		}
	}
	switch orphan := u.orphans[name]; {
	case o.unknown(name, told):
		return nil
	case stands(was):
		return was
	default:
		return orphan // nil: none
	}
}

// waitsFor returns what a name waits for. What is told whole waits for what any of it does.
func (o *outlook) waitsFor(name string, r *xds.Resource) []xds.Ref {
	if r == nil {
		return nil
	}
	return o.s.lacks(o.u, r)
}

// keepers returns what refers, on the client, to a name that is about to leave.
func (o *outlook) keepers(name string, l *leaver) (all []xds.Ref) {
	if !o.looked {
		o.looked, o.holders = true, o.s.holders(o.u.typ)
	}
	var also []string
	if c := o.u.typ.Collection(name); c != "" {
		also = append(also, c)
	}
	if l.body != nil {
		also = append(also, l.body.Aliases...)
	}
	for _, h := range o.holders {
		ref := xds.Ref{Type: h.typ, Name: cmp.Or(h.st.Name, xds.Wildcard)}
		if h.st.MayRefer(o.u.typ, name, also...) && !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	slices.SortFunc(all, func(a, b xds.Ref) int { // in what order it is held is no matter
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// holders returns what the client may have, and the view has not, of the types that may refer
// to a type.
func (s *Session) holders(t *xds.Type) (all []holder) {
	if s.only != nil {
		return nil // it hears nothing of them
	}
	for _, by := range t.ReferredBy() {
		u := s.sub(by)
		if u == nil {
			if s.mayOpen() {
				all = append(all, holder{by, &xds.Stamp{}})
			}
			continue
		}
		s.mayHold(u, func(st *xds.Stamp, _ bool) bool {
			all = append(all, holder{by, st})
			return true
		})
	}
	return all
}
