package protocol

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

const (
	// patience is how long a response may stay unanswered before the newest state is sent anyway
	// (blocked).
	patience = 5 * time.Second

	// silence is how long a type may stay unanswered before other types stop waiting for it:
	// resources that it may refer to are removed, and resources that refer to it are sent (ADS-3,
	// ADS-6). A NACK is an answer.
	silence = 15 * time.Second

	// maxDeliveries is how many unanswered responses of a type stay listed, so that a late answer
	// still finds its response.
	maxDeliveries = 4
)

// A fate is the answer to a message.
type fate uint8

const (
	unanswered fate = iota
	accepted
	refused
	passed // SotW: the ACK of a later response answers it; its own answer may still come
)

// A part is one message of a delivery. It has the upserts with names from lo to hi and the removals
// from gone to last, or the full state.
type part struct {
	nonce      uint64
	lo, hi     string
	gone, last string
	world      bool // full state (SotW): names that it lacks are removed
	moved      bool // the client has accepted something later for one of its names
	fate       fate
}

// within reports whether this message has a name of the delivery; is is the state of the name
// there.
func (p *part) within(name string, is *xds.Stamp) bool {
	switch {
	case p.world:
		return true
	case is == absent:
		return p.gone <= name && name <= p.last
	}
	return p.lo <= name && name <= p.hi
}

// A delivery is a response that the client has not answered yet, in one message or several.
//
// Invariant: each name is in exactly one message. Two kinds of names are in none: removed names
// that SotW does not report, and names that only an older, joined delivery had.
type delivery struct {
	cargo
	parts   []part // at least one, by nonce
	version string
	sent    time.Time
	beats   []*xds.Resource // the resources of a heartbeat; nil: not a heartbeat
	stuck   uint64          // nonce of the message with a cluster that has no assignment, so that no ACK is expected; zero: none

	joined uint64 // newest nonce of the older delivery that this one includes; zero: none
	own    cargo  // the cargo before it was joined, without items

	untold bool // removals are not reported (SotW, types without full state)

	// A later delivery was answered: nothing waits for this one, and the states before it are not
	// held.
	superseded bool

	finding *finding // see Session.finding; nil: not computed
}

// addPart appends a message.
func (d *delivery) addPart(p part) { d.parts = append(d.parts, p) }

// expectNone notes that no ACK is expected for the message with this nonce.
func (d *delivery) expectNone(nonce uint64) { d.stuck = nonce }

// keepFinding stores the finding of a view.
func (d *delivery) keepFinding(f finding) { d.finding = &f }

// overtaken removes names that the client has accepted in a later response.
func (d *delivery) overtaken(names iter.Seq2[string, item]) {
	for name := range names {
		is := d.carries(name)
		if is == nil {
			continue
		}
		for i := range d.parts {
			p := &d.parts[i]
			p.moved = p.moved || p.within(name, is)
		}
	}
	d.without(names)
}

// lapse marks all removals of the delivery as lapsed: the client did not unsubscribe from them.
func (d *delivery) lapse() {
	var more []item
	for name, it := range d.each {
		switch own := d.find(name); {
		case !stands(it.was) || stands(it.is):
		case own != nil:
			own.lapse(true)
		default:
			it.lapse(true)
			more = append(more, it)
		}
	}
	d.add(more)
}

// answers reports whether the answer to message p is also the answer for a name. A name that only
// an older, joined delivery had has no message of its own.
func (d *delivery) answers(p *part, name string, is *xds.Stamp) bool {
	return p.within(name, is) || !d.tells(name, is)
}

// open reports whether the message with a name is unanswered: "each nonce is settled by itself"
// (DELTA-13).
func (d *delivery) open(name string, is *xds.Stamp) bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate != unanswered && p.within(name, is) })
}

// tells reports whether one of its own messages has a name.
func (d *delivery) tells(name string, is *xds.Stamp) bool {
	if d.joined > 0 {
		if it := d.find(name); it != nil && it.older || it == nil && d.own.carries(name) == nil {
			return false
		}
	}
	return slices.ContainsFunc(d.parts, func(p part) bool { return p.within(name, is) })
}

