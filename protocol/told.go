package protocol

import (
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// States of a name, as told to a client, in which it has no resource.
var (
	absent = &xds.Stamp{}          // it does not exist, or nothing was sent yet
	others = &xds.Stamp{Name: "@"} // it matches other resources, which are sent under their own names
)

// The stamp is a resource that the client may hold: not nil, absent or others. Without a sum, its
// content is unknown: the client stated it from an earlier stream.
func stands(s *xds.Stamp) bool { return s != nil && s != absent && s != others }

// known reports whether a stamp is a resource with known content.
func known(s *xds.Stamp) bool { return s != nil && s.Sum != xds.Sum{} }

// same reports whether two stamps are the same state of a name.
func same(a, b *xds.Stamp) bool { return a == b || known(a) && known(b) && a.Sum == b.Sum }

// A record holds the states of one type that the client was told, and its answers.
//
// A state counts as told when it is sent. The wildcard's states are the table base. The entries of
// single names override it. Deliveries and refusals have the states that are not accepted or were
// refused: the client may also hold the states before those.
//
// Invariant: each listed delivery has an unanswered message, with two exceptions: a later one was
// accepted (SotW), or it includes an older delivery without an answer (delta). heard and evicted
// are at most nonce.
type record struct {
	base *xds.Versions // the table told by way of the wildcard; nil without one

	deliveries []delivery // unanswered, oldest first, at most maxDeliveries
	refusals   []refusal  // oldest first, at most maxRefusals
	nonce      uint64     // of the newest message; zero: none was sent
	heard      uint64     // the newest answered nonce
	evicted    uint64     // the newest nonce that is no longer listed and may be unanswered
	silent     time.Time  // time of the last answer, or of the first response that needs one; meaningful while unacked

	// SotW, types without full state: names that the view has lost and the client still holds, for
	// "the API provides no mechanism" to remove them. The client holds them until it unsubscribes.
	// Each was told as absent.
	orphans map[string]*xds.Stamp

	unacked bool // the newest delivery is unanswered; nonce belongs to it

	// The client states a version of a full-state type that is unknown here, and was sent nothing
	// yet.
	elsewhere bool

	// The client holds names from an earlier stream with unknown content: the names in brought, and
	// with vagueAll any name. This ends when the client accepts the names or unsubscribes. Names
	// for which there is nothing to send are forgotten at the time vague.
	vagueAll bool
	vague    time.Time
	brought  []*xds.Stamp // by name, each once, as in World.Others; shared with worlds, so it is replaced and never changed
}

// rebase sets the table told by way of the wildcard; nil: none.
func (r *record) rebase(to *xds.Versions) { r.base = to }

// orphan notes that the client keeps a name that the view has lost.
func (r *record) orphan(name string, st *xds.Stamp) {
	if r.orphans == nil {
		r.orphans = map[string]*xds.Stamp{}
	}
	r.orphans[name] = st
}

// unorphan undoes orphan: the name is sent again, or the client has dropped it.
func (r *record) unorphan(name string) { delete(r.orphans, name) }

// vague reports whether the client may hold names from an earlier stream with unknown content.
func (s *Session) vague(u *subscription) bool {
	early := s.now.Before(u.vague)
	switch {
	case u.vagueAll && (early || u.unacked || u.waiting.len() > 0):
		return true
	case len(u.brought) == 0:
		return false // all are accepted or dropped
	case early:
		return true
	}
	for n := range u.listed { // without hints, more names than these may be marked
		if e := u.entry(n); e != nil && u.hadBefore(n) && s.lists(u, s.table(u.typ), e) {
			return true
		}
	}
	for d := range u.underWay() { // no SotW response reports a lost name
		for name, it := range d.each {
			if u.hadBefore(name) && stands(it.is) {
				return true
			}
		}
	}
	return false // refusals have the rest
}

// vagueAfter reports whether vague will still be true after the client accepts one part of a
// delivery that is about to be sent.
func (s *Session) vagueAfter(u *subscription, d *delivery, parts int) bool {
	if parts > 1 || u.vagueAll && u.waiting.len() > 0 {
		return true
	}
	for _, st := range u.brought {
		if !stands(d.carries(st.Name)) {
			return true
		}
	}
	return false
}

// learned notes that the client has accepted a message, so the content of its names is known.
func (u *subscription) learned(v xds.Variant, d *delivery, p *part) {
	if v == xds.SotW && u.typ.FullState || u.waiting.len() == 0 && d.accepted() {
		u.vagueAll = false
	}
	u.toldAll(d)
	if len(u.brought) == 0 {
		return
	}
	var taken []string
	for name, it := range d.each {
		if stands(it.is) && p.within(name, it.is) { // no SotW response reports a lost name
			taken = append(taken, name)
		}
	}
	u.brought = except(u.brought, taken)
}

// toldAll handles the answer to a delivery of the whole table while vagueAll is set. From then on
// only single names are unknown: those that waited, and those that the client refused. A refused
// full state is sent again as a whole.
func (u *subscription) toldAll(d *delivery) {
	if u.typ.FullState || !u.vagueAll || !d.whole || !d.settled() {
		return
	}
	u.vagueAll = false
	var names []string
	for _, it := range d.items {
		if it.is == nil { // it waited
			names = append(names, it.name)
		}
	}
	for name, it := range d.each {
		if stands(it.is) && slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == refused && p.within(name, it.is) }) {
			names = append(names, name)
		}
	}
	u.bring(names)
}

