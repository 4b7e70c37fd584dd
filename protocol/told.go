package protocol

import (
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// A demand answers what the client asks for. The sent states know the subscription only by these
// questions.
type demand interface {
	idle() bool                     // the client subscribes to nothing
	covers(name string) bool        // the client wants the name; the wildcard counts
	wants(e *entry) bool            // the client wants the name of an entry; the wildcard does not count
	shows(r *xds.Resource) bool     // the subscription covers a resource of the view
	matchesOthers(name string) bool // the name matches other resources, which are sent instead
	keepsMember(name string) bool   // a subscription may cover a name that its collection matched
}

// A leftover is a resource that the client still holds, although it is not to have it any more.
type leftover struct {
	why   whyHeld
	stamp *xds.Stamp // cannotRemove: the state that the client holds; the told state is absent
}

// A whyHeld is the reason of a leftover.
type whyHeld uint8

const (
	_ whyHeld = iota

	// Delta: no wanted name matches the resource any more, for another reason than an unsubscription
	// of the client. The client holds it until it is told the removal, even if it unsubscribes from
	// other names that cover it. The name has an entry.
	unmatched

	// SotW, types without full state: the view has lost the resource. The client holds it until it
	// unsubscribes, for "the API provides no mechanism" to remove it (SOTW-9).
	cannotRemove
)

// A record holds the states of one type that the client was told, and its answers.
//
// A state counts as told when it is sent. The table base has the states that a wildcard
// subscription was told. The entries of single names override base. Deliveries have states that the
// client has not accepted yet, and refusals have states that it has refused. The client may also
// hold the states before those. Terms: see doc.go.
//
// Invariant: each listed delivery has a message without an answer of its own. heard is at most
// nonce.
type record struct {
	demand demand

	base *xds.Versions // the table that the wildcard subscription was told; nil without a wildcard

	deliveries []delivery // unanswered, oldest first, at most maxListed
	refusals   []refusal  // oldest first, at most maxRefusals
	nonce      uint64     // nonce of the newest message; zero: no message was sent
	heard      uint64     // the newest answered nonce
	refusing   *refusing  // nil: the client has sent no NACK on this stream, or its refusal has ended
	silent     time.Time  // time of the last answer, or of the first response that needs an answer; only used while unacked

	leftovers map[string]leftover

	// Names that get no heartbeats, with the time of the last response that has the name. Either
	// the ACK of this response is late, or the response came when a heartbeat was due.
	unfed map[string]time.Time

	stated  string // the version that the client states (SotW, full state), until something is sent
	unacked bool   // the newest delivery is unanswered; nonce is its newest nonce

	// The client has stated a version that this server does not know, of a full-state type. Nothing
	// was sent to the client yet.
	elsewhere bool

	// The client holds resources from an earlier stream with unknown content. Their names are in
	// brought; with vagueAll set, it may hold any name. A name leaves brought when the client
	// accepts it or unsubscribes from it. The field vague is a time: from then on, the names for which the
	// session has nothing to send no longer count.
	vagueAll bool
	vague    time.Time
	brought  []*xds.Stamp // sorted by name, each name once, as in World.Others; Worlds share this slice, so it is replaced and never changed

	// The content of the stated version is known, of a full-state type. So vagueAll is only about parts of refused
	// responses, and not about accepted ones.
	adopted bool
}

// state sets the version that the client states; "": no version, or a version for another
// subscription.
func (r *record) state(version string) { r.stated = version }

// rebase sets the table that the wildcard subscription was told; nil: no table.
func (r *record) rebase(to *xds.Versions) { r.base = to }

// addLeftover records that the client still holds a resource, and why.
func (r *record) addLeftover(name string, l leftover) {
	if r.leftovers == nil {
		r.leftovers = map[string]leftover{}
	}
	r.leftovers[name] = l
}

// dropLeftover undoes addLeftover for this reason: the resource is wanted, sent or removed again, or
// the client has dropped it.
func (r *record) dropLeftover(name string, why whyHeld) {
	if r.isLeftover(name, why) {
		delete(r.leftovers, name)
	}
}

// dropLeftovers undoes addLeftover for all names.
func (r *record) dropLeftovers() { r.leftovers = nil }

// isLeftover reports whether the client still holds a resource for this reason.
func (r *record) isLeftover(name string, why whyHeld) bool { return r.leftovers[name].why == why }

// stillHeld reports whether the client may hold a resource that none of its subscriptions matches
// any more: the removal of the resource is unsent, unanswered or refused. For a client without
// subscriptions, only an unsent removal counts.
func (u *subscription) stillHeld(name string) bool {
	if unsent := u.isLeftover(name, unmatched); unsent || u.demand.idle() {
		return unsent
	}
	for d := range u.underWay() {
		if it := d.Find(name); it != nil && it.Lapsed && d.open(name, it.Is) {
			return true
		}
	}
	return slices.ContainsFunc(u.refusals, func(r refusal) bool {
		it := r.Find(name)
		return it != nil && it.Lapsed && r.has(name) && (!it.Member || u.demand.keepsMember(name))
	})
}

// resumed records whether the server knows the version that the client states (see elsewhere and adopted).
func (r *record) resumed(elsewhere, adopted bool) { r.elsewhere, r.adopted = elsewhere, adopted }

// doubt records that the client may hold names with unknown content (see vagueAll).
func (r *record) doubt(until time.Time, all bool) { r.vague, r.vagueAll = until, all }

// fed records that a name gets a heartbeat, or does not need any.
func (r *record) fed(name string) { delete(r.unfed, name) }

// starve records that a name, which was sent at the time told, gets no heartbeats.
func (r *record) starve(name string, told time.Time) {
	if r.unfed == nil {
		r.unfed = map[string]time.Time{}
	}
	r.unfed[name] = told
}

// An unsent has what is still to be sent for a type. The room that orders types knows it.
type unsent struct {
	waits  bool              // a name waits for another type
	parked []string          // names that wait and are not dirty
	lists  func(*entry) bool // the entry belongs in the list of dirty names; nil without names of an earlier stream
}

// isVague reports whether the client may hold names from an earlier stream with unknown content.
func (s *Session) isVague(u *subscription, rest unsent) bool {
	early := s.now.Before(u.vague)
	switch {
	case u.vagueAll && (early || u.unacked || rest.waits):
		return true
	case len(u.brought) == 0:
		return false // the client has accepted or unsubscribed from all of them
	case early:
		return true
	}
	for e := range u.unsettled(rest.parked) { // its resource of an earlier stream, with unknown content, is still to be replaced
		if u.hadBefore(e.Name) && rest.lists(e) {
			return true
		}
	}
	for d := range u.underWay() { // only resources count: SotW may not report removals
		for name, it := range d.Each {
			if u.hadBefore(name) && stands(it.Is) {
				return true
			}
		}
	}
	return false // refused names of brought do not count here: keeps yields them
}

// unsettled yields the entries of the dirty and the parked names. They may be equal to the view.
func (u *subscription) unsettled(parked []string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, listed := range [...][]string{u.Dirty, parked} {
			for _, n := range listed {
				if e := u.Entry(n); e != nil && !yield(e) {
					return
				}
			}
		}
	}
}

