package protocol

import (
	"hash/fnv"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// maxRefusals limits the refusals that are remembered for a type. If there are more, two
// consecutive refusals are merged. For a name in both, the merged refusal keeps the state before
// the older refusal and the state in the later refusal.
const maxRefusals = 16

// A refusal is the content of one refused message (DELTA-15, SOTW-5).
//
// While all members of a refusal are unchanged, no member is sent again. When one member changes,
// vanishes or is subscribed again, all members are sent again (retold), because the client may have
// applied some or none. Until the client accepts a member anew, it may hold the refused state of
// the name, or the state before.
//
// For a full-state type in SotW, each response has all names. There the whole state counts as
// refused until the client accepts a later full state. Terms: see doc.go.
//
// Invariant: left is the number of members. It is not zero.
type refusal struct {
	cargo
	part
	retold    bool
	left      int       // number of members
	tries     int       // number of earlier refusals of the same content
	text      uint64    // hash of the error text
	permanent bool      // the reason cannot pass by itself
	refusedAt time.Time // time of the NACK
	retried   bool      // the content is sent again, and the client has not answered yet
	retryAt   time.Time // time of the next retry; zero: none
	planned   time.Time // time of the retry of the back-off, if a hastened retry precedes it
	// Members that are held back alone, although the other members are sent again (HEAL-1).
	apart  map[string]bool
	lapsed []string // members that no subscription matches any more, and that the client may still hold
	// Former members of this refusal, or of a refusal that was merged into this one. True: the
	// client has unsubscribed from the name; if it subscribes again, all members are sent again.
	out map[string]bool
}

// has reports whether the name is a member.
func (r *refusal) has(name string) bool {
	is := r.Carries(name)
	if is == nil || !r.within(name, is) {
		return false
	}
	_, out := r.out[name]
	return !out
}

// moves reports whether all members are sent again when the name changes.
func (r *refusal) moves(name string) bool { return r.out[name] || r.has(name) }

// members yields the members and their items.
func (r *refusal) members(yield func(string, item) bool) {
	for name, it := range r.Each {
		if _, out := r.out[name]; !out && r.within(name, it.Is) && !yield(name, it) {
			return
		}
	}
}

// take removes a member: the client has unsubscribed from the name (given), or has accepted it. The
// cost does not depend on the number of members.
func (r *refusal) take(name string, given bool) {
	if !r.has(name) {
		return
	}
	if r.out == nil {
		r.out = map[string]bool{}
	}
	r.out[name] = given
	r.left--
	delete(r.apart, name)
}

// list returns a refusal of single names.
func list(items []item, nonce uint64, retold bool) refusal {
	slices.SortFunc(items, itemByName)
	r := refusal{cargo: cargo{Items: items}, retold: retold}
	r.nonce = nonce
	for _, it := range items {
		r.hi, r.last = max(r.hi, it.Name), max(r.last, it.Name)
	}
	r.count()
	return r
}

// count sets left and lapsed.
func (r *refusal) count() {
	for name, it := range r.members {
		r.left++
		if it.Lapsed {
			r.lapsed = append(r.lapsed, name)
		}
	}
}

// merge returns two consecutive refusals as one.
func merge(a, b refusal) refusal {
	items := make([]item, 0, a.left+b.left)
	for name, it := range a.members {
		if !b.has(name) {
			items = append(items, it)
		}
	}
	for name, it := range b.members {
		if a.has(name) {
			it.Was = a.Before(name)
		}
		items = append(items, it)
	}
	r := list(items, b.nonce, a.retold && b.retold)
	r.keepTries(&b)
	if !a.retryAt.IsZero() && (b.retryAt.IsZero() || a.retryAt.Before(b.retryAt)) {
		r.retryAt, r.planned = a.retryAt, a.planned
	}
	for _, it := range items {
		if b.apart[it.Name] || a.apart[it.Name] && !b.has(it.Name) {
			r.setApart(it.Name)
		}
	}
	r.out = formerMembers(&a, &b)
	for _, it := range items { // a former member of one refusal may be a member of the other
		delete(r.out, it.Name)
	}
	return r
}

// formerMembers returns the former members of two refusals, in the memory of one of them.
func formerMembers(a, b *refusal) map[string]bool {
	all, few := a.out, b.out
	if len(all) < len(few) {
		all, few = few, all
	}
	for name, given := range few {
		all[name] = given || all[name]
	}
	maps.DeleteFunc(all, func(name string, _ bool) bool { return a.neverWas(name) || b.neverWas(name) })
	return all
}

// neverWas reports whether the refusal only removes a name that did not exist. A client may
// unsubscribe from any number of such names, so they are not kept.
func (r *refusal) neverWas(name string) bool {
	it := r.Find(name)
	return it != nil && it.Is != nil && it.TellsNothing()
}

// refuse records that the client has refused message p of delivery d. It reports whether the client has
// refused the same content with the same text before.
func (s *Session) refuse(u *subscription, d *delivery, p *part, text string) (repeated bool) {
	if s.tellsWorld(u) && d.superseded {
		return false // the client has accepted a later full state
	}
	r := refusal{cargo: d.cargo, part: *p}
	r.Items = slices.Clone(d.Items) // the delivery may lose items later
	r.count()
	if d.beats != nil {
		var items []item
		for _, b := range d.beats {
			if p.within(b.Name, b.Stamp) {
				items = append(items, item{Name: b.Name, Was: b.Stamp, Is: b.Stamp})
			}
		}
		r = list(items, p.nonce, false)
	}
	if s.retries() {
		r.text = hashOf(text)
		r.permanent = CannotPass(text, func(word string) bool { return d.Carries(word) != nil || stands(u.told(word)) })
		repeated = u.countTries(&r)
		s.schedule(&r)
	}
	u.remember(s.variant, r)
	return repeated
}

// hashOf returns a hash of an error text.
func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, text)
	return h.Sum64()
}

