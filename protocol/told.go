package protocol

import (
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// What a client may have been told of a name besides a resource.
var (
	absent = &xds.Stamp{}          // that it does not exist; or nothing yet
	others = &xds.Stamp{Name: "@"} // resources that the name finds, by their own names
)

// stands reports whether a stamp tells of something that the client may have. Of
// what it states to have from before, the content may not be known: then the
// stamp has no sum.
func stands(s *xds.Stamp) bool { return s != nil && s != absent && s != others }

// known reports whether a stamp is that of a resource the server knows.
func known(s *xds.Stamp) bool { return s != nil && s.Sum != xds.Sum{} }

// same reports whether two stamps say the same of a name.
func same(a, b *xds.Stamp) bool { return a == b || known(a) && known(b) && a.Sum == b.Sum }

// A record is what a client was told of one type, and what became of it.
//
// It counts as told when it leaves, for a stream loses nothing and keeps its
// order: by way of the wildcard, the table that the client was last brought up
// to; of single names, their entries, which override that. What was told and not
// accepted yet, or refused, is told by deliveries and refusals: there the client
// may also have what was in force before.
//
// Invariant: no delivery that is listed is answered in all its messages, unless a later one
// was accepted (SotW), or what has become one with it is not answered (delta); heard and
// evicted are at most nonce.
type record struct {
	base *xds.Versions // told by way of the wildcard; nil while there is none

	deliveries []delivery // unanswered, the oldest first, at most maxDeliveries
	refusals   []refusal  // the oldest first, at most maxRefusals
	nonce      uint64     // of the newest message; zero: none was sent
	heard      uint64     // the newest nonce that was answered
	evicted    uint64     // the newest nonce that is not listed any more, and may be unanswered
	silent     time.Time  // since when the client has answered nothing; meaningful while unacked

	// SotW, types without full state: what the client has of names that the view
	// has no more. "The API provides no mechanism" to tell it so; it keeps that
	// until it drops the name. Each was told as absent.
	orphans map[string]*xds.Stamp

	unacked bool // the newest delivery is unanswered; nonce is of it

	// It states a version that nobody knows here of a type with full state, and was told
	// nothing here yet.
	elsewhere bool

	// The client has something from an earlier stream, and it is not known what,
	// until it accepts what it is told here, or gives it up: of these names, and of
	// all if it is not told by name. What there is nothing to tell of is forgotten at
	// this time.
	vagueAll bool
	vague    time.Time
	brought  []*xds.Stamp // of each what a World says of it, by name, each once; worlds share it, so it is replaced
}

// rebase makes these what was told by way of the wildcard; nil: nothing was.
func (r *record) rebase(to *xds.Versions) { r.base = to }

// orphan notes that the client keeps what the view has lost.
func (r *record) orphan(name string, st *xds.Stamp) {
	if r.orphans == nil {
		r.orphans = map[string]*xds.Stamp{}
	}
	r.orphans[name] = st
}

// unorphan notes that it is told of that again, or has dropped the name.
func (r *record) unorphan(name string) { delete(r.orphans, name) }

// vague reports whether nobody knows what the client has from before.
func (s *Session) vague(u *subscription) bool {
	early := s.now.Before(u.vague)
	switch {
	case u.vagueAll && (early || u.unacked || u.waiting.len() > 0):
		return true
	case len(u.brought) == 0:
		return false // it has been told of all, or has given it up
	case early:
		return true
	}
	for n := range u.listed { // more than these may be marked, as no hint says what has changed
		if e := u.entry(n); e != nil && u.hadBefore(n) && s.lists(u, s.table(u.typ), e) {
			return true
		}
	}
	for d := range u.underWay() { // it is told by nothing that a name is lost
		for name, it := range d.each {
			if u.hadBefore(name) && stands(it.is) {
				return true
			}
		}
	}
	return false // of what it has refused refusals tell
}

// vagueAfter reports whether nobody knows either, if nobody does now, when the client
// accepts a part of a delivery that is about to leave.
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

// learned notes that the client has taken a message, so that it is known what it
// has of the names in it.
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
		if stands(it.is) && p.within(name, it.is) { // it is told by nothing that a name is lost
			taken = append(taken, name)
		}
	}
	u.brought = except(u.brought, taken)
}

// toldAll notes that the client has answered a delivery: if that told of all, it is by
// name that nobody knows what it has, of what waited and of what it has refused. A world
// that was refused is told again as one.
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

