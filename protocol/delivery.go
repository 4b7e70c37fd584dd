package protocol

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
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

// An item is what a response said of one name, and what had been told before: a
// stamp, or absent. If is is nil it said nothing.
type item struct {
	name    string
	was, is *xds.Stamp
	lapsed  bool // that it is gone since nothing finds it any more: the client has not given it up
	older   bool // only what has become one with the response said so
}

// tellsNothing reports whether the client may have nothing of the name, before and after.
func (it *item) tellsNothing() bool { return !stands(it.was) && !stands(it.is) && !it.lapsed }

// A cargo is what a response carried, in the size of two pointers for a
// wildcard: the names in which from and to differ, or all of to, and items,
// which override.
type cargo struct {
	from, to *xds.Versions
	whole    bool   // all of to was told, changed or not
	items    []item // by name
}

func itemByName(a, b item) int { return cmp.Compare(a.name, b.name) }

// find returns the item of a name, or nil.
func (c *cargo) find(name string) *item {
	i, ok := slices.BinarySearchFunc(c.items, name, func(it item, name string) int { return cmp.Compare(it.name, name) })
	if !ok {
		return nil
	}
	return &c.items[i]
}

// carries returns what the cargo said of a name, or nil.
func (c *cargo) carries(name string) *xds.Stamp {
	if it := c.find(name); it != nil {
		return it.is
	}
	if c.from == c.to && !c.whole {
		return nil
	}
	old, is := c.from.Get(name), c.to.Get(name)
	switch {
	case old == nil && is == nil:
		return nil
	case is == nil:
		return absent
	case !c.whole && old != nil && old.Sum == is.Sum:
		return nil
	}
	return is
}

// before returns what had been told of a name that the cargo carries.
func (c *cargo) before(name string) *xds.Stamp {
	if it := c.find(name); it != nil && it.was != nil {
		return it.was
	}
	return cmp.Or(c.from.Get(name), absent)
}

// each yields every name of the cargo.
func (c *cargo) each(yield func(string, item) bool) {
	for _, it := range c.items {
		if it.is != nil && !yield(it.name, it) {
			return
		}
	}
	tell := func(was, is *xds.Stamp) bool {
		name := cmp.Or(is, was).Name
		return c.find(name) != nil || yield(name, item{name: name, was: cmp.Or(was, absent), is: cmp.Or(is, absent)})
	}
	if c.whole {
		for is := range c.to.All() {
			if !tell(c.from.Get(is.Name), is) {
				return
			}
		}
	}
	for was, is := range c.to.Since(c.from) {
		if (is == nil || !c.whole) && !tell(was, is) {
			return
		}
	}
}

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
type delivery struct {
	cargo
	parts   []part
	version string
	sent    time.Time
	beats   []*xds.Resource // it is a heartbeat of these; nil: it is none
	stuck   uint64          // the nonce by which a cluster in it was sent that has no assignment to give, so that no ACK is to be expected; zero: none

	joined uint64 // the newest nonce of what it has become one with; zero: none
	own    cargo  // what the delivery carried before that, without items

	// A later delivery was answered: nothing waits for this one, and what was
	// before it is not held.
	superseded bool
}

// without takes names out.
func (c *cargo) without(names iter.Seq2[string, item]) {
	var out []item
	for name := range names {
		if it := c.find(name); it != nil {
			*it = item{name: name}
		} else if c.carries(name) != nil {
			out = append(out, item{name: name})
		}
	}
	if len(out) > 0 {
		c.items = append(c.items, out...)
		slices.SortFunc(c.items, itemByName)
	}
}

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
			own.lapsed = true
		default:
			it.lapsed = true
			more = append(more, it)
		}
	}
	if len(more) > 0 {
		d.items = append(d.items, more...)
		slices.SortFunc(d.items, itemByName)
	}
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

// unlisted yields what only a delivery told that is not listed any more.
func (d *delivery) unlisted(yield func(string, item) bool) {
	for name, it := range d.each {
		if !d.tells(name, it.is) && !yield(name, it) {
			return
		}
	}
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
func (u *subscription) deliver(s *Session, d delivery) {
	if len(u.deliveries) == maxDeliveries {
		s.evict(u)
	}
	if u.answered() {
		u.silent = s.now
	}
	u.deliveries, u.unacked, u.nonce = append(u.deliveries, d), true, d.last()
	u.moves++
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
		if len(more) > 0 {
			d.items = append(d.items, more...)
			slices.SortFunc(d.items, itemByName)
		}
	}
}