// says returns the state of a name in a message, or nil. Unlike carries, it omits unreported
// removals.
func (d *delivery) says(name string) *xds.Stamp {
	if is := d.carries(name); is != absent || !d.untold {
		return is
	}
	return nil
}

// unlisted yields the names that only the older, joined delivery had.
func (d *delivery) unlisted(yield func(string, item) bool) {
	for name, it := range d.each {
		if d.says(name) != nil && !d.tells(name, it.is) && !yield(name, it) {
			return
		}
	}
}

// keepUnlisted reduces the delivery to the names that only the older, joined delivery had, and
// reports whether there are any.
func (d *delivery) keepUnlisted() bool {
	var items []item
	for _, it := range d.unlisted {
		it.older = true
		if !it.tellsNothing() {
			items = append(items, it)
		}
	}
	d.cargo, d.own, d.finding = cargo{items: items}, cargo{}, nil
	slices.SortFunc(d.items, itemByName)
	return len(items) > 0
}

func (d *delivery) settled() bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == unanswered })
}

// accepted reports whether the client has accepted all messages.
func (d *delivery) accepted() bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate != accepted && p.fate != passed })
}

// answered reports whether the client has answered the newest message.
func (d *delivery) answered() bool { return d.parts[len(d.parts)-1].fate != unanswered }

// last returns the newest nonce of the delivery.
func (d *delivery) last() uint64 { return d.parts[len(d.parts)-1].nonce }

// answered reports whether the newest message needs no answer any more. The last answer is enough:
// in SotW it answers all before, and in delta a client that answers in order has answered those.
func (u *subscription) answered() bool {
	n := len(u.deliveries)
	return !u.unacked || n > 0 && u.deliveries[n-1].answered()
}

// deliver records a delivery that is sent now.
func (u *subscription) deliver(s *Session, d *delivery) {
	if len(u.deliveries) == maxDeliveries {
		s.evict(u)
		u.moveAll()
	}
	if u.answered() {
		u.silent = s.now
	}
	u.deliveries, u.unacked, u.nonce = append(u.deliveries, *d), true, d.last()
	u.stirAll(d)
}

// letGo notes that the client has unsubscribed from names. It holds nothing of them now, but may
// subscribe again before the deliveries in flight arrive. A full state in flight also brings names
// that did not change in it.
func (u *subscription) letGo(dropped map[string]bool) {
	if len(dropped) == 0 {
		return
	}
	for i := range u.deliveries {
		d := &u.deliveries[i]
		world := d.parts[0].world && d.beats == nil && !d.superseded
		var more []item
		for n := range dropped {
			switch it, told := d.find(n), u.told(n); {
			case it != nil && it.is != nil:
				it.was = absent
			case !world || !stands(told) || d.carries(n) != nil:
			case it != nil:
				it.was, it.is = absent, told
			default:
				more = append(more, item{name: n, was: absent, is: told})
			}
		}
		d.add(more)
	}
}

// letGoAll notes that the client has unsubscribed from the wildcard: it holds no name without an
// entry any more. A client may drop the wildcard and subscribe again without end. So the cost is
// the number of entries and items, not the size of the table.
func (u *subscription) letGoAll() {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		for j := range d.items {
			if it := &d.items[j]; it.is != nil && u.entry(it.name) == nil {
				it.was = absent
			}
		}
		if d.dropped {
			continue
		}
		var more []item // entries keep their state before
		for e := range u.entries() {
			if is := d.carries(e.name); is != nil && d.find(e.name) == nil {
				more = append(more, item{name: e.name, was: d.before(e.name), is: is})
			}
		}
		world := d.parts[0].world && d.beats == nil // it brings all names, changed or not
		d.whole, d.dropped = d.whole || world, true
		d.add(more)
	}
}

