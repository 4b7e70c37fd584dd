package protocol

import (
	"iter"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// maxRefusals bounds what is remembered of refused responses; beyond it two that
// follow each other become one, and of a name that both told of only what had been
// before both and what the later one said are remembered.
const maxRefusals = 16

// A refusal is what one refused message carried.
//
// "No version update after NACK": while all of it stays as it is, none of it is
// sent again; when one name changes, vanishes or is asked for again, all of it
// is (retold), for the client may have applied none or some. Until it accepts
// what it was told of them then, it may have of each name what was refused, and
// what was in force before.
//
// In SotW a type with full state is told whole each time: there the world is
// refused, until a later one is accepted.
//
// Invariant: left is the number of its members, and not zero.
type refusal struct {
	cargo
	part
	retold bool
	left   int             // how many names it has
	lapsed []string        // its items that nothing finds any more, though the client may have them still
	out    map[string]bool // no members, but names that it had, or what has become one with it; true: given up by the client: asked for again, they move what is left
}

// has reports whether the refusal has the name.
func (r *refusal) has(name string) bool {
	is := r.carries(name)
	if is == nil || !r.within(name, is) {
		return false
	}
	_, out := r.out[name]
	return !out
}

// moves reports whether all is told again when the name changes.
func (r *refusal) moves(name string) bool { return r.out[name] || r.has(name) }

// members yields the names of the refusal, and what was said of them.
func (r *refusal) members(yield func(string, item) bool) {
	for name, it := range r.each {
		if _, out := r.out[name]; !out && r.within(name, it.is) && !yield(name, it) {
			return
		}
	}
}

// take takes a name out that was accepted, or given up. What it costs does not depend on
// how many are left.
func (r *refusal) take(name string, given bool) {
	if !r.has(name) {
		return
	}
	if r.out == nil {
		r.out = map[string]bool{}
	}
	r.out[name] = given
	r.left--
}

// list returns a refusal of single names.
func list(items []item, nonce uint64, retold bool) refusal {
	slices.SortFunc(items, itemByName)
	r := refusal{cargo: cargo{items: items}, retold: retold}
	r.nonce = nonce
	for _, it := range items {
		r.hi, r.last = max(r.hi, it.name), max(r.last, it.name)
	}
	r.count()
	return r
}

// count looks at what it has.
func (r *refusal) count() {
	for name, it := range r.members {
		r.left++
		if it.lapsed {
			r.lapsed = append(r.lapsed, name)
		}
	}
}

// merge returns one refusal with the members of two in a row.
func merge(a, b refusal) refusal {
	items := make([]item, 0, a.left+b.left)
	for name, it := range a.members {
		if !b.has(name) {
			items = append(items, it)
		}
	}
	for name, it := range b.members {
		if a.has(name) {
			it.was = a.before(name)
		}
		items = append(items, it)
	}
	r := list(items, b.nonce, a.retold && b.retold)
	few := b.out
	r.out = a.out
	if len(r.out) < len(few) {
		r.out, few = few, r.out
	}
	for name, given := range few {
		r.out[name] = given || r.out[name]
	}
	for _, it := range items { // what is out of one may be in the other
		delete(r.out, it.name)
	}
	maps.DeleteFunc(r.out, func(name string, _ bool) bool { return a.neverWas(name) || b.neverWas(name) })
	return r
}

// neverWas reports whether of a name only that is told that it is not there, and was not: a
// client may give up any number of these.
func (r *refusal) neverWas(name string) bool {
	it := r.find(name)
	return it != nil && it.is != nil && it.tellsNothing()
}

// refuse notes that the client has not taken what a message carried.
func (u *subscription) refuse(v xds.Variant, d *delivery, p *part) {
	r := refusal{cargo: d.cargo, part: *p}
	r.items = slices.Clone(d.items)     // of which the delivery may lose some
	if v == xds.Delta && d.joined > 0 { // in SotW the last answer stands for all before
		r.without(d.unlisted)
	}
	r.count()
	if d.beats != nil {
		var items []item
		for _, b := range d.beats {
			if p.within(b.Name, b.Stamp) {
				items = append(items, item{name: b.Name, was: b.Stamp, is: b.Stamp})
			}
		}
		r = list(items, p.nonce, false)
	}
	if v == xds.SotW && u.typ.FullState && d.superseded {
		return // it has taken a later world
	}
	u.remember(v, r)
}

// remember adds a refusal, in the order of nonces. It is listed first, for what lapses is
// known by it.
func (u *subscription) remember(v xds.Variant, refused refusal) {
	u.wake() // what waits may be among what is refused, which is told again with that
	at := len(u.refusals)
	for at > 0 && u.refusals[at-1].nonce > refused.nonce {
		at--
	}
	u.refusals = slices.Insert(u.refusals, at, refused)
	r := &u.refusals[at]
	if later := u.laterThan(v, r.nonce); (v == xds.Delta || !u.typ.FullState) && u.toldSince(r, later) {
		// One of the names was told anew already. The others, which the client
		// may not have applied, would otherwise stay refused with it.
		u.retell(r, func(name string, it item) bool { return same(u.told(name), it.is) && !later(name) })
		for name := range r.members { // whatever it made of them, it has taken what it was told later
			if u.acceptedSince(v, r, name) && !later(name) {
				r.take(name, false)
			}
		}
	}
	for name, it := range r.members {
		u.stir(name)
		if !u.covers(name) && !u.lapses(name) || u.phantom(it) {
			r.take(name, true)
		}
	}
	u.dropEmpty()
	if len(u.refusals) > maxRefusals {
		u.joinRefusals()
	}
}

// phantom reports whether the client was told that something is gone which was not there,
// and does not ask for it by name any more: that a wildcard covers it says nothing. What it
// has refused to let go before may be there still.
func (u *subscription) phantom(it item) bool {
	if e := u.entry(it.name); !it.tellsNothing() || e != nil && u.wants(e) {
		return false
	}
	return !slices.ContainsFunc(u.refusals, func(r refusal) bool {
		return r.has(it.name) && (stands(r.before(it.name)) || stands(r.carries(it.name)))
	})
}

// joinRefusals makes one of the oldest that has no more names than the one after it,
// and that. So each name comes into one of twice the size, and is copied a few times
// however many are refused.
func (u *subscription) joinRefusals() {
	at := 0
	for at < len(u.refusals)-2 && u.refusals[at].left > u.refusals[at+1].left {
		at++
	}
	u.refusals[at] = merge(u.refusals[at], u.refusals[at+1])
	u.refusals = slices.Delete(u.refusals, at+1, at+2)
	r := &u.refusals[at]
	for _, it := range r.items {
		u.stir(it.name)
	}
	r.items = slices.DeleteFunc(r.items, func(it item) bool { return u.phantom(it) }) // what it had in between is taken for not held
	r.left = len(r.items)
	u.dropEmpty()
}

// hoard returns how many names are remembered for what the client does, beside those that
// there are and those that it asks for: what it gives up under a wildcard is kept until it is
// told what becomes of that, which it can delay by answering nothing; what it refuses to let
// go until it does; and what it cannot be told to be gone (SotW) until it drops the name.
func (u *subscription) hoard(t *xds.Table) int {
	most := max(len(u.dropped), len(u.orphans))
	for i := range u.refusals {
		most = max(most, u.refusals[i].left+len(u.refusals[i].out)-t.Len())
	}
	return most
}

// laterThan returns whether a name is under way in a delivery after a nonce. Of what
// is lost a type without full state says nothing in SotW.
func (u *subscription) laterThan(v xds.Variant, nonce uint64) func(name string) bool {
	var all []*delivery
	for d := range u.underWay() {
		if d.parts[0].nonce > nonce {
			all = append(all, d)
		}
	}
	return func(name string) bool {
		return slices.ContainsFunc(all, func(d *delivery) bool {
			is := d.carries(name)
			return is != nil && (stands(is) || v == xds.Delta || u.typ.FullState)
		})
	}
}

// acceptedSince reports whether the client was told otherwise of a name since, and has
// not refused that. What is under way is another matter.
func (u *subscription) acceptedSince(v xds.Variant, r *refusal, name string) bool {
	is := u.told(name)
	if same(is, r.carries(name)) || is == others || is == absent && v == xds.SotW && !u.typ.FullState {
		return false // by nothing is it told that it is lost
	}
	return !slices.ContainsFunc(u.refusals, func(o refusal) bool { return o.nonce > r.nonce && o.has(name) })
}

// toldSince reports whether the client was told anything of a name since: other
// content, or the same once more.
func (u *subscription) toldSince(r *refusal, later func(string) bool) bool {
	for name, it := range r.members {
		if !same(u.told(name), it.is) || later(name) {
			return true
		}
	}
	return r.moved
}

// hasRefused reports whether just that was refused of a name.
func (u *subscription) hasRefused(name string, is *xds.Stamp) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(name) && same(r.carries(name), is) })
}

