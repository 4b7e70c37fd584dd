package protocol

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A want is the client's subscription to one type: a wildcard, names, and the resources that names
// match (see matching). Terms: see doc.go.
//
// The client wants a name for one of three reasons, which are counted separately:
//   - named: the client subscribes to the name (Entry.Named)
//   - scoped: the name is a collection that stands for a wildcard under a parent type (scopes)
//   - matched: the resource has a subscribed alias or is in a subscribed collection (Entry.Matched)
//
// Invariant: a wildcard covers everything or scopes, not both. Each scope and each name in dropped
// has an entry. dropped is empty without a wildcard.
type want struct {
	wildcard bool            // subscribed to "*"
	implicit bool            // no name was ever subscribed, so "*" may be implied (SUB-2); named is zero
	moved    bool            // the subscription changed since Interests was called
	scopes   map[string]bool // collections that the wildcard covers instead of everything; nil: no scopes
	said     spelling        // SotW: identifies the set of names of the last request
	named    int32           // number of entries with named set
	asked    bool            // the client has subscribed, or unsubscribed under a wildcard, since the last response

	// Names that the client unsubscribed from while it has a wildcard. Each name stays here until
	// the client is told its state (DELTA-6).
	droppedSize int32 // their total length
	dropped     map[string]bool

	toggled []string // names that the client subscribed to or dropped since scope was called; empty after each request
	quit    []string // names that the client may have stopped wanting since dropUnwanted was called
	gaveUp  uint64   // the newest nonce at the last unsubscription: only responses up to this nonce may have been in flight then

	flipped []string // names that the client has started or stopped wanting since Interests was called; empty unless moved
}

// ask sets whether the client has subscribed since the last response (see asked).
func (w *want) ask(asked bool) { w.asked = asked }

// imply subscribes to the wildcard, as an empty first request does (SUB-2).
func (w *want) imply() { w.wildcard, w.moved = true, true }

// takeQuit returns and clears quit.
func (w *want) takeQuit() (names []string) {
	names, w.quit = w.quit, nil
	return names
}

// wants reports whether the client wants the name of an entry for one of the three reasons; the
// wildcard does not count.
func (u *subscription) wants(e *entry) bool { return e.Named || e.Matched > 0 || u.scopes[e.Name] }

// idle reports whether the client subscribes to nothing of the type.
func (u *subscription) idle() bool { return !u.wildcard && u.named == 0 && u.scopes == nil }

// covers reports whether the client wants a name; the wildcard counts.
func (u *subscription) covers(name string) bool {
	return u.wildcard || u.wantsName(name)
}

// wantsName is like covers, without the wildcard.
func (u *subscription) wantsName(name string) bool {
	e := u.Entry(name)
	return e != nil && u.wants(e)
}

// isNamed reports whether the client subscribes to a name.
func (u *subscription) isNamed(name string) bool {
	e := u.Entry(name)
	return e != nil && e.Named
}

// shows reports whether the subscription covers a resource of the view. A wildcard does not cover
// resources on demand (SUB-6).
func (u *subscription) shows(r *xds.Resource) bool {
	return r != nil && (!r.OnDemand || u.wantsName(r.Name))
}

// A spelling identifies a set of names by their number and the sum of their hashes. The order of
// the names does not matter.
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

// replace makes names the complete subscription (SotW, SUB-3).
func (u *subscription) replace(names []string, t *xds.Table) {
	if len(names) == 0 && u.implicit {
		return // the subscription is still the implicit "*", or none (SUB-2)
	}
	u.implicit = false
	said := spell(names)
	if said == u.said {
		return // unchanged, as in most ACKs
	}
	u.said = said
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	star := false
	if i, ok := slices.BinarySearch(names, xds.Wildcard); ok {
		star, names = true, slices.Delete(names, i, i+1)
	}
	before := u.Subscribed()
	fresh, dropped := minus(names, before), minus(before, names)
	if len(fresh)+len(dropped) > 0 || star != u.wildcard {
		u.state("") // the version that the client stated is for other names
	}
	// Subscribe first, then unsubscribe, so that the client keeps a resource that another name
	// still covers.
	if star && !u.wildcard {
		u.subscribeAll(t)
	}
	// "When the client sends a new request that changes the set of resources being requested, the
	// server must resend any newly requested resources, even if it previously sent those resources
	// without having been asked" (SOTW-10).
	u.subscribe(fresh, t)
	if u.wildcard && !star {
		u.unsubscribeAll(func(*entry) bool { return false })
	}
	u.drop(dropped, xds.SotW)
}