// letGoAll notes that the client has dropped what it had by way of the wildcard: all that
// has no entry any more.
func (u *subscription) letGoAll() {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		all := d.whole || d.parts[0].world && d.beats == nil
		var more []item
		for was, is := range d.to.Since(d.from) {
			if name := cmp.Or(is, was).Name; d.find(name) == nil && u.entry(name) == nil && (is == nil || !all) {
				more = append(more, item{name: name, was: absent, is: cmp.Or(is, absent)})
			}
		}
		for j := range d.items {
			if it := &d.items[j]; it.is != nil && u.entry(it.name) == nil {
				it.was = absent
			}
		}
		if all { // of what has no item it tells anew
			for e := range u.entries() {
				if is := d.carries(e.name); is != nil && d.find(e.name) == nil {
					more = append(more, item{name: e.name, was: d.before(e.name), is: is})
				}
			}
			d.from = nil
		}
		if len(more) > 0 {
			d.items = append(d.items, more...)
			slices.SortFunc(d.items, itemByName)
		}
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
	if i < 0 {
		i = 0
		old, next := &u.deliveries[0], &u.deliveries[1]
		next.stuck, next.joined = max(next.stuck, old.stuck), old.last()
		next.own = cargo{from: next.from, to: next.to, whole: next.whole}
		next.cargo = join(old, next)
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
func join(a, b *delivery) cargo {
	c := cargo{from: a.from, to: b.to, whole: a.whole || b.whole}
	switch {
	case a.from == a.to && !a.whole: // a wildcard began in between
		c.from = b.from
	case b.from == b.to && !b.whole: // or ended
		c.to = a.to
	default:
		for was, is := range b.from.Since(a.to) { // the client was told nothing of these
			if name := cmp.Or(is, was).Name; a.find(name) == nil && b.find(name) == nil && b.carries(name) == nil {
				it := item{name: name, older: true}
				if it.is = a.carries(name); it.is != nil {
					it.was = a.before(name)
				}
				c.items = append(c.items, it)
			}
		}
	}
	// Of what was before either and what only the older one said it may have one or
	// the other; one is remembered, and not that it had nothing.
	before := func(name string, old, is *xds.Stamp) *xds.Stamp {
		if was := a.before(name); a.open(name, old) && (stands(was) || same(old, is)) {
			return was
		}
		return old
	}
	for _, it := range b.items {
		switch old := a.carries(it.name); {
		case old == nil:
		case it.is == nil:
			it.was, it.is, it.older = a.before(it.name), old, true
		default:
			it.was = before(it.name, old, it.is)
		}
		c.items = append(c.items, it)
	}
	for was, is := range b.to.Since(b.from) {
		name := cmp.Or(is, was).Name
		if old := a.carries(name); old != nil && b.find(name) == nil {
			is = cmp.Or(is, absent)
			c.items = append(c.items, item{name: name, was: before(name, old, is), is: is})
		}
	}
	for _, it := range a.items {
		if b.find(it.name) == nil && b.carries(it.name) == nil {
			it.older = true
			c.items = append(c.items, it)
		}
	}
	slices.SortFunc(c.items, itemByName)
	return c
}

// message returns the message with a nonce that was not answered by itself, and its
// delivery.
func (u *subscription) message(nonce uint64) (d *delivery, p *part) {
	for i := range u.deliveries {
		for j := range u.deliveries[i].parts {
			if q := &u.deliveries[i].parts[j]; q.nonce == nonce && (q.fate == unanswered || q.fate == passed) {
				return &u.deliveries[i], q
			}
		}
	}
	return nil, nil
}

// acceptUnlisted notes that the client has taken what is not listed any more: what could
// not warm has warmed, what had become one with another is told, and a world takes the
// place of those refused before it, and of what it had from before.
func (u *subscription) acceptUnlisted(v xds.Variant, nonce uint64) {
	if v == xds.SotW && u.typ.FullState {
		u.vagueAll = false
		u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.nonce < nonce })
	}
	for i := range u.deliveries {
		d := &u.deliveries[i]
		if d.stuck <= nonce {
			d.stuck = 0
		}
		if d.joined == nonce {
			u.forgive(nonce, d.unlisted)
			if v == xds.SotW && u.typ.FullState { // it has all of that world, also if it refuses this one
				d.without(d.unlisted)
			}
		}
	}
}