// retell makes members of a refusal be told again, if they are still wanted.
func (u *subscription) retell(r *refusal, which func(string, item) bool) {
	r.retold = true
	var extra []entry
	for name, it := range r.members {
		if !which(name, it) || u.leaving[name] != nil {
			continue
		}
		switch e := u.entry(name); {
		case u.matches[name] != nil: // it finds others now, which have entries of their own
		case e != nil:
			e.repeat(true)
			u.mark(e)
		case u.wildcard:
			extra = append(extra, entry{name: name, told: u.told(name), sent: true, again: true})
		case u.lapses(name): // it is told to be gone again
			u.lapseName(name)
			extra = append(extra, entry{name: name, told: absent, sent: true, again: true})
		}
	}
	u.addMarked(extra)
}

// toldGone reports whether the client has nothing of a name, as far as it was told. A world
// says so again by what it lacks; what was asked for since is told in any case.
func (u *subscription) toldGone(name string) bool {
	e := u.entry(name)
	return e != nil && e.told == absent
}

// dissolve ends the refusals of which one of the names has moved, and reports
// whether there were any: all their names are to be told again. In a world all are.
func (u *subscription) dissolve(world bool, names func(func(string) bool)) (any bool) {
	for i := range u.refusals {
		r := &u.refusals[i]
		if r.retold {
			continue
		}
		for n := range names {
			if world || r.moves(n) {
				u.retell(r, func(name string, _ item) bool { return !world || !u.toldGone(name) })
				any = true
				break
			}
		}
	}
	return any
}