// evict makes room for a delivery. It drops a superseded one, else a heartbeat, else it joins the
// oldest with the next: the client may still hold the states before the oldest.
func (s *Session) evict(u *subscription) {
	i := slices.IndexFunc(u.deliveries, func(d delivery) bool { return d.superseded })
	if i < 0 {
		i = slices.IndexFunc(u.deliveries, func(d delivery) bool { return d.beats != nil })
	}
	s.unlisted(u, &u.deliveries[max(i, 0)])
	u.evicted = max(u.evicted, u.deliveries[max(i, 0)].last())
	if i < 0 {
		i = 0
		old, next := &u.deliveries[0], &u.deliveries[1]
		next.stuck, next.joined = max(next.stuck, old.stuck), old.last()
		next.own = cargo{from: next.from, to: next.to, whole: next.whole}
		next.cargo = u.join(old, next)
		next.finding = nil
		next.items = slices.DeleteFunc(next.items, func(it item) bool { return u.idleTalk(next, it) })
	}
	u.deliveries = slices.Delete(u.deliveries, i, i+1)
}

// idleTalk reports whether an item of an older, joined delivery can be dropped: it removes a name
// that did not exist. A client may subscribe to any number of such names and answer nothing.
func (u *subscription) idleTalk(d *delivery, it item) bool {
	return it.older && it.tellsNothing() && d.from.Get(it.name) == nil && d.to.Get(it.name) == nil &&
		!slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(it.name) })
}

// join returns the content of two consecutive deliveries as one: the states of the later, with the
// states that the client may hold before it.
func (u *subscription) join(a, b *delivery) cargo {
	c := cargo{from: a.from, to: b.to, whole: a.whole || b.whole, dropped: a.dropped}
	switch {
	case a.from == a.to && !a.whole: // a wildcard began between them
		c.from, c.dropped = b.from, b.dropped
	case b.from == b.to && !b.whole: // or ended
		c.to = a.to
	default:
		for was, is := range b.from.Since(a.to) { // the client was not told these changes
			if name := cmp.Or(is, was).Name; a.find(name) == nil && b.find(name) == nil && b.carries(name) == nil {
				it := item{name: name, older: true}
				it.is = a.carries(name)
				if it.is != nil {
					it.was = a.before(name)
				}
				c.items = append(c.items, it)
			}
		}
	}
	// The client may hold the state before the older delivery, or the older one's. Only one is
	// kept: preferably a resource that is not in a refusal, which keeps its states itself.
	before := func(name string, old, is *xds.Stamp) *xds.Stamp {
		if was := a.before(name); a.open(name, old) && (stands(was) && !u.hasRefused(name, was) || same(old, is)) {
			return was
		}
		return old
	}
	for _, it := range b.items {
		switch old := a.carries(it.name); {
		case old == nil:
		case b.says(it.name) == nil:
			it.was, it.is, it.older = a.before(it.name), old, true
		default:
			it.was = before(it.name, old, it.is)
		}
		c.items = append(c.items, it)
	}
	both := func(name string, was, is *xds.Stamp) {
		switch old := a.carries(name); {
		case a.find(name) != nil || b.find(name) != nil:
		case old != nil && b.says(name) == nil: // b removes it without a message
			c.items = append(c.items, item{name: name, was: a.before(name), is: old, older: true})
		case old != nil:
			c.items = append(c.items, item{name: name, was: before(name, old, is), is: is})
		case c.dropped && !b.dropped && stands(was): // it was added in between
			c.items = append(c.items, item{name: name, was: was, is: is})
		}
	}
	if answered := func(p part) bool { return p.fate != unanswered }; b.whole && slices.ContainsFunc(a.parts, answered) {
		for name, it := range b.each { // the client already holds some names that are sent again
			both(name, it.was, it.is)
		}
	} else {
		for was, is := range b.to.Since(b.from) {
			both(cmp.Or(is, was).Name, was, cmp.Or(is, absent))
		}
	}
	for _, it := range a.items {
		switch is := b.says(it.name); {
		case b.find(it.name) != nil:
		case is == nil:
			it.older = true
			c.items = append(c.items, it)
		case it.is == nil: // only the later one counts
			c.items = append(c.items, item{name: it.name, was: b.before(it.name), is: is})
		default:
			c.items = append(c.items, item{name: it.name, was: before(it.name, it.is, is), is: is})
		}
	}
	slices.SortFunc(c.items, itemByName)
	return c
}
