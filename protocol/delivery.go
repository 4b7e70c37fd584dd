package protocol

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

const (
	// patience is how long a response may stay unanswered before the session sends the newest state
	// anyway (see blocked).
	patience = 5 * time.Second

	// silence is how long a type may stay unanswered before other types stop waiting (ADS-3,
	// ADS-6). Then the session sends removals of resources to which this type may refer, and
	// resources that refer to this type. A NACK is an answer, too.
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
	passed // SotW: the ACK of a later response answers this message; its own answer may still come
)

// A part is one message of a delivery. A part with the full state has all names of the delivery.
// Any other part has the upserts with names from lo to hi, and the removals with names from gone to
// last.
type part struct {
	nonce      uint64
	lo, hi     string
	gone, last string
	world      bool // full state (SotW): the client removes each name that the message lacks
	moved      bool // for at least one name of this message, the client has accepted a later response
	fate       fate
}

// within reports whether this message of the delivery has a name. The parameter `is` is the state
// of the name in the delivery: absent means a removal.
func (p *part) within(name string, is *xds.Stamp) bool {
	switch {
	case p.world:
		return true
	case is == absent:
		return p.gone <= name && name <= p.last
	}
	return p.lo <= name && name <= p.hi
}

// A delivery is a response that the client has not answered yet. A large response has several
// messages (parts). Terms: see doc.go.
//
// Invariant: each name of the delivery is in at most one message. Two kinds of names are in no
// message: removed names that SotW does not report, and names that only an older, joined delivery
// has.
type delivery struct {
	cargo
	parts   []part // at least one, by nonce
	version string
	sent    time.Time
	beats   []*xds.Resource // the resources of a heartbeat; nil: this response is not a heartbeat
	stuck   uint64          // nonce of a message with a cluster without an assignment: no ACK of this message is expected; zero: none

	joined uint64 // newest nonce of the older delivery that was joined to this one; zero: none
	own    cargo  // the cargo of this delivery before an older one was joined to it; without items

	retry  bool // the response has refused content again (HEAL-2)
	tried  bool // the same, for content that the view withheld
	untold bool // the response does not report removals (SotW, types without full state)

	// The client has accepted this delivery or a later one. So nothing waits for this one, and the
	// client no longer holds the states before it.
	superseded bool

	finding *finding // see Session.finding; nil: not computed yet
}

// addPart appends a message.
func (d *delivery) addPart(p part) { d.parts = append(d.parts, p) }

// expectNone records the nonce of a message that the client is not expected to ACK.
func (d *delivery) expectNone(nonce uint64) { d.stuck = nonce }

// keepFinding stores the finding of a view.
func (d *delivery) keepFinding(f finding) { d.finding = &f }

// overtaken removes from the delivery the names that the client has accepted in a later response.
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

// lapse marks all removals of the delivery as lapsed: the server removes these names, and the
// client did not unsubscribe from them.
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

// answers reports whether the answer to message p is also the answer for a name. If only the older,
// joined delivery has the name, no message of this delivery has it. Then any answer to this
// delivery is also the answer for the name.
func (d *delivery) answers(p *part, name string, is *xds.Stamp) bool {
	return p.within(name, is) || !d.tells(name, is)
}

// open reports whether the client has not answered the message with a name yet. Each message has
// its own answer (DELTA-13).
func (d *delivery) open(name string, is *xds.Stamp) bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate != unanswered && p.within(name, is) })
}

// tells reports whether one of the delivery's own messages has a name. It does not count names that
// only the older, joined delivery has.
func (d *delivery) tells(name string, is *xds.Stamp) bool {
	if d.joined > 0 {
		if it := d.find(name); it != nil && it.older || it == nil && d.own.carries(name) == nil {
			return false
		}
	}
	return slices.ContainsFunc(d.parts, func(p part) bool { return p.within(name, is) })
}

// says returns the state of a name in the delivery, or nil. Unlike carries, says returns nil for a
// removal that the response does not report.
func (d *delivery) says(name string) *xds.Stamp {
	if is := d.carries(name); is != absent || !d.untold {
		return is
	}
	return nil
}