// forgive takes names out of what was refused before a nonce, and was told again: the
// client has accepted that.
func (u *subscription) forgive(nonce uint64, names iter.Seq2[string, item]) {
	if !slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.nonce < nonce }) {
		return
	}
	for name := range names {
		u.stir(name)
		for i := range u.refusals {
			if r := &u.refusals[i]; r.nonce < nonce {
				r.take(name, false)
			}
		}
	}
	u.dropEmpty()
}

// dropEmpty forgets the refusals that have no names.
func (u *subscription) dropEmpty() {
	u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.left == 0 })
}

// holdsBack reports whether a refusal keeps names from being told.
func (u *subscription) holdsBack() bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return !r.retold })
}

// heldBack reports whether a refusal keeps a name from being told.
func (u *subscription) heldBack(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return !r.retold && r.has(name) })
}

// refusedNew reports whether the client has refused a response that brought the
// name for the first time.
func (u *subscription) refusedNew(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(name) && !stands(r.before(name)) })
}

// remembered returns the names of which something is remembered as long as they are wanted.
func (u *subscription) remembered() (names []string) {
	for _, of := range []iter.Seq[string]{maps.Keys(u.lapsed), maps.Keys(u.leaving), maps.Keys(u.unfed), maps.Keys(u.orphans)} {
		names = slices.AppendSeq(names, of)
	}
	for _, st := range u.brought {
		names = append(names, st.Name)
	}
	for i := range u.refusals {
		for name := range u.refusals[i].members {
			names = append(names, name)
		}
	}
	return names
}

// dropUnwanted forgets what is remembered of names that the client does not want
// any more.
func (u *subscription) dropUnwanted() {
	u.bringLess()
	if len(u.quit) == 0 {
		return
	}
	quit := u.takeQuit()
	for i := range u.refusals { // by the name that was dropped it may have had these
		quit = append(quit, u.refusals[i].lapsed...)
	}
	if u.idle() {
		quit = u.remembered()
	}
	var given []string
	for _, name := range quit {
		u.stir(name)
		if u.entry(name) == nil {
			u.unlapse(name)
		}
		if u.covers(name) {
			for i := range u.refusals {
				if r := &u.refusals[i]; r.has(name) && u.phantom(item{name: name, was: r.before(name), is: r.carries(name)}) {
					r.take(name, true)
				}
			}
			continue
		}
		u.fed(name)
		given = append(given, name)
		u.unorphan(name)
		if !u.lapsed[name] {
			u.leaveNot(name)
		}
		if u.lapses(name) {
			continue
		}
		for i := range u.refusals {
			u.refusals[i].take(name, true)
		}
	}
	u.brought = except(u.brought, given)
	u.dropEmpty()
}