// vagueAfter reports whether vague will still be true after the client accepts one part of delivery
// d, which is about to be sent. The parameter parts is the number of its parts.
func (u *subscription) vagueAfter(d *delivery, parts int, waits bool) bool {
	if parts > 1 || u.vagueAll && waits {
		return true
	}
	for _, st := range u.brought {
		if !stands(d.Carries(st.Name)) {
			return true
		}
	}
	return false
}

// learned records that the content of a message's names is known, because the client has accepted
// the message.
func (u *subscription) learned(v xds.Variant, d *delivery, p *part, waits bool) {
	if v == xds.SotW && u.typ.FullState || !waits && d.accepted() {
		u.vagueAll = false
	}
	u.toldAll(d)
	if len(u.brought) == 0 {
		return
	}
	var taken []string
	for name, it := range d.in(p) {
		if stands(it.Is) { // only resources count: SotW may not report removals
			taken = append(taken, name)
		}
	}
	u.unbring(taken)
}

// toldAll handles the answer to a delivery of the whole table while vagueAll is set. From then on
// only single names are unknown: the names that waited, and the names that the client refused. A
// refused full state is sent again as a whole.
func (u *subscription) toldAll(d *delivery) {
	if u.typ.FullState || !u.vagueAll || !d.Whole || !d.settled() {
		return
	}
	u.vagueAll = false
	var names []string
	for _, it := range d.Items {
		if it.Is == nil { // it waited
			names = append(names, it.Name)
		}
	}
	for name, it := range d.Each {
		if stands(it.Is) && d.message(name, it.Is).fate == refused {
			names = append(names, name)
		}
	}
	u.bring(names)
}

// bring records names that the client may hold from an earlier stream, with unknown content.
func (u *subscription) bring(names []string) {
	slices.Sort(names)
	more := make([]*xds.Stamp, 0, len(names))
	names = slices.Compact(names)
	for _, n := range names {
		more = append(more, &xds.Stamp{Name: n})
	}
	u.brought = merged(more, except(u.brought, names))
}

// unbring undoes bring.
func (r *record) unbring(names []string) { r.brought = except(r.brought, names) }