// bring notes that the client may hold these names from an earlier stream, with unknown content.
func (u *subscription) bring(names []string) {
	slices.Sort(names)
	more := make([]*xds.Stamp, 0, len(names))
	names = slices.Compact(names)
	for _, n := range names {
		more = append(more, &xds.Stamp{Name: n})
	}
	u.brought = merged(more, except(u.brought, names))
}

// bringNamed calls bring for all subscribed names.
func (u *subscription) bringNamed() {
	var names []string
	for e := range u.entries() {
		if e.named {
			names = append(names, e.name)
		}
	}
	u.bring(names)
}

// bringLess ends vagueAll after the wildcard is dropped: only subscribed names can still be held
// from an earlier stream. For a full-state type, the next response decides that.
func (u *subscription) bringLess() {
	if !u.vagueAll || u.wildcard || u.typ.FullState && !u.idle() {
		return
	}
	u.vagueAll = false
	u.bringNamed()
}

// hadBefore reports whether the client may hold a name from an earlier stream, with unknown
// content.
func (u *subscription) hadBefore(name string) bool {
	_, ok := place(u.brought, name)
	return ok
}

// told returns the state of a name that the client was told last.
func (u *subscription) told(name string) *xds.Stamp { return u.toldBy(u.entry(name), name) }

// toldBy is told for a name with entry e, nil if it has none.
func (u *subscription) toldBy(e *entry, name string) *xds.Stamp {
	if e != nil {
		return e.told
	}
	if s := u.base.Get(name); s != nil {
		return s
	}
	return absent
}

// underWay yields the deliveries in flight: the client may have applied nothing of them yet.
func (u *subscription) underWay() iter.Seq[*delivery] {
	return func(yield func(*delivery) bool) {
		for i := range u.deliveries {
			if d := &u.deliveries[i]; !d.superseded && d.beats == nil && !yield(d) {
				return
			}
		}
	}
}

// coming returns the state of a name that is in flight to a client that has unsubscribed from it,
// nil if there is none.
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

// comesFirst reports whether a name is in flight to a client that held nothing of it.
func (u *subscription) comesFirst(name string) bool {
	for d := range u.underWay() {
		if is := d.carries(name); stands(is) && !stands(d.before(name)) && d.open(name, is) {
			return true
		}
	}
	return false
}

// newest returns the newest delivery if it is unanswered. Heartbeats do not count, except in SotW
// for a full-state type, where a heartbeat is a full response.
func (u *subscription) newest(v xds.Variant) *delivery {
	if !u.unacked {
		return nil
	}
	for i := len(u.deliveries) - 1; i >= 0; i-- {
		if d := &u.deliveries[i]; d.beats == nil || v == xds.SotW && u.typ.FullState {
			return d
		}
	}
	return nil
}