// minus returns the names that are not in others. Both lists are sorted.
func minus(names, others []string) []string {
	if len(others) == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, has := slices.BinarySearch(others, n); return has })
}

// subscribe adds names. Each name is sent again, whatever the client holds: "the client may have
// 'forgotten' those resources despite apparently remaining subscribed" (DELTA-4).
func (u *subscription) subscribe(names []string, t *xds.Table) {
	if len(names) == 0 {
		return
	}
	u.implicit = false
	u.ask(true)
	if slices.Contains(names, xds.Wildcard) {
		u.subscribeAll(t)
	}
	var extra []entry
	for _, n := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if n == xds.Wildcard {
			continue
		}
		if e := u.Entry(n); e != nil {
			u.name(e, true)
			e.Repeat(true)
			u.Touch(e)
			continue
		}
		told := u.told(n)
		if is := u.coming(n); stands(is) && !u.wildcard {
			told = is // the client unsubscribed while the resource was in flight: it arrives all the same
		}
		if r := t.Lookup(n); r != nil {
			n = r.Name // all streams share the string of the table
		} else {
			n = strings.Clone(n)
		}
		e := entry{Name: n, Told: told, Again: true}
		u.name(&e, true)
		u.Touch(&e)
		extra = append(extra, e)
	}
	u.add(extra...)
}

// subscribeAll subscribes to the wildcard. Everything is sent again.
func (u *subscription) subscribeAll(t *xds.Table) {
	if !u.wildcard {
		u.arrives(t)
	}
	u.wildcard, u.moved = true, true
	u.Renew(true)
	u.Owe(true)
	u.NoteAll()
	for e := range u.Entries() {
		e.Repeat(e.Again || e.Told != absent && u.Kept(e.Name) == nil)
		u.Touch(e)
	}
}

// arrives is called when the client subscribes to the wildcard. Earlier the client may have
// unsubscribed from names in flight. Their resources arrive all the same, so arrives counts these
// names as told.
//
// Most of these names are in the table of the newest response that sent everything. Only the names
// that differ from that table get entries, so the cost is the number of changes since then. A SotW
// response with the full state is skipped, because the next full state sends everything.
func (u *subscription) arrives(t *xds.Table) {
	if !u.mayHaveGivenUp() {
		return
	}
	for d := range u.underWay() {
		if d.Whole && !d.parts[0].world {
			u.rebase(d.To)
		}
	}
	extra := u.lostSinceBase(t)
	look := func(name string) {
		_, said := u.bringer(name)
		if is := cmp.Or(said, absent); u.Entry(name) == nil && is != u.told(name) {
			extra = append(extra, entry{Name: name, Told: is})
		}
	}
	for d := range u.underWay() {
		if d.parts[0].world {
			continue
		}
		for _, it := range d.Items {
			look(it.Name)
		}
		switch {
		case u.base == nil:
			for name := range d.Each {
				look(name)
			}
		case d.Whole || d.From != d.To:
			for was, is := range u.base.Since(d.To) {
				look(cmp.Or(is, was).Name)
			}
		}
	}
	u.add(extra...) // of several entries for a name the last one counts
}

// lostSinceBase returns entries for names of the wildcard's table that the view has lost and that have
// no entry: a new resource may still refer to them.
func (u *subscription) lostSinceBase(t *xds.Table) (lost []entry) {
	if u.base == nil {
		return nil
	}
	for was, is := range t.Versions().Since(u.base) {
		if is == nil && u.Entry(was.Name) == nil {
			lost = append(lost, entry{Name: was.Name, Told: was})
		}
	}
	return lost
}

// mayHaveGivenUp reports whether the client has unsubscribed from any name since the oldest listed
// delivery was sent.
func (u *subscription) mayHaveGivenUp() bool {
	return len(u.deliveries) > 0 && u.deliveries[0].parts[0].nonce <= u.gaveUp
}