// bringLess ends vagueAll after the client has dropped the wildcard: now the client can hold only
// subscribed names from an earlier stream.
func (u *subscription) bringLess() {
	if u.vagueAll {
		u.vagueAll = false
		u.bring(u.Subscribed())
	}
}

// hadBefore reports whether the client may hold a name from an earlier stream, with unknown
// content.
func (u *subscription) hadBefore(name string) bool {
	_, ok := place(u.brought, name)
	return ok
}

// told returns the state of a name that the client was told last.
func (u *subscription) told(name string) *xds.Stamp { return u.toldBy(u.Entry(name), name) }

// toldBy is like told, for a caller that has looked up the entry e of the name; nil: the name has
// no entry.
func (u *subscription) toldBy(e *entry, name string) *xds.Stamp {
	if e != nil {
		return e.Told
	}
	if s := u.base.Get(name); s != nil {
		return s
	}
	return absent
}

// underWay yields the deliveries in flight, of which the client may have applied nothing yet.
// Heartbeats are left out.
func (u *subscription) underWay() iter.Seq[*delivery] {
	return func(yield func(*delivery) bool) {
		for i := range u.deliveries {
			if d := &u.deliveries[i]; !d.superseded && d.beats == nil && !yield(d) {
				return
			}
		}
	}
}

// coming returns the state of a name in the newest delivery in flight that has the name; nil if
// none has. It is for a name that the client has unsubscribed from.
func (u *subscription) coming(name string) (is *xds.Stamp) {
	for d := range u.underWay() {
		switch said := d.says(name); {
		case said != nil:
			is = said
		case d.parts[0].world: // a full state lacks names that were not subscribed when it was sent
			is = nil
		}
	}
	return is
}

// comesFirst reports whether a resource is in flight to a client that did not hold a resource of
// this name before.
func (u *subscription) comesFirst(name string) bool {
	for d := range u.underWay() {
		if is := d.Carries(name); stands(is) && !stands(d.Before(name)) && d.open(name, is) {
			return true
		}
	}
	return false
}

// newest returns the newest delivery if it is unanswered, or if too many earlier ones are. It skips
// heartbeats, except in SotW for a full-state type, where a heartbeat is a full response.
func (u *subscription) newest(v xds.Variant) *delivery {
	if !u.unacked && !u.crowded() {
		return nil
	}
	for i := len(u.deliveries) - 1; i >= 0; i-- {
		if d := &u.deliveries[i]; d.beats == nil || v == xds.SotW && u.typ.FullState {
			return d
		}
	}
	return nil
}

// unanswered returns the newest delivery with an unanswered state of a name, and the message with
// this name. With a nonce, only the delivery with this first nonce counts.
func (u *subscription) unanswered(name string, nonce uint64) (*delivery, *part) {
	for i := len(u.deliveries) - 1; i >= 0; i-- {
		d := &u.deliveries[i]
		if nonce > 0 && nonce != d.first() || d.beats != nil {
			continue
		}
		if is := d.says(name); is != nil && d.open(name, is) { // the client answers only what a response reports
			return d, d.message(name, is)
		}
	}
	return nil, nil
}

// refuses reports whether the client has, or may have, refused a state of a name.
func (u *subscription) refuses(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(name) })
}

// held yields the stamps that the client may hold and the view no longer has. They are the told
// states that have changed or vanished in the view, the states before an unaccepted delivery, and
// the refused states.
//
// Each has the reason why it still counts. A client does not hold names from which it has unsubscribed. Names in flight are
// the exception, since the client may subscribe again before they arrive.
//
// The cost is the number of names that changed, are in flight or were refused: mayHold looks at an
// entry only if it is dirty, parked or leaving. So each entry that differs from the view must be one
// of these.
func (s *Session) held(u *subscription, rest unsent, yield func(st *xds.Stamp, why delay.Reason)) {
	if s.isVague(u, rest) {
		yield(&xds.Stamp{}, delay.Earlier)
	}
	s.keeps(u, rest.parked, yield)
	t := s.table(u.typ)
	untold := s.forsakes(u)
	for d := range u.underWay() {
		for name, it := range d.Each {
			if untold && !stands(it.Is) || !d.open(name, it.Is) {
				continue // if untold: no response removes the name; the client cannot be told
			}
			if u.outdated(t, name, it.Was) {
				yield(it.Was, delay.Unanswered)
			}
			if u.unacked && stands(it.Is) && !same(u.told(name), it.Is) && !u.current(t, name, it.Is) {
				yield(it.Is, delay.Unanswered)
			}
		}
	}
}