// unlisted yields the names that only the older, joined delivery has.
func (d *delivery) unlisted(yield func(string, item) bool) {
	for name, it := range d.each {
		if d.says(name) != nil && !d.tells(name, it.is) && !yield(name, it) {
			return
		}
	}
}

// keepUnlisted removes all names from the delivery, except the names that only the older, joined
// delivery has. It reports whether any name is left.
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

// answered reports whether the newest message of the type needs no answer any more. The answer to
// the newest message is enough. In SotW it also answers all earlier messages. In delta a client
// that answers in order has already answered the earlier messages.
func (u *subscription) answered() bool {
	n := len(u.deliveries)
	return !u.unacked || n > 0 && u.deliveries[n-1].answered()
}

// deliver records a delivery that is sent now.
func (u *subscription) deliver(s *Session, d *delivery) {
	if len(u.deliveries) == maxDeliveries {
		s.evict(u)
		u.noteAll()
	}
	if u.answered() {
		u.silent = s.now
	}
	u.deliveries, u.unacked, u.nonce = append(u.deliveries, *d), true, d.last()
	u.noteContent(&d.cargo)
}

// letGo records that the client has unsubscribed from names. The client holds no resource with
// these names now, but it may subscribe again before the deliveries in flight arrive. A full state
// in flight also brings the names that it did not change.
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

// letGoAll records that the client has unsubscribed from the wildcard. From now on the client holds
// only names that have an entry. A client may drop the wildcard and subscribe again any number of
// times. So the cost is the number of entries and items, not the size of the table.
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
		var more []item // names with an entry keep the state that they had before this delivery
		for e := range u.entries() {
			if is := d.carries(e.name); is != nil && d.find(e.name) == nil {
				more = append(more, item{name: e.name, was: d.before(e.name), is: is})
			}
		}
		world := d.parts[0].world && d.beats == nil // a full state brings all names, changed or not
		d.whole, d.dropped = d.whole || world, true
		d.add(more)
	}
}

// evict makes room in the list for one more delivery. It drops a superseded delivery, or else a
// heartbeat. If the list has neither, evict joins the oldest delivery to the next one, because the
// client may still hold the states before the oldest.
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

// idleTalk reports whether an item of an older, joined delivery can be dropped, because the item
// removes a name that did not exist. The memory for such items must be limited: a client may
// subscribe to any number of such names and answer nothing.
func (u *subscription) idleTalk(d *delivery, it item) bool {
	return it.older && it.tellsNothing() && d.from.Get(it.name) == nil && d.to.Get(it.name) == nil &&
		!slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(it.name) })
}

// join returns the content of two consecutive deliveries, `a` and the later `b`, as one. The result
// has the states of b, and for each name the older state that the client may still hold.
func (u *subscription) join(a, b *delivery) cargo {
	c := cargo{from: a.from, to: b.to, whole: a.whole || b.whole, dropped: a.dropped}
	switch {
	case a.from == a.to && !a.whole: // the wildcard subscription began between a and b
		c.from, c.dropped = b.from, b.dropped
	case b.from == b.to && !b.whole: // the wildcard subscription ended between a and b
		c.to = a.to
	default:
		for was, is := range b.from.Since(a.to) { // these changes are between a and b: the client was not told
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
	// The client may hold the state of the older delivery, or the state before that delivery. Only
	// one of the two is kept. A resource that no refusal records is preferred, because a refusal
	// keeps its own states.
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
		case c.dropped && !b.dropped && stands(was): // the name was added between a and b
			c.items = append(c.items, item{name: name, was: was, is: is})
		}
	}
	if answered := func(p part) bool { return p.fate != unanswered }; b.whole && slices.ContainsFunc(a.parts, answered) {
		for name, it := range b.each { // b sends all names again, and the client has answered for some of them in a
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
		case it.is == nil: // only the state in b counts
			c.items = append(c.items, item{name: it.name, was: b.before(it.name), is: is})
		default:
			c.items = append(c.items, item{name: it.name, was: before(it.name, it.is, is), is: is})
		}
	}
	slices.SortFunc(c.items, itemByName)
	return c
}