// bringer returns the newest delivery in flight that has a name, and the state of the name in this
// delivery; nil if none has the name. Full states are skipped. The name is one that the client
// unsubscribed from.
func (u *subscription) bringer(name string) (last *delivery, is *xds.Stamp) {
	for d := range u.underWay() {
		if said := d.Carries(name); said != nil && !d.parts[0].world {
			last, is = d, said
		}
	}
	return last, is
}

// unsubscribeAll ends the wildcard. The function left returns true for entries that the client
// still holds and wants, because a collection or an alias also matches them.
func (u *subscription) unsubscribeAll(left func(*entry) bool) {
	u.wildcard, u.implicit, u.moved = false, false, true
	u.Renew(false)
	u.Owe(false)
	u.NoteAll()
	u.rebase(nil)
	u.gaveUp = u.nonce
	for e := range u.Entries() {
		if left(e) { // the view may have lost the resource, and the client was not told yet
			u.lapse(e)
		}
	}
	u.RemoveFunc(func(e *entry) bool { return !u.wants(e) && !u.isLeftover(e.Name, unmatched) })
	for name := range u.dropped {
		if u.Entry(name) == nil { // nothing is sent for this name any more
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
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var dropped []string
	// An alias is resolved to the resources that the client holds. That includes resources of a
	// wildcard that ends in this request.
	for _, n := range names {
		// "It can simply ignore these phantom unsubscriptions." (DELTA-5)
		dropped = append(dropped, s.unsubscribedBy(u, t, n)...)
	}
	star := slices.Contains(names, xds.Wildcard)
	if star && u.scopes != nil {
		u.leaveScopes(true)
		unsubscribed := slices.Collect(maps.Keys(u.dropped))
		for _, n := range unsubscribed { // without a wildcard, the client is not told their state
			u.regain(n)
		}
		u.discard(unsubscribed)
	}
	if star && u.wildcard {
		s.enterLost(u, t)
		u.unsubscribeAll(func(e *entry) bool { return s.isMatched(u, e.Name) })
	}
	s.outlive(u, t, dropped)
	u.drop(dropped, xds.Delta)
	s.giveUpLapsed(u)
}

// enterLost is called before a wildcard ends. It looks for names that were told only by way of the
// wildcard, that the view has lost, and that a subscribed alias or collection matches. Each of
// these names gets an entry, because its removal must still be sent.
func (s *Session) enterLost(u *subscription, t *xds.Table) {
	if u.base == t.Versions() {
		return
	}
	var extra []entry
	for _, n := range t.Since(u.base).Removed {
		if u.Entry(n) == nil && s.isMatched(u, n) {
			extra = append(extra, entry{Name: n, Told: u.told(n)})
		}
	}
	u.addTouched(extra)
}

// outlive handles names that the client unsubscribes from. The client may also hold the resource of
// such a name because of an alias or a collection which no longer matches the resource in the view.
// Then the removal of the resource must still be sent.
func (s *Session) outlive(u *subscription, t *xds.Table, dropped []string) {
	if u.wildcard || u.scopes != nil || len(dropped) == 0 {
		return
	}
	gone := make(map[string]bool, len(dropped))
	for _, n := range dropped {
		gone[n] = true
	}
	look := func(name string) {
		e := u.Entry(name)
		if e == nil || !stands(e.Told) || u.current(t, name, e.Told) {
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
	var unwanted []string
	for _, n := range dropped {
		e := u.Entry(n)
		if e == nil || !e.Named {
			continue // the client has already dropped the name
		}
		u.name(e, false)
		all := u.wildcard || u.scopes != nil
		if all && v == xds.Delta && u.matches[n] == nil {
			// "The server must send a response that includes the specific resource in either the
			// removed_resources field (if it is not included in the wildcard) or in the resources
			// field" (DELTA-6).
			u.giveUp(e)
		}
		removes := v == xds.Delta && stands(e.Told) && (u.collects(n) || u.isLeftover(n, unmatched))
		if all || removes || e.Matched > 0 {
			u.Touch(e) // the wildcard may not cover the name
		} else {
			unwanted = append(unwanted, n)
		}
		if u.matches[n] != nil && !u.scopes[n] { // a scope still covers everything under a route
			u.unmatch(n, true)
		}
	}
	u.discard(unwanted)
}

// discard forgets the names that the client does not want any more: it has dropped each name, and
// every other name that matched it.
func (u *subscription) discard(names []string) {
	unwanted := map[string]bool{}
	for _, n := range names {
		if u.covers(n) {
			continue
		}
		unwanted[n] = true
		u.Note(n)
		u.regain(n) // the client may also have dropped the name under an earlier wildcard
	}
	u.letGo(unwanted)
	if len(unwanted) > 8 {
		u.RemoveFunc(func(e *entry) bool { return unwanted[e.Name] && !u.wants(e) })
	} else {
		for n := range unwanted {
			if e := u.Entry(n); e != nil && !u.wants(e) {
				u.Set.Remove(n)
			}
		}
	}
}

// giveUp records that the client unsubscribed from a name, or from a name that matched it, while a
// wildcard remains. The client is then told the state of the name (DELTA-6).
func (u *subscription) giveUp(e *entry) {
	if u.dropped == nil {
		u.dropped = map[string]bool{}
	}
	if !u.dropped[e.Name] {
		u.dropped[e.Name] = true
		u.droppedSize += int32(len(e.Name))
	}
	e.Repeat(true)
	u.ask(true)
}

// regain undoes giveUp. It is called when the client subscribes again, or was told the state of the
// name, or does not have to be told.
func (u *subscription) regain(name string) {
	if u.dropped[name] {
		delete(u.dropped, name)
		u.droppedSize -= int32(len(name))
	}
}

// GivenUp returns the number of names, and their total length in bytes, that the session must
// remember after an unsubscription under a wildcard. The session remembers each name until it has
// told the client the state of the name. If a client answers nothing, this number can grow, so the
// server limits it.
func (s *Session) GivenUp() (names, bytes int) {
	for _, u := range s.subs {
		names, bytes = names+len(u.dropped), bytes+int(u.droppedSize)
	}
	return names, bytes
}

// giveUpLapsed forgets unmatched leftovers for which the client now has no subscription at all: no
// wildcard, not their collection, and none of their aliases.
func (s *Session) giveUpLapsed(u *subscription) {
	if u.scopes != nil {
		return
	}
	var unmatchedNames []string
	for name := range u.leftovers {
		if s.isMatched(u, name) {
			continue
		}
		u.dropLeftover(name, unmatched)
		unmatchedNames = append(unmatchedNames, name)
	}
	u.quit = append(u.quit, unmatchedNames...)
	u.discard(unmatchedNames) // but for those that the client still wants by name
}

// name records that the client subscribes to the name of an entry (named), or unsubscribes from it.
func (u *subscription) name(e *entry, named bool) {
	if e.Named == named {
		return
	}
	was := u.wants(e)
	e.Named = named
	if named {
		u.named++
		u.regain(e.Name)
	} else {
		u.named--
	}
	u.toggled = append(u.toggled, e.Name)
	u.notice(e, was)
}

// notice records that the client may have started or stopped wanting a name. The parameter `was` is
// the result of wants before the change.
func (u *subscription) notice(e *entry, was bool) {
	u.moved = true
	u.Note(e.Name)
	if u.wants(e) == was {
		return
	}
	u.flipped = append(u.flipped, e.Name)
	if was {
		u.quit, u.gaveUp = append(u.quit, e.Name), u.nonce
	}
}

// interest returns the change of the subscription since the last call. A name that was added and
// removed again does not count, nor does a name that was removed and added again.
func (u *subscription) interest() Interest {
	i := Interest{Type: u.typ, Wildcard: u.wildcard}
	slices.Sort(u.flipped)
	for names := u.flipped; len(names) > 0; {
		n, times := names[0], 0
		for times < len(names) && names[times] == n {
			times++
		}
		names = names[times:]
		switch {
		case times%2 == 0: // as before
		case u.wantsName(n):
			i.Added = append(i.Added, n)
		default:
			i.Removed = append(i.Removed, n)
		}
	}
	u.moved, u.flipped = false, nil
	return i
}

// recognize handles a view that finds resources on demand. If the view has found a resource in the
// version that a delta client stated earlier, the resource counts as told: "to avoid resending".
func (s *Session) recognize(u *subscription, e *entry) {
	if known(e.Told) || e.Told.Version == "" {
		return
	}
	r := s.table(u.typ).Lookup(e.Name)
	if u.shows(r) && r.Version == e.Told.Version && (!s.ttl || r.TTL == 0) {
		e.Had(r.Stamp)
	}
}