// keeps yields the stamps of mayHold that the client holds even after it accepts everything in
// flight.
func (s *Session) keeps(u *subscription, parked []string, yield func(st *xds.Stamp, why delay.Reason)) {
	t := s.table(u.typ)
	u.keepsCovered(t, yield)
	for e := range u.unsettled(parked) {
		if u.Kept(e.Name) == nil && u.outdated(t, e.Name, e.Told) {
			yield(e.Told, delay.Unsent)
		}
	}
	for n := range u.AllKept {
		if told := u.told(n); u.outdated(t, n, told) {
			yield(told, delay.Unsent)
		}
	}
	for _, l := range u.leftovers {
		if l.why == cannotRemove {
			yield(l.stamp, delay.Unsent)
		}
	}
	for i := range u.refusals {
		s.keepsRefused(u, t, &u.refusals[i], yield)
	}
}

// keepsCovered yields the stamps of names that only the wildcard covers.
func (u *subscription) keepsCovered(t *xds.Table, yield func(st *xds.Stamp, why delay.Reason)) {
	if u.base == nil || u.base == t.Versions() {
		return
	}
	for was := range t.Versions().Since(u.base) {
		if was != nil && u.Entry(was.Name) == nil && u.outdated(t, was.Name, was) {
			yield(was, delay.Unsent)
		}
	}
}

// keepsRefused yields the states of a refusal that the client may hold. A state counts as refused until it
// is sent again. A refusal with the nonce 0 has states from an earlier stream, which the client perhaps
// never refused.
func (s *Session) keepsRefused(u *subscription, t *xds.Table, r *refusal, yield func(st *xds.Stamp, why delay.Reason)) {
	later := u.laterThan(r.nonce)
	for name, it := range r.members {
		why := delay.Refused
		switch {
		case r.nonce == 0:
			why = delay.Earlier
		case r.retold && later(name):
			why = delay.Unanswered
		case u.hadBefore(name):
			yield(&xds.Stamp{}, why)
		}
		for _, st := range []*xds.Stamp{it.Was, it.Is} {
			if u.outdated(t, name, st) {
				yield(st, why)
			}
		}
	}
}

// outdated reports whether the client may use a told state that the view no longer has. A state
// that the view has does not count: if its references are missing, the configuration is wrong.
func (u *subscription) outdated(t *xds.Table, name string, st *xds.Stamp) bool {
	switch {
	case !stands(st):
		return false
	case u.demand.covers(name):
		return !u.current(t, name, st)
	}
	return u.stillHeld(name)
}

// current reports whether the view has exactly this state.
func (u *subscription) current(t *xds.Table, name string, st *xds.Stamp) bool {
	r := t.Lookup(name)
	return u.demand.shows(r) && r.Sum == st.Sum
}

// forsakes reports whether removals cannot be sent. In SotW, "the API provides no mechanism" to
// remove resources of types without full state (SOTW-9).
func (s *Session) forsakes(u *subscription) bool { return s.variant == xds.SotW && !u.typ.FullState }

// tellsWorld reports whether each response to u has the full state.
func (s *Session) tellsWorld(u *subscription) bool { return s.variant == xds.SotW && u.typ.FullState }

// body returns the resource in the state told. If that state is no longer known, body returns the
// last known resource with this name, or nil.
func (s *Session) body(typ *xds.Type, name string, told *xds.Stamp) *xds.Resource {
	t := s.table(typ)
	last := t.Departed(name)
	if r := t.Lookup(name); r != nil { // the view has the resource, but the client no longer gets it
		last = r
	}
	if last != nil && (told == absent || same(last.Stamp, told)) {
		return last
	}
	if told != absent && !known(told) {
		return last // no table has this state; a client may state many such names, so the search would cost too much
	}
	recent := s.recent(typ)
	if told == absent { // tables that are newer than the view do not count
		recent = s.past(typ, t)
	}
	for _, t := range recent {
		if r := t.Lookup(name); r != nil && (told == absent || same(r.Stamp, told)) {
			return r
		}
	}
	return last
}

// earlier returns the resource that the client was told, if its content is known.
func (s *Session) earlier(u *subscription, name string) *xds.Resource {
	told := u.told(name)
	if !stands(told) {
		return nil
	}
	if r := s.body(u.typ, name, told); r != nil && same(r.Stamp, told) {
		return r
	}
	return nil
}

// recent returns the recent tables of a type, the newest first.
func (s *Session) recent(t *xds.Type) []*xds.Table {
	if s.opts.Recent == nil {
		return nil
	}
	return s.opts.Recent(t)
}

// past returns the recent tables before t. Tables after t may exist, too: the session has not seen
// them yet.
func (s *Session) past(typ *xds.Type, t *xds.Table) []*xds.Table {
	recent := s.recent(typ)
	return recent[slices.Index(recent, t)+1:]
}
