package protocol

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A want is what a client wants of one type: everything, names, and what stands
// behind names (see matching).
//
// A name is wanted for one of three reasons, which are kept apart: the client
// subscribes to it (entry.named), a wildcard under another type stands for it
// (scopes), or a subscribed name finds the resource that is called so
// (entry.matched).
//
// Invariant: a wildcard is of everything or of scopes, not of both; each of the scopes has an
// entry, and each name in dropped, of which there is none without a wildcard.
type want struct {
	wildcard bool            // subscribed to "*"
	implicit bool            // no name was ever subscribed, so that "*" may be implied; then named is zero
	moved    bool            // the interest, since Interests was called
	scopes   map[string]bool // collections that a wildcard stands for, instead of everything; nil: it does not
	said     spelling        // SotW: the names of the last request
	named    int32           // how many entries are named

	// Names that the client dropped though a wildcard covers what is called so,
	// until it is told what becomes of them.
	droppedSize int32 // how long these names are together
	dropped     map[string]bool

	toggled []string // names the client subscribed to or dropped, since scope was last asked; none after a request
	quit    []string // names that may be wanted no more, since dropUnwanted was last asked
	gaveUp  uint64   // at most nonce, the newest, as it was when the client last dropped something: what was sent later it did not drop on its way

	shift *shift // which names have moved; nil unless moved, and perhaps then
}

// A shift is how the interest in names has moved since Interests was called.
type shift struct{ added, removed []string }

// shifts returns the shift, to which something is to be added.
func (w *want) shifts() *shift {
	if w.shift == nil {
		w.shift = new(shift)
	}
	return w.shift
}

// imply makes everything wanted, since the first request says nothing.
func (w *want) imply() { w.wildcard, w.moved = true, true }

// takeQuit returns the names that may be wanted no more, and forgets them.
func (w *want) takeQuit() (names []string) {
	names, w.quit = w.quit, nil
	return names
}

// wants reports whether an entry is wanted by its name.
func (u *subscription) wants(e *entry) bool { return e.named || e.matched > 0 || u.scopes[e.name] }

// idle reports whether the client wants nothing of the type, at present.
func (u *subscription) idle() bool { return !u.wildcard && u.named == 0 && u.scopes == nil }

// covers reports whether the client wants what is called so.
func (u *subscription) covers(name string) bool {
	if u.wildcard {
		return true
	}
	e := u.entry(name)
	return e != nil && u.wants(e)
}

// shows reports whether the subscription covers a resource of the view: those
// on demand are part of no wildcard.
func (u *subscription) shows(r *xds.Resource) bool {
	if r == nil || !r.OnDemand {
		return r != nil
	}
	e := u.entry(r.Name)
	return e != nil && u.wants(e)
}

// A spelling tells lists of the same names from others, whatever their order: it
// is the number of the names and the sum of their hashes.
type spelling struct {
	count int
	sum   uint64
}

var seed = maphash.MakeSeed()

func spell(names []string) spelling {
	s := spelling{count: len(names)}
	for _, n := range names {
		s.sum += maphash.String(seed, n)
	}
	return s
}

// replace makes names the complete subscription (SotW).
func (u *subscription) replace(names []string, t *xds.Table) {
	if len(names) == 0 && u.implicit {
		return // still the legacy spelling of "*", or nothing at all
	}
	u.implicit = false
	said := spell(names)
	if said == u.said {
		return // as in nearly every ACK
	}
	u.said = said
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	star := false
	if i, ok := slices.BinarySearch(names, xds.Wildcard); ok {
		star, names = true, slices.Delete(names, i, i+1)
	}
	var fresh, dropped []string
	i := 0
	for e := range u.entries() {
		if !e.named {
			continue
		}
		for i < len(names) && names[i] < e.name {
			fresh = append(fresh, names[i])
			i++
		}
		if i < len(names) && names[i] == e.name {
			i++
		} else {
			dropped = append(dropped, e.name)
		}
	}
	fresh = append(fresh, names[i:]...)
	if len(fresh)+len(dropped) > 0 || star != u.wildcard {
		u.state("") // it asks for something else
	}
	// What comes to be wanted comes first: what was covered and still is, by another
	// name, the client keeps.
	if star && !u.wildcard {
		u.subscribeAll(t)
	}
	// "When the client sends a new request that changes the set of resources
	// being requested, the server must resend any newly requested resources,
	// even if it previously sent those resources without having been asked".
	u.subscribe(fresh, t)
	if u.wildcard && !star {
		u.unsubscribeAll(func(*entry) bool { return false })
	}
	u.drop(dropped, xds.SotW)
}