// bring notes that the client may have names from before, and nobody knows what of them.
func (u *subscription) bring(names []string) {
	slices.Sort(names)
	more := make([]*xds.Stamp, 0, len(names))
	names = slices.Compact(names)
	for _, n := range names {
		more = append(more, &xds.Stamp{Name: n})
	}
	u.brought = merged(more, except(u.brought, names))
}

// bringNamed notes that of what the client asks for by name.
func (u *subscription) bringNamed() {
	var names []string
	for e := range u.entries() {
		if e.named {
			names = append(names, e.name)
		}
	}
	u.bring(names)
}

// bringLess notes that a client which asks for all no more has from before what it asks for by
// name, or nothing. Of a type with full state the next world tells what.
func (u *subscription) bringLess() {
	if !u.vagueAll || u.wildcard || u.typ.FullState && !u.idle() {
		return
	}
	u.vagueAll = false
	u.bringNamed()
}

// hadBefore reports whether the client may have a name from before, and nobody knows what of it.
func (u *subscription) hadBefore(name string) bool {
	_, ok := place(u.brought, name)
	return ok
}

// told returns what the client was last told of a name.
func (u *subscription) told(name string) *xds.Stamp { return u.toldBy(u.entry(name), name) }

// toldBy is told of a name whose entry is e, nil if it has none.
func (u *subscription) toldBy(e *entry, name string) *xds.Stamp {
	if e != nil {
		return e.told
	}
	if s := u.base.Get(name); s != nil {
		return s
	}
	return absent
}

// underWay yields the deliveries of which the client may have taken nothing yet.
func (u *subscription) underWay() iter.Seq[*delivery] {
	return func(yield func(*delivery) bool) {
		for i := range u.deliveries {
			if d := &u.deliveries[i]; !d.superseded && d.beats == nil && !yield(d) {
				return
			}
		}
	}
}

// coming returns what of a name is on its way to a client that did not ask for it at
// last, nil if nothing is.
func (u *subscription) coming(name string) (is *xds.Stamp) {
	for d := range u.underWay() {
		switch said := d.says(name); {
		case said != nil:
			is = said
		case d.parts[0].world: // it lacks what was not asked for when it left
			is = nil
		}
	}
	return is
}

// comesFirst reports whether a name is on its way to a client that had nothing of it.
func (u *subscription) comesFirst(name string) bool {
	for d := range u.underWay() {
		if is := d.carries(name); stands(is) && !stands(d.before(name)) && d.open(name, is) {
			return true
		}
	}
	return false
}

// newest returns the newest delivery that is no heartbeat, if it is unanswered.
// In SotW the heartbeat of a type with full state is an answer like any other.
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

// unanswered returns the newest delivery that told of a name and is not answered in
// that, and its message; no message if the one that told of it is not listed any more.
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

// accepted reports whether the client has taken what it was told of a name.
func (u *subscription) accepted(name string) bool {
	d, _ := u.unanswered(name)
	return d == nil && !u.refuses(name)
}

// refuses reports whether the client has refused what it was told of a name, or may have.
func (u *subscription) refuses(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(name) })
}

// mayHold yields what the client may have of the type that is not what the view
// has now: what was told and has changed or gone since; what was in force before
// a delivery that is not accepted; what was refused, which is firm, until it is
// told anew: no silence makes the client let go of it. What the client does not
// want any more it does not hold, save what is on its way: it may be asked for
// again before it arrives.
//
// It costs what has changed, is under way or was refused. Entries that differ
// from the view have to be dirty or leaving.
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
				continue // it is told by nothing that it is lost, and kept as an orphan
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

// keeps yields what of that the client has even when it has accepted all that is
// under way.
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
			firm := r.nonce > 0 && (!r.retold || !later(name)) // of an earlier stream it need not have refused it
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

// outdated reports whether the client may use what it was told of a name, and
// the view has something else now. What is current does not count: then the
// configuration itself refers to what is not there.
func (u *subscription) outdated(t *xds.Table, name string, st *xds.Stamp) bool {
	return stands(st) && (u.covers(name) && !u.current(t, name, st) || !u.covers(name) && u.lapses(name))
}

// current reports whether the view has just that.
func (u *subscription) current(t *xds.Table, name string, st *xds.Stamp) bool {
	r := t.Lookup(name)
	return u.shows(r) && r.Sum == st.Sum
}