// remember adds a refusal to the list, in the order of nonces. The rest of the function needs the
// refusal in the list, because stillHeld searches the list.
func (u *subscription) remember(v xds.Variant, refused refusal) {
	at := len(u.refusals)
	for at > 0 && u.refusals[at-1].nonce > refused.nonce {
		at--
	}
	u.refusals = slices.Insert(u.refusals, at, refused)
	r := &u.refusals[at]
	if v == xds.Delta || !u.typ.FullState {
		u.retellOthers(v, r)
	}
	for name, it := range r.members {
		u.Note(name)
		if !u.demand.covers(name) && !u.stillHeld(name) || u.phantom(it) {
			r.take(name, true)
			u.trace(u.Entry(name))
		}
	}
	if r.tries > 0 {
		u.absorb(at)
	}
	u.dropEmpty()
	u.limitRefusals()
}

// retellOthers marks members of a new refusal to be sent again if a newer state of another member was already sent:
// the client may not have applied them. A member accepted in a later response is no longer refused.
func (u *subscription) retellOthers(v xds.Variant, r *refusal) {
	later := u.laterThan(r.nonce)
	if !u.toldSince(r, later) {
		return
	}
	u.retell(r, func(name string, it item) bool { return same(u.told(name), it.Is) && !later(name) })
	for name := range r.members {
		if u.acceptedSince(v, r, name) && !later(name) {
			r.take(name, false)
		}
	}
}

// adoptRefused adds refusals of an earlier stream.
func (u *subscription) adoptRefused(all [][]item) {
	for _, items := range all {
		u.refusals = append(u.refusals, list(items, 0, true))
	}
	u.limitRefusals()
}

// phantom reports whether an item can be forgotten, because it removes a name that did not exist
// and that the client does not want by its own name. A wildcard does not count. If a refusal has a
// resource of that name, the item is not a phantom: the client may still hold that resource.
func (u *subscription) phantom(it item) bool {
	if e := u.Entry(it.Name); !it.TellsNothing() || e != nil && u.demand.wants(e) {
		return false
	}
	return !slices.ContainsFunc(u.refusals, func(r refusal) bool {
		return r.has(it.Name) && (stands(r.Before(it.Name)) || stands(r.Carries(it.Name)))
	})
}

// limitRefusals merges refusals while there are too many.
func (u *subscription) limitRefusals() {
	for len(u.refusals) > maxRefusals {
		u.joinRefusals()
	}
}

// joinRefusals merges two consecutive refusals: the oldest one that has no more members than the
// next, and this next one. So each time a name is copied, its new refusal is at least twice as
// large, and a name is copied only a few times.
func (u *subscription) joinRefusals() {
	at := 0
	for at < len(u.refusals)-2 && u.refusals[at].left > u.refusals[at+1].left {
		at++
	}
	u.refusals[at] = merge(u.refusals[at], u.refusals[at+1])
	u.refusals = slices.Delete(u.refusals, at+1, at+2)
	r := &u.refusals[at]
	for _, it := range r.Items {
		u.Note(it.Name)
	}
	r.Items = slices.DeleteFunc(r.Items, func(it item) bool { return u.phantom(it) }) // the merged refusal does not keep the states between the two
	r.left = len(r.Items)
	u.dropEmpty()
}

// absorb forgets the older refusals of which the refusal at index at has all members in the same state. So a
// client that refuses the same content for ever costs one refusal.
func (u *subscription) absorb(at int) {
	for i := 0; i < at; {
		a := &u.refusals[i]
		if !a.includedIn(&u.refusals[at]) {
			i++
			continue
		}
		for name := range a.members {
			u.inherit(name, a.Before(name), i+1, at)
		}
		u.refusals = slices.Delete(u.refusals, i, i+1)
		at--
	}
}

// inherit makes a state the state before the first of some refusals that has the name, because the session forgets
// an older one.
func (u *subscription) inherit(name string, was *xds.Stamp, from, to int) {
	for i := from; i <= to; i++ {
		r := &u.refusals[i]
		if !r.has(name) {
			continue
		}
		if it := r.Find(name); it != nil {
			it.Was = was
		} else {
			r.Add([]item{{Name: name, Was: was, Is: r.Carries(name)}})
		}
		return
	}
}

