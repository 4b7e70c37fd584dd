package protocol

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

const (
	// patience is how long a response may stay unanswered before the newest
	// state goes out all the same.
	patience = 5 * time.Second

	// silence is how long a client may leave a type unanswered before others stop
	// waiting for it: what it might refer to is withdrawn, what refers to it is
	// sent. A NACK is no silence.
	silence = 15 * time.Second

	// maxDeliveries is how many unanswered responses of a type stay listed, so
	// that late answers find theirs.
	maxDeliveries = 4
)

// A fate is what became of a message.
type fate uint8

const (
	unanswered fate = iota
	accepted
	refused
	passed // SotW: a later one was accepted, which stands for all before; its own answer may still come
)

// A part is one message of a delivery: the upserts from lo to hi, by name, and
// removals from gone to last; or a world.
type part struct {
	nonce      uint64
	lo, hi     string
	gone, last string
	world      bool // it told of every name: what it lacks is gone
	moved      bool // the client has accepted something later of one of its names
	fate       fate
}

// within reports whether the message told of a name what the delivery did.
func (p *part) within(name string, is *xds.Stamp) bool {
	switch {
	case p.world:
		return true
	case is == absent:
		return p.gone <= name && name <= p.last
	}
	return p.lo <= name && name <= p.hi
}

// A delivery is a response that the client has not answered yet: one message, or
// several if it was split.
//
// Invariant: of what it told of a name one message told, which is none if only the name is
// gone and SotW does not say so, or if what it has become one with told it.
type delivery struct {
	cargo
	parts   []part // one at least, by nonce
	version string
	sent    time.Time
	beats   []*xds.Resource // it is a heartbeat of these; nil: it is none
	stuck   uint64          // the nonce by which a cluster in it was sent that has no assignment to give, so that no ACK is to be expected; zero: none

	joined uint64 // the newest nonce of what it has become one with, before its own; zero: none
	own    cargo  // what the delivery carried before that, without items

	untold bool // no message says that a name is gone (SotW, types without full state)

	// A later delivery was answered: nothing waits for this one, and what was
	// before it is not held.
	superseded bool

	finding *finding // what of it names find that no resource has; nil: that was not asked
}

// addPart adds a message behind the others.
func (d *delivery) addPart(p part) { d.parts = append(d.parts, p) }

// expectNone notes that it is stuck, and by which nonce.
func (d *delivery) expectNone(nonce uint64) { d.stuck = nonce }

// keepFinding keeps what names find of it in a view.
func (d *delivery) keepFinding(f finding) { d.finding = &f }

// overtaken takes names out of which something later was accepted.
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

// lapse notes that nothing finds any more what it told to be gone: the client has not given
// that up.
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

// answers reports whether the answer to a message is that to what was told of a name. What
// only a delivery told that is not listed any more has none of its own.
func (d *delivery) answers(p *part, name string, is *xds.Stamp) bool {
	return p.within(name, is) || !d.tells(name, is)
}

// open reports whether the message that told of a name is not answered: "each
// nonce is settled by itself".
func (d *delivery) open(name string, is *xds.Stamp) bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate != unanswered && p.within(name, is) })
}

// tells reports whether one of its messages told of a name.
func (d *delivery) tells(name string, is *xds.Stamp) bool {
	if d.joined > 0 {
		if it := d.find(name); it != nil && it.older || it == nil && d.own.carries(name) == nil {
			return false
		}
	}
	return slices.ContainsFunc(d.parts, func(p part) bool { return p.within(name, is) })
}

// says returns what a message said of a name, or nil.
func (d *delivery) says(name string) *xds.Stamp {
	if is := d.carries(name); is != absent || !d.untold {
		return is
	}
	return nil
}

// unlisted yields what only a delivery told that is not listed any more.
func (d *delivery) unlisted(yield func(string, item) bool) {
	for name, it := range d.each {
		if d.says(name) != nil && !d.tells(name, it.is) && !yield(name, it) {
			return
		}
	}
}