// unanswered returns the newest delivery with a name whose answer is missing, and the message with
// the name; no message if that one is no longer listed.
func (u *subscription) unanswered(name string) (*delivery, *part) {
	for i := len(u.deliveries) - 1; i >= 0; i-- {
		d := &u.deliveries[i]
		is := d.carries(name)
		if is == nil || d.beats != nil || !d.open(name, is) {
			continue
		}
		for j := range d.parts {
			if p := &d.parts[j]; p.within(name, is) {
				return d, p
			}
		}
		return d, nil
	}
	return nil, nil
}

// accepted reports whether the client has accepted the last state of a name.
func (u *subscription) accepted(name string) bool {
	d, _ := u.unanswered(name)
	return d == nil && !u.refuses(name)
}

// refuses reports whether the client has, or may have, refused a state of a name.
func (u *subscription) refuses(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(name) })
}

// mayHold yields the stamps that the client may hold and the view no longer has: told states that
// have changed or gone since, states before an unaccepted delivery, and refused states.
//
// A refused state is firm until it is sent again: no silence makes the client release it. A client
// does not hold names that it unsubscribed from, except for those in flight: it may subscribe again
// before they arrive.
//
// The cost is the number of names that changed, are in flight or were refused. Entries that differ
// from the view must be dirty or leaving.
func (s *Session) mayHold(u *subscription, yield func(st *xds.Stamp, firm bool) bool) {
	if s.vague(u) && !yield(&xds.Stamp{}, false) {
		return
	}
	if !s.keeps(u, yield) {
		return
	}
	t := s.table(u.typ)
	untold := s.forsakes(u)
	for d := range u.underWay() {
		for name, it := range d.each {
			if untold && !stands(it.is) {
				continue // no response removes it; it is kept as an orphan
			}
			switch {
			case !d.open(name, it.is):
			case u.outdated(t, name, it.was) && !yield(it.was, false):
				return
			case u.unacked && stands(it.is) && !same(u.told(name), it.is) && !u.current(t, name, it.is) && !yield(it.is, false):
				return
			}
		}
	}
}

// keeps yields the stamps of mayHold that the client holds even after it accepts everything in
// flight.
func (s *Session) keeps(u *subscription, yield func(st *xds.Stamp, firm bool) bool) bool {
	t := s.table(u.typ)
	if u.wildcard && u.base != t.Versions() {
		for was := range t.Versions().Since(u.base) {
			if was != nil && u.entry(was.Name) == nil && u.outdated(t, was.Name, was) && !yield(was, false) {
				return false
			}
		}
	}
	for n := range u.listed {
		if e := u.entry(n); e != nil && u.leaving[n] == nil && u.outdated(t, n, e.told) && !yield(e.told, false) {
			return false
		}
	}
	for n := range u.leaving {
		if told := u.told(n); u.outdated(t, n, told) && !yield(told, false) {
			return false
		}
	}
	for n, st := range u.orphans {
		if u.covers(n) && !yield(st, false) {
			return false
		}
	}
	for i := range u.refusals {
		r := &u.refusals[i]
		later := u.laterThan(s.variant, r.nonce)
		for name, it := range r.members {
			firm := r.nonce > 0 && (!r.retold || !later(name)) // the client may not have refused names of an earlier stream
			if u.hadBefore(name) && firm && !yield(&xds.Stamp{}, true) {
				return false
			}
			for _, st := range []*xds.Stamp{it.was, it.is} {
				if u.outdated(t, name, st) && !yield(st, firm) {
					return false
				}
			}
		}
	}
	return true
}

// outdated reports whether the client may use a told state that the view no longer has. Current
// states do not count: a missing reference of the view is an error of the configuration.
func (u *subscription) outdated(t *xds.Table, name string, st *xds.Stamp) bool {
	return stands(st) && (u.covers(name) && !u.current(t, name, st) || !u.covers(name) && u.lapses(name))
}

// current reports whether the view has exactly this state.
func (u *subscription) current(t *xds.Table, name string, st *xds.Stamp) bool {
	r := t.Lookup(name)
	return u.shows(r) && r.Sum == st.Sum
}