// subscribe adds names; each is told again, whatever the client holds: "the
// client may have 'forgotten' those resources despite apparently remaining
// subscribed".
func (u *subscription) subscribe(names []string, t *xds.Table) {
	if len(names) > 0 {
		u.implicit = false
		u.ask()
	}
	if slices.Contains(names, xds.Wildcard) {
		u.subscribeAll(t)
	}
	var extra []entry
	for _, n := range names {
		if n == xds.Wildcard {
			continue
		}
		if e := u.entry(n); e != nil {
			u.name(e, true)
			e.repeat(true)
			u.mark(e)
			continue
		}
		told := absent
		if u.wildcard {
			told = u.told(n)
		} else if is := u.coming(n); stands(is) {
			told = is // given up meanwhile, it arrives all the same
		}
		if r := t.Lookup(n); r != nil {
			n = r.Name // the table's string is shared by all streams
		} else {
			n = strings.Clone(n)
		}
		extra = append(extra, entry{name: n, told: told, sent: told != absent, again: true})
	}
	if len(extra) == 0 {
		return
	}
	slices.SortFunc(extra, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	extra = slices.CompactFunc(extra, func(a, b entry) bool { return a.name == b.name })
	for i := range extra {
		u.name(&extra[i], true)
		u.mark(&extra[i])
	}
	u.add(extra...)
}

// subscribeAll makes everything wanted. Everything is told again.
func (u *subscription) subscribeAll(t *xds.Table) {
	if !u.wildcard {
		u.arrives(t)
	}
	u.wildcard, u.moved = true, true
	u.askAll()
	u.moveAll()
	for e := range u.entries() {
		e.repeat(e.again || e.told != absent && u.leaving[e.name] == nil)
		u.mark(e)
	}
}

// arrives counts as told what was given up on its way, now that everything is asked for: it
// arrives all the same. Most of that is the table of the newest response that told of all;
// others are what else there is to know of single names. So it costs what has changed since,
// or was told beside the table. After a world comes another, which tells of all.
func (u *subscription) arrives(t *xds.Table) {
	if !u.mayHaveGivenUp() {
		return
	}
	for d := range u.underWay() {
		if d.whole && !d.parts[0].world {
			u.rebase(d.to)
		}
	}
	others := map[string]*xds.Stamp{}
	look := func(name string) {
		if u.entry(name) != nil {
			return
		}
		is := absent
		if _, said := u.bringer(name); said != nil {
			is = said
		}
		if is != cmp.Or(u.base.Get(name), absent) {
			others[name] = is
		}
	}
	for d := range u.underWay() {
		if d.parts[0].world {
			continue
		}
		for _, it := range d.items {
			look(it.name)
		}
		switch {
		case u.base == nil:
			for name := range d.each {
				look(name)
			}
		case d.whole || d.from != d.to:
			for was, is := range u.base.Since(d.to) {
				look(cmp.Or(is, was).Name)
			}
		}
	}
	if u.base != nil {
		for was, is := range t.Versions().Since(u.base) { // something may come to refer to what is lost
			if is == nil && u.entry(was.Name) == nil && others[was.Name] == nil {
				others[was.Name] = was
			}
		}
	}
	extra := make([]entry, 0, len(others))
	for name, is := range others {
		extra = append(extra, entry{name: name, told: is, sent: is != absent})
	}
	u.add(extra...)
}

// mayHaveGivenUp reports whether the client has dropped anything since the oldest delivery left.
func (u *subscription) mayHaveGivenUp() bool {
	return len(u.deliveries) > 0 && u.deliveries[0].parts[0].nonce <= u.gaveUp
}

// bringer returns the newest delivery that tells of a name given up meanwhile, and what it
// tells; nil if none does.
func (u *subscription) bringer(name string) (last *delivery, is *xds.Stamp) {
	for d := range u.underWay() {
		if said := d.carries(name); said != nil && !d.parts[0].world {
			last, is = d, said
		}
	}
	return last, is
}

// unsubscribeAll ends the wildcard. By another name the client still has, and wants, what is
// left to it: a collection, or an alias.
func (u *subscription) unsubscribeAll(left func(*entry) bool) {
	u.wildcard, u.implicit, u.moved = false, false, true
	u.dropAll()
	u.moveAll()
	u.rebase(nil)
	u.gaveUp = u.nonce
	for e := range u.entries() {
		if left(e) { // it may be lost, and not told so
			u.lapse(e)
		}
	}
	u.removeFunc(func(e *entry) bool { return !u.wants(e) && !u.lapsed[e.name] })
	for name := range u.dropped {
		if u.entry(name) == nil { // of these nothing is told any more
			u.regain(name)
		}
	}
	u.letGoAll()
	u.quit = append(u.quit, u.remembered()...)
}

// unsubscribe drops names (delta).
func (s *Session) unsubscribe(u *subscription, names []string, t *xds.Table) {
	if len(names) == 0 {
		return
	}
	if len(names) > 8 { // a name that is listed many times is looked up once
		names = slices.Compact(slices.Sorted(slices.Values(names)))
	}
	var dropped []string
	for _, n := range names { // they say what the client has, by the wildcard that it gives up, too
		// "It can simply ignore these phantom unsubscriptions."
		dropped = append(dropped, s.unsubscribedBy(u, t, n)...)
	}
	if slices.Contains(names, xds.Wildcard) {
		u.implicit = false
		scopes := slices.Sorted(maps.Keys(u.scopes))
		u.scopes = nil
		for _, c := range scopes {
			u.leaveScope(c, true)
		}
		if len(scopes) > 0 {
			unwanted := map[string]bool{}
			for n := range u.dropped { // it is not told what becomes of that: no wildcard is left
				u.regain(n)
				if !u.covers(n) {
					unwanted[n] = true
				}
			}
			u.discard(unwanted)
		}
		if u.wildcard {
			s.enterLost(u, t)
			u.unsubscribeAll(func(e *entry) bool { return u.collects(e.name) || len(s.aliasesOf(u, e.name)) > 0 })
		}
	}
	s.outlive(u, t, dropped)
	u.drop(dropped, xds.Delta)
	s.giveUpLapsed(u)
}

// enterLost gives an entry to what the wildcard has told, which is about to end, and the view
// has lost since, if the client has it by another name: it is told so by that.
func (s *Session) enterLost(u *subscription, t *xds.Table) {
	if u.base == t.Versions() {
		return
	}
	var extra []entry
	for _, n := range t.Since(u.base).Removed {
		if u.entry(n) == nil && (u.collects(n) || len(s.aliasesOf(u, n)) > 0) {
			extra = append(extra, entry{name: n, told: u.told(n), sent: true})
		}
	}
	u.addMarked(extra)
}

// outlive notes what the client drops by a name, but has by another as it was told of it, by
// which the view does not find it any more: it is told what becomes of that.
func (s *Session) outlive(u *subscription, t *xds.Table, dropped []string) {
	if u.wildcard || u.scopes != nil || len(dropped) == 0 {
		return
	}
	gone := make(map[string]bool, len(dropped))
	for _, n := range dropped {
		gone[n] = true
	}
	look := func(name string) {
		e := u.entry(name)
		if e == nil || !stands(e.told) || u.current(t, name, e.told) {
			return
		}
		if u.collects(name) && !gone[u.typ.Collection(name)] || slices.ContainsFunc(s.aliasesOf(u, name), func(n string) bool { return !gone[n] }) {
			u.lapse(e)
		}
	}
	for n := range gone {
		look(n)
		for r := range u.matches[n].All() {
			look(r.Name)
		}
	}
}

// drop ends the subscription to names.
func (u *subscription) drop(dropped []string, v xds.Variant) {
	if len(dropped) == 0 {
		return
	}
	unwanted := map[string]bool{}
	for _, n := range dropped {
		e := u.entry(n)
		if e == nil || !e.named {
			continue // it was dropped twice
		}
		u.name(e, false)
		switch {
		case e.matched > 0 || u.wildcard || u.scopes != nil || v == xds.Delta && stands(e.told) && (u.collects(n) || u.lapsed[n]):
			if v == xds.Delta && (u.wildcard || u.scopes != nil) && u.matches[n] == nil {
				// "The server must send a response that includes the specific
				// resource in either the removed_resources field (if it is not
				// included in the wildcard) or in the resources field".
				u.giveUp(e)
			}
			u.mark(e) // the wildcard need not cover it
		default:
			unwanted[n] = true
		}
		if u.matches[n] != nil && !u.scopes[n] { // else the client still wants everything under a route
			u.unmatch(n, true)
		}
	}
	u.discard(unwanted)
}

// discard forgets what the client has dropped with all that made it want that.
func (u *subscription) discard(unwanted map[string]bool) {
	for n := range unwanted {
		u.stir(n)
		u.regain(n) // before it was asked for again, under a wildcard that is gone, too
	}
	u.letGo(unwanted)
	if len(unwanted) > 8 {
		u.removeFunc(func(e *entry) bool { return unwanted[e.name] && !u.wants(e) })
	} else {
		for n := range unwanted {
			if e := u.entry(n); e != nil && !u.wants(e) {
				u.names.remove(n)
			}
		}
	}
}

// giveUp notes that the client has dropped what is called so, by that name or by
// what found it, and a wildcard is left: it is told what becomes of it.
func (u *subscription) giveUp(e *entry) {
	if u.dropped == nil {
		u.dropped = map[string]bool{}
	}
	if !u.dropped[e.name] {
		u.dropped[e.name] = true
		u.droppedSize += int32(len(e.name))
	}
	e.repeat(true)
	u.ask()
}

// regain forgets that a name was given up: the client asks for it again, or is told what has
// become of it, or is not told of it any more.
func (u *subscription) regain(name string) {
	if u.dropped[name] {
		delete(u.dropped, name)
		u.droppedSize -= int32(len(name))
	}
}

// GivenUp returns how many names the session remembers since the client has given them up
// and was not told yet what becomes of them, and how many bytes these have. A client that
// answers nothing makes them more.
func (s *Session) GivenUp() (names, bytes int) {
	for _, u := range s.subs {
		names, bytes = names+len(u.dropped), bytes+int(u.droppedSize)
	}
	return names, bytes
}

// giveUpLapsed forgets what no name finds any more, and the client has dropped with the last
// name by which it has that: a wildcard, the collection, or an alias.
func (s *Session) giveUpLapsed(u *subscription) {
	if u.scopes != nil {
		return
	}
	unwanted := map[string]bool{}
	for name := range u.lapsed {
		if u.collects(name) || len(s.aliasesOf(u, name)) > 0 {
			continue
		}
		u.unlapse(name)
		u.quit = append(u.quit, name)
		if !u.covers(name) { // by its own name it may be wanted still
			unwanted[name] = true
		}
	}
	u.discard(unwanted)
}

// name notes that the client subscribes to a name, or drops it.
func (u *subscription) name(e *entry, named bool) {
	if e.named == named {
		return
	}
	was := u.wants(e)
	e.named = named
	if named {
		u.named++
		u.regain(e.name)
	} else {
		u.named--
	}
	u.toggled = append(u.toggled, e.name)
	u.notice(e, was)
}

// notice notes that the interest in a name may have moved.
func (u *subscription) notice(e *entry, was bool) {
	u.moved = true
	u.stir(e.name)
	if u.waiting.resting(e.name) {
		u.mark(e)
	}
	switch is := u.wants(e); {
	case is && !was:
		u.shifts().added = append(u.shifts().added, e.name)
	case was && !is:
		u.shifts().removed, u.quit = append(u.shifts().removed, e.name), append(u.quit, e.name)
		u.gaveUp = u.nonce
	}
}

// interest returns how the interest has moved since it was last asked. What has come
// and gone, or gone and come, has not moved.
func (u *subscription) interest() Interest {
	s := cmp.Or(u.shift, new(shift))
	i := Interest{Type: u.typ, Wildcard: u.wildcard, Added: s.added, Removed: s.removed}
	if len(i.Added) > 0 && len(i.Removed) > 0 {
		moved := map[string]int{}
		for _, n := range s.added {
			moved[n]++
		}
		for _, n := range s.removed {
			moved[n]--
		}
		others := func(by int) func(string) bool { // all but the first of each name that moved so
			return func(n string) bool {
				if moved[n] != by {
					return true
				}
				moved[n] = 0
				return false
			}
		}
		i.Added, i.Removed = slices.DeleteFunc(s.added, others(1)), slices.DeleteFunc(s.removed, others(-1))
	}
	u.moved, u.shift = false, nil
	return i
}