// hoard returns the number of names that are remembered only because of the client's behaviour.
// This number is limited like subscriptions (SAFE-1). The larger of two kinds counts: refused
// removals, and, in SotW, names that cannot be removed.
func (s *Session) hoard(u *subscription) (most int) {
	if s.forsakes(u) {
		most = len(u.leftovers)
	}
	for i := range u.refusals {
		most = max(most, u.refusals[i].left+len(u.refusals[i].out)-s.table(u.typ).Len())
	}
	return most
}

// laterThan returns a function that reports whether a delivery in flight, sent after a nonce, has a
// name. Removals that the delivery does not report do not count.
func (u *subscription) laterThan(nonce uint64) func(name string) bool {
	return func(name string) bool {
		for d := range u.underWay() {
			if d.first() > nonce && d.says(name) != nil {
				return true
			}
		}
		return false
	}
}

// acceptedSince reports whether another state of a name was sent after refusal r, and no later
// refusal has the name. The function ignores deliveries in flight.
func (u *subscription) acceptedSince(v xds.Variant, r *refusal, name string) bool {
	is := u.told(name)
	if same(is, r.Carries(name)) || is == others || is == absent && v == xds.SotW && !u.typ.FullState {
		return false // SotW does not report the removal
	}
	return !slices.ContainsFunc(u.refusals, func(o refusal) bool { return o.nonce > r.nonce && o.has(name) })
}

// toldSince reports whether any member of r was sent after the refusal, in another state or the
// same.
func (u *subscription) toldSince(r *refusal, later func(string) bool) bool {
	for name, it := range r.members {
		if !same(u.told(name), it.Is) || later(name) {
			return true
		}
	}
	return r.moved
}

// hasRefused reports whether a refusal has this state of a name.
func (u *subscription) hasRefused(name string, is *xds.Stamp) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(name) && same(r.Carries(name), is) })
}

// retell marks members to be sent again, if the client still wants them. The function `which`
// selects the members.
func (u *subscription) retell(r *refusal, which func(string, item) bool) {
	r.retold = true
	var extra []entry
	for name, it := range r.members {
		if r.apart[name] || !which(name, it) || u.Kept(name) != nil {
			continue
		}
		switch e := u.Entry(name); {
		case u.demand.matchesOthers(name): // the name now matches other resources, which have their own entries
		case e != nil:
			e.Repeat(true)
			u.Touch(e)
		case u.demand.covers(name): // by the wildcard
			extra = append(extra, entry{Name: name, Told: u.told(name), Nonce: names.Earlier, Again: true})
		case u.stillHeld(name): // the removal of the name is sent again
			u.addLeftover(name, leftover{why: unmatched})
			extra = append(extra, entry{Name: name, Told: absent, Nonce: names.Earlier, Again: true})
		}
	}
	u.addTouched(extra)
}

// toldGone reports whether the client was last told that a name does not exist. The name then needs
// no mark to be sent again: the next full state lacks it anyway, and a new subscription is marked
// already.
func (u *subscription) toldGone(name string) bool {
	e := u.Entry(name)
	return e != nil && e.Told == absent
}

// dissolve retells each refusal that one of the names concerns (see moves): all members are marked
// to be sent again. With world set, any name has this effect. dissolve reports whether there was
// such a refusal.
func (u *subscription) dissolve(world bool, names func(func(string) bool)) (any bool) {
	for i := range u.refusals {
		r := &u.refusals[i]
		if r.retold {
			continue
		}
		for n := range names {
			if world || r.moves(n) && !r.apart[n] {
				u.retell(r, func(name string, _ item) bool { return !world || !u.toldGone(name) })
				any = true
				break
			}
		}
	}
	return any
}

// forgive removes names from the refusals before a nonce, because the client has accepted newer
// states of these names.
func (u *subscription) forgive(nonce uint64, names iter.Seq2[string, item]) {
	if !slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.nonce < nonce }) {
		return
	}
	for name := range names {
		u.Note(name)
		for i := range u.refusals {
			if r := &u.refusals[i]; r.nonce < nonce {
				r.take(name, false)
			}
		}
	}
	u.dropEmpty()
}

// dropEmpty removes the refusals without members.
func (u *subscription) dropEmpty() {
	u.refusals = slices.DeleteFunc(u.refusals, func(r refusal) bool { return r.left == 0 })
}

// holdsBack reports whether any refusal prevents names from being sent.
func (u *subscription) holdsBack() bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return !r.retold })
}

// heldBack reports whether a refusal prevents a name from being sent.
func (u *subscription) heldBack(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return (!r.retold || r.apart[name]) && r.has(name) })
}

// refusedNew reports whether the client has refused a response that added the name.
func (u *subscription) refusedNew(name string) bool {
	return slices.ContainsFunc(u.refusals, func(r refusal) bool { return r.has(name) && !stands(r.Before(name)) })
}

// remembered returns the names that have records which are kept only while the client wants the
// name.
func (u *subscription) remembered() (names []string) {
	for _, of := range []iter.Seq[string]{maps.Keys(u.leftovers), u.AllKept, maps.Keys(u.unfed)} {
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