// refuseUnlisted notes that the client has refused what is not listed any more, but has
// become one with another: of what that does not tell by itself it may have any, and its
// answer does not say. What else was refused with it nobody knows, so it is told again.
func (u *subscription) refuseUnlisted(v xds.Variant, nonce uint64) {
	for i := range u.deliveries {
		d := &u.deliveries[i]
		if d.joined < nonce {
			continue
		}
		var items []item
		for _, it := range d.unlisted {
			// Of what is not there, and was not, it may have nothing; and in SotW no response
			// makes a client lose what is gone.
			if stands(it.is) || v == xds.Delta && stands(it.was) {
				items = append(items, it)
			}
		}
		if len(items) == 0 {
			return
		}
		r := list(items, nonce, false)
		r.moved = true
		d.overtaken(r.members)
		u.remember(v, r)
		return
	}
}

// settle pairs an answer with its response.
func (u *subscription) settle(s *Session, req xds.Request) {
	n, err := strconv.ParseUint(req.Nonce, 10, 64)
	var d *delivery
	var p *part
	if err == nil {
		d, p = u.message(n)
	}
	if p == nil {
		if err == nil && n == u.nonce {
			return // a repeat at the newest nonce
		}
		// Of a message that is not listed any more. In SotW it may be the one that was
		// answered last, with other names.
		if n > 0 && n < u.nonce && (s.variant == xds.Delta || n > u.heard) { // no message has the nonce 0
			if req.Error == nil {
				u.acceptUnlisted(s.variant, n)
			} else {
				u.refuseUnlisted(s.variant, n)
			}
			u.silent, u.heard = s.now, max(u.heard, n)
		}
		s.event(Event{Kind: Stale, Type: u.typ, Nonce: req.Nonce})
		return
	}
	newest := d.last() == u.nonce
	u.silent, u.heard = s.now, max(u.heard, n)
	e := Event{Kind: Acked, Type: u.typ, Nonce: req.Nonce, Version: d.version, Took: s.now.Sub(d.sent), Settled: newest}
	// "NACK [...] is indicated by the presence of the error_detail field."
	if req.Error != nil {
		e.Kind, e.Error, e.InUse = Nacked, req.Error, req.Version
		p.fate = refused
		u.toldAll(d)
		u.refuse(s.variant, d, p)
	} else {
		p.fate = accepted
		s.accept(u, d, p)
		e.Refuses = len(u.refusals) > 0
	}
	s.event(e)
	if !d.settled() {
		return
	}
	at := slices.IndexFunc(u.deliveries, func(o delivery) bool { return o.last() == d.last() })
	if d.accepted() {
		for i := range at { // what was sent before has been dealt with
			o := &u.deliveries[i]
			s.pass(u, o)
			o.superseded = true
		}
	}
	u.unacked = u.unacked && !newest
	if d.superseded = slices.ContainsFunc(d.parts, func(p part) bool { return p.fate == passed }); d.superseded {
		return // some of it may still be refused
	}
	if u.deliveries = slices.Delete(u.deliveries, at, at+1); len(u.deliveries) == 0 {
		u.deliveries = nil
	}
}

// pass notes that the client has taken a delivery, for it has accepted a later one
// (SotW): "the last one stands for all".
func (s *Session) pass(u *subscription, d *delivery) {
	for i := range d.parts {
		if p := &d.parts[i]; s.variant == xds.SotW && p.fate == unanswered {
			p.fate = passed
			s.accept(u, d, p)
		}
	}
}

// accept notes that the client has taken what a message carried.
func (s *Session) accept(u *subscription, d *delivery, p *part) {
	if d.beats != nil && !p.world { // a heartbeat of a world is a world
		return
	}
	s.belated(u, d, p)
	u.learned(s.variant, d, p)
	told := func(yield func(string, item) bool) {
		for name, it := range d.each {
			if p.within(name, it.is) && !yield(name, it) {
				return
			}
		}
	}
	for i := range u.deliveries {
		if o := &u.deliveries[i]; o.last() < p.nonce && o.beats == nil {
			o.overtaken(told)
		}
	}
	if s.variant == xds.SotW && u.typ.FullState { // a world takes the place of all before
		u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.nonce < p.nonce })
		return
	}
	u.forgive(p.nonce, told)
}