// keepUnlisted leaves of it what only a delivery told that is not listed any more, and reports
// whether that is anything.
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

// accepted reports whether the client has accepted all of its messages.
func (d *delivery) accepted() bool {
	return !slices.ContainsFunc(d.parts, func(p part) bool { return p.fate != accepted && p.fate != passed })
}

// answered reports whether the client has answered its newest message.
func (d *delivery) answered() bool { return d.parts[len(d.parts)-1].fate != unanswered }

// last is the delivery's newest nonce.
func (d *delivery) last() uint64 { return d.parts[len(d.parts)-1].nonce }

// answered reports whether the client owes no answer to the newest message. In SotW the
// last answer stands for all, and who answers in order has answered the others.
func (u *subscription) answered() bool {
	n := len(u.deliveries)
	return !u.unacked || n > 0 && u.deliveries[n-1].answered()
}

// deliver notes that a delivery leaves.
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

// letGo notes that the client has dropped names: what it had of them is gone, though it
// may ask for them again before what is on its way arrives. A world brings them, too, of
// which it told nothing new.
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

// letGoAll notes that the client has dropped what it had by way of the wildcard: all that
// has no entry any more. It costs what has one, and what was told beside the table, not what
// the table has: a client may drop the wildcard, and ask for it again, without end.
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
		var more []item // what has an entry keeps what it had
		for e := range u.entries() {
			if is := d.carries(e.name); is != nil && d.find(e.name) == nil {
				more = append(more, item{name: e.name, was: d.before(e.name), is: is})
			}
		}
		world := d.parts[0].world && d.beats == nil // it brings all, changed or not
		d.whole, d.dropped = d.whole || world, true
		d.add(more)
	}
}

// evict makes room for a delivery: one of which nothing more is to be learned, a
// heartbeat, or the oldest. What was in force before that one the client may
// still have.
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

// idleTalk reports whether nothing can come of what a delivery that is not listed any more
// said: that a name is gone which was not there. A client may ask for any number of these,
// and answer nothing.
func (u *subscription) idleTalk(d *delivery, it item) bool {
	return it.older && it.tellsNothing() && d.from.Get(it.name) == nil && d.to.Get(it.name) == nil &&
		!slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(it.name) })
}

// join returns what two deliveries in a row carried: what the later one did, and
// what the client may have had before that.
func (u *subscription) join(a, b *delivery) cargo {
	c := cargo{from: a.from, to: b.to, whole: a.whole || b.whole, dropped: a.dropped}
	switch {
	case a.from == a.to && !a.whole: // a wildcard began in between
		c.from, c.dropped = b.from, b.dropped
	case b.from == b.to && !b.whole: // or ended
		c.to = a.to
	default:
		for was, is := range b.from.Since(a.to) { // the client was told nothing of these
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
	// Of what was before either and what only the older one said it may have one or
	// the other; one is remembered: not that it had nothing, nor what its refusal tells.
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
		case old != nil && b.says(name) == nil: // that it is gone no message says
			c.items = append(c.items, item{name: name, was: a.before(name), is: old, older: true})
		case old != nil:
			c.items = append(c.items, item{name: name, was: before(name, old, is), is: is})
		case c.dropped && !b.dropped && stands(was): // it came by that later
			c.items = append(c.items, item{name: name, was: was, is: is})
		}
	}
	if answered := func(p part) bool { return p.fate != unanswered }; b.whole && slices.ContainsFunc(a.parts, answered) {
		for name, it := range b.each { // it has some of what is told again
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
		case it.is == nil: // all that counts is what the later one did
			c.items = append(c.items, item{name: it.name, was: b.before(it.name), is: is})
		default:
			c.items = append(c.items, item{name: it.name, was: before(it.name, it.is, is), is: is})
		}
	}
	slices.SortFunc(c.items, itemByName)
	return c
}
