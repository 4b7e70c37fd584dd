package protocol

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A World lists the resources of a type that a SotW client may hold once it accepts a response. On
// a later stream the client states the version of that response, and the server finds the World
// with this version. A World is immutable.
type World struct {
	Versions *xds.Versions // the table of the response; the client holds the resources in it that it subscribes to

	// Lacks are names in Versions that waited: the client did not get these resources, or not in
	// the state of Versions. Sorted.
	Lacks []string

	// Others are states that the client may hold in addition to Versions, or instead: kept
	// resources, states from before a refusal, and resources that SotW cannot remove. For
	// full-state types they include resources on demand. The stamps are sorted by name. Several
	// stamps of one name are newest first, if the order is known. A stamp without a sum means that
	// the state of its name is unknown, from an earlier stream. A stamp without a name means that
	// the client may hold any name in an unknown state.
	Others []*xds.Stamp

	// Since is true if the server sent a later state, which the client has not accepted and may
	// have applied in part. The World then includes that state, too.
	Since bool
}

func stampByName(a, b *xds.Stamp) int { return strings.Compare(a.Name, b.Name) }

// place returns the index of the first stamp with a name in a sorted list, and true. If there is no
// such stamp, it returns the index where the stamp would be inserted, and false.
func place(list []*xds.Stamp, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(st *xds.Stamp, name string) int { return strings.Compare(st.Name, name) })
}

// except returns the stamps of list whose names are not in names. The list is sorted by name,
// without duplicates, and stays unchanged; names is sorted in place. If no name is found, the
// function copies nothing.
func except(list []*xds.Stamp, names []string) []*xds.Stamp {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(names)
	var gone []int
	for _, n := range slices.Compact(names) {
		if i, ok := place(list, n); ok {
			gone = append(gone, i)
		}
	}
	switch len(gone) {
	case 0:
		return list
	case len(list):
		return nil
	}
	left, from := make([]*xds.Stamp, 0, len(list)-len(gone)), 0
	for _, i := range gone {
		left, from = append(left, list[from:i]...), i+1
	}
	return append(left, list[from:]...)
}

// merged returns the stamps of few and many as one sorted list. Both arguments are sorted and stay
// unchanged. For equal names, the stamps of few come first.
func merged(few, many []*xds.Stamp) []*xds.Stamp {
	if len(few) == 0 {
		return many
	}
	all := make([]*xds.Stamp, 0, len(few)+len(many))
	for _, st := range few {
		i, _ := place(many, st.Name)
		all = append(append(all, many[:i]...), st)
		many = many[i:]
	}
	return append(all, many...)
}

// has returns a state of a name that the client may hold; if there are several, the first.
func (w *World) has(name string) *xds.Stamp {
	if st := w.Versions.Get(name); st != nil && !w.lacks(name) {
		return st
	}
	i, _ := place(w.Others, name)
	for ; i < len(w.Others) && w.Others[i].Name == name; i++ {
		if known(w.Others[i]) {
			return w.Others[i]
		}
	}
	return absent
}

func (w *World) lacks(name string) bool {
	_, ok := slices.BinarySearch(w.Lacks, name)
	return ok
}

// Brings reports whether the first request of a type states resources from an earlier stream
// (brings). The result has reports whether the server knows what the client holds: a present or
// recent table of the view has exactly the stated resources, or the server has recorded them. If
// the client states only a part of a table, has is false, because the client may know that the
// other resources are removed. Call Brings before Receive.
func (s *Session) Brings(req xds.Request) (brings, has bool) {
	typ := req.Type
	if typ == nil {
		typ = s.only
	}
	if typ == nil || s.sub(typ) != nil || req.Version == "" && len(req.Initial) == 0 {
		return false, true
	}
	lately := slices.Concat([]*xds.Table{s.table(typ)}, s.recent(typ))
	if s.variant == xds.SotW {
		return true, slices.ContainsFunc(lately, func(was *xds.Table) bool { return was.Version() == req.Version }) ||
			typ.FullState && proven(lately, req.Version) != nil || s.opts.Told != nil && s.opts.Told(typ, req.Version, nil) != nil
	}
	if slices.ContainsFunc(req.Initial, func(v xds.Version) bool { return !known(stated(lately, v)) }) {
		return true, false
	}
	return true, slices.ContainsFunc(lately, func(was *xds.Table) bool { return statesAll(req, typ, was) })
}

// statesAll reports whether a first delta request states every resource of a table that it
// subscribes to, in the version of the table.
func statesAll(req xds.Request, typ *xds.Type, t *xds.Table) bool {
	all := len(req.Subscribe) == 0 && typ.Implicit || slices.Contains(req.Subscribe, xds.Wildcard)
	if all && len(req.Initial) < t.Len() {
		return false
	}
	stated := make(map[string]bool, len(req.Initial))
	for _, v := range req.Initial {
		if r := t.Lookup(v.Name); r != nil && r.Version == v.Version {
			stated[v.Name] = true
		}
	}
	lacks := func(name string) bool { return !stated[name] && t.Lookup(name) != nil }
	if slices.ContainsFunc(req.Subscribe, lacks) {
		return false
	}
	if all {
		for st := range t.Versions().All() {
			if !stated[st.Name] {
				return false
			}
		}
	}
	return true
}

// begin applies the parts of the first request of a type that later requests do not have.
func (u *subscription) begin(s *Session, req xds.Request, t *xds.Table) {
	// "(legacy behavior) the request must have no resources in both resource_names_subscribe and
	// resource_names_unsubscribe" (SUB-2).
	if u.implicit && u.typ.Implicit && len(req.Unsubscribe) == 0 {
		u.imply()
	}
	// Clients wait for a response to a wildcard, or to a full-state type, even if the response is
	// empty (SOTW-8, DELTA-9).
	u.owe(u.wildcard || s.tellsWorld(u))
	s.narrow(u)
	s.tellEmpty(u)
	s.resumes = s.resumes || req.Version != "" || len(req.Initial) > 0
	if s.variant == xds.Delta {
		s.resume(u, req.Initial, t)
	} else {
		s.recall(u, req.Version, t)
	}
}

// recall adopts the state of a SotW client that states a version. That is the recorded World with
// that version, or the table with that version. For full-state types "the server can skip"
// resources that the client holds (SOTW-12). Resources of other types are sent again.
func (s *Session) recall(u *subscription, version string, t *xds.Table) {
	if !s.resumes {
		return
	}
	w := s.world(u.typ, version, t)
	if w == nil || s.refusedBefore(u.typ) {
		u.vague, u.vagueAll = s.now.Add(silence), u.wildcard || u.typ.FullState
		if !u.typ.FullState {
			u.bringNamed()
		}
	}
	if u.typ.FullState && w != nil && !w.Since {
		u.state(strings.Clone(version))
	}
	if w == nil {
		u.elsewhere = version != "" && u.typ.FullState // other types have no removals in SotW
		return
	}
	u.adopted = u.typ.FullState
	s.takeOver(u, w, t)
}

// takeOver makes a World the told state of the client.
func (s *Session) takeOver(u *subscription, w *World, t *xds.Table) {
	// A later, unanswered response may have brought resources of the view. The client may not hold
	// them, so they count as new.
	doubtful := func(st *xds.Stamp) bool {
		return u.typ.FullState && w.Since && w.Versions.Get(st.Name) == nil && u.current(t, st.Name, st)
	}
	for e := range u.entries() {
		if st := w.has(e.name); stands(st) && !doubtful(st) {
			e.had(st)
		}
	}
	if u.wildcard {
		u.rebase(w.Versions)
		u.renew(true)
	}
	var extra []entry
	for _, n := range w.Lacks {
		if told := w.has(n); u.wildcard && u.entry(n) == nil {
			extra = append(extra, entry{name: n, told: told, sent: stands(told), again: !u.typ.FullState})
		}
	}
	u.addTouched(extra)
	var kept [][]item // a name is in each list at most once; the client may hold several states of a name, in several lists
	several := map[string]int{}
	var unknown []string
	for _, st := range w.Others {
		e, told := u.entry(st.Name), u.told(st.Name)
		switch {
		case !known(st):
			if u.covers(st.Name) { // the state is unknown until the name is sent, which may never happen
				unknown = append(unknown, st.Name)
			}
		case !u.covers(st.Name), same(told, st), doubtful(st):
		case e == nil && told == absent:
			u.addTouched([]entry{{name: st.Name, told: st, sent: true, again: !u.typ.FullState}})
		default:
			n := several[st.Name]
			several[st.Name]++
			if n == len(kept) {
				kept = append(kept, nil)
			}
			kept[n] = append(kept[n], item{name: st.Name, was: told, is: st})
		}
	}
	u.bring(unknown)
	u.adoptRefused(kept)
}

// adoptRefused adds refusals of an earlier stream.
func (u *subscription) adoptRefused(all [][]item) {
	for _, items := range all {
		u.refusals = append(u.refusals, list(items, 0, true))
	}
	for len(u.refusals) > maxRefusals {
		u.joinRefusals()
	}
}

// world returns the World of a client that states a version, or nil if the server does not know
// that version.
func (s *Session) world(typ *xds.Type, version string, t *xds.Table) *World {
	if version == "" {
		return nil
	}
	var known *World
	if typ.FullState { // a response of another type has only some resources, and the client may hold the others in another version
		known = proven(slices.Concat([]*xds.Table{t}, s.recent(typ)), version)
	}
	if s.opts.Told != nil {
		known = s.opts.Told(typ, version, known)
	}
	if known != nil && len(known.Others) > 0 && known.Others[0].Name == "" {
		return nil
	}
	return known
}

// proven returns the content with a given version hash, or nil. It tries each table, the newest
// first, and then each table together with resources that were removed before it. Another server
// may have kept these resources.
func proven(lately []*xds.Table, version string) *World {
	for _, was := range lately {
		if was.Hashed() && was.Version() == version {
			return &World{Versions: was.Versions()}
		}
	}
	for i, was := range lately {
		if !was.Hashed() {
			continue
		}
		var gone []*xds.Stamp // last removed first
		next := was.Versions()
		for _, before := range lately[i+1:] {
			for old, is := range next.Since(before.Versions()) {
				if is == nil && was.Lookup(old.Name) == nil && !slices.ContainsFunc(gone, func(st *xds.Stamp) bool { return st.Name == old.Name }) {
					gone = append(gone, old)
				}
			}
			next = before.Versions()
			if len(gone) >= mostGone {
				break
			}
		}
		if which, ok := was.Versions().MatchExtra(version, gone[:min(len(gone), mostGone)]); ok {
			slices.SortFunc(which, stampByName)
			return &World{Versions: was.Versions(), Others: which}
		}
	}
	return nil
}

// mostGone limits the removed resources that proven combines with a table.
const mostGone = 16

// recallLately adopts a state for a client that states a version which this server does not know.
// Another replica, or this server before a restart, has sent that version from the same source
// (ADS-9). So the client may hold any resource that the view had recently. Removed resources are
// kept until nothing refers to them. Resources of the view count as new to the client.
//
// recallLately runs just before the first response, so that it also covers resources that are
// removed between the request and that response.
func (s *Session) recallLately(u *subscription) {
	if !u.elsewhere {
		return
	}
	u.elsewhere = false
	t := s.table(u.typ)
	w, seen, next := &World{Since: true}, map[string]bool{}, t.Versions()
	for _, was := range s.past(u.typ, t) {
		for old, is := range next.Since(was.Versions()) {
			if is == nil && !seen[old.Name] && t.Lookup(old.Name) == nil {
				seen[old.Name] = true
				w.Others = append(w.Others, old)
			}
		}
		next = was.Versions()
	}
	slices.SortFunc(w.Others, stampByName)
	s.takeOver(u, w, t)
}

// recent returns the recent tables of a type, the newest first.
func (s *Session) recent(t *xds.Type) []*xds.Table {
	if s.opts.Recent == nil {
		return nil
	}
	return s.opts.Recent(t)
}

// past returns the recent tables before t. Tables after t may exist, too: the session has not seen
// them yet.
func (s *Session) past(typ *xds.Type, t *xds.Table) []*xds.Table {
	recent := s.recent(typ)
	return recent[slices.Index(recent, t)+1:]
}

// worldOf returns the World of a client that accepts one part of delivery d, which is about to be
// sent and has the content of t. For a full-state type that is everything in d. For other types the
// client may refuse other parts of d and other responses in flight, so the World also has older
// states.
func (s *Session) worldOf(u *subscription, t *xds.Table, d *delivery, parts int) *World {
	w := &World{Versions: t.Versions()}
	if u.typ.FullState {
		for st := range u.lingeringStamps {
			w.Others = append(w.Others, st)
		}
		for e := range u.entries() { // the versions of a table do not contain resources on demand
			if r := t.Lookup(e.name); u.shows(r) && r.OnDemand {
				w.Others = append(w.Others, r.Stamp)
			}
		}
		slices.SortStableFunc(w.Others, stampByName)
		return w
	}
	for n := range u.listed {
		if e := u.entry(n); e != nil && w.Versions.Get(n) != nil && !same(e.told, w.Versions.Get(n)) {
			w.Lacks = append(w.Lacks, n)
		}
	}
	slices.Sort(w.Lacks)
	s.mayHold(u, func(st *xds.Stamp, _ bool) {
		if stands(st) && (st.Name != "" || s.vagueAfter(u, d, parts)) {
			w.Others = append(w.Others, st)
		}
	})
	var told []string
	if parts > 1 {
		for _, it := range d.each {
			if stands(it.was) && !same(it.was, it.is) {
				w.Others = append(w.Others, it.was)
			}
		}
	} else if len(u.brought) > 0 {
		for name, it := range d.each {
			if stands(it.is) {
				told = append(told, name)
			}
		}
	}
	slices.SortStableFunc(w.Others, stampByName)
	// The stamps in brought are the oldest states, so they come last for each name. The list is
	// shared if possible, because the cost of a copy would be the number of names that the client
	// stated.
	w.Others = merged(w.Others, except(u.brought, told))
	return w
}

// resume adopts the resources that a delta client states (DELTA-9): "the Incremental xDS client may
// tell the server of its known resources to avoid resending them".
func (s *Session) resume(u *subscription, initial []xds.Version, t *xds.Table) {
	if len(initial) == 0 {
		return
	}
	u.owe(false)
	lately := slices.Concat([]*xds.Table{t}, s.recent(u.typ)) // computed once, because a client may state many names
	seen := newIndex(initial)
	matched := 0
	var extra []entry
	for i, v := range slices.Backward(initial) {
		if !seen.add(i) {
			continue // if a name is stated twice, the later statement counts
		}
		is := s.statement(u, t, lately, v)
		if is.current && !is.onDemand {
			matched++
		}
		if e := u.entry(v.Name); e != nil {
			u.adopt(e, is)
		} else if !is.current || is.onDemand || is.expires {
			e = &entry{name: strings.Clone(v.Name), told: is.told, sent: true, again: is.expires}
			if is.stray && (u.scopes != nil || u.collects(v.Name)) {
				u.lapse(e) // the wildcard or the collection matched the resource
			}
			extra = append(extra, *e)
		}
	}
	if u.wildcard {
		u.rebase(t.Versions())
		u.renew(false)
		u.touchAll()
		if matched < t.Len() { // the client does not hold names that it does not state
			for st := range t.Versions().All() {
				if !seen.has(st.Name) && u.entry(st.Name) == nil {
					extra = append(extra, entry{name: st.Name, told: absent})
				}
			}
		}
	}
	u.addTouched(extra)
}

// A statement is the meaning of a name and version that a delta client states.
type statement struct {
	told     *xds.Stamp
	current  bool // the view has this version
	onDemand bool // valid if current
	expires  bool // the resource is sent again, because its remaining TTL is unknown
	stray    bool // no subscription covers the name, so it is removed: "no longer visible"
}

func (s *Session) statement(u *subscription, t *xds.Table, lately []*xds.Table, v xds.Version) statement {
	r := t.Lookup(v.Name)
	is := statement{stray: !u.covers(v.Name)}
	is.current = !is.stray && u.shows(r) && r.Version == v.Version
	if !is.current {
		is.told = stated(lately, v)
		return is
	}
	is.told, is.onDemand, is.expires = r.Stamp, r.OnDemand, s.ttl && r.TTL > 0
	return is
}

// adopt applies a statement to the entry of its name.
func (u *subscription) adopt(e *entry, is statement) {
	e.tell(is.told)
	e.repeat(is.expires)
	u.regain(e.name) // the client has not unsubscribed from names that its "*" covers
	if e.matched == 0 && u.collects(e.name) {
		u.lapse(e) // the collection matched the resource, too
	}
	u.touch(e)
}

// recognize handles a view that finds resources on demand. If the view has found a resource in the
// version that a delta client stated earlier, the resource counts as told: "to avoid resending".
func (s *Session) recognize(u *subscription, e *entry) {
	if known(e.told) || e.told.Version == "" {
		return
	}
	r := s.table(u.typ).Lookup(e.name)
	if u.shows(r) && r.Version == e.told.Version && (!s.ttl || r.TTL == 0) {
		e.had(r.Stamp)
	}
}

// An index is a set of stated names. Each client that reconnects needs an index. It uses a sixth of
// the memory of a map and half of the time.
type index struct {
	of     []xds.Version
	places []int32 // index in of plus 1, by hash; zero: free
}

func newIndex(of []xds.Version) index {
	return index{of, make([]int32, 1<<bits.Len(uint(2*len(of))))} // at most half full
}

// place returns the place of a name, or the free place where the name belongs.
func (x *index) place(name string) *int32 {
	for h := maphash.String(seed, name); ; h++ {
		p := &x.places[h&uint64(len(x.places)-1)]
		if *p == 0 || x.of[*p-1].Name == name {
			return p
		}
	}
}

func (x *index) has(name string) bool { return *x.place(name) != 0 }

// add adds the name with index i, and reports whether the name was new.
func (x *index) add(i int) bool {
	p := x.place(x.of[i].Name)
	if *p != 0 {
		return false
	}
	*p = int32(i + 1)
	return true
}

// stated returns the state of a name in a version that a client states. The content and the
// references are known only if one of the tables has this version. The first table must be the
// table of the view.
func stated(lately []*xds.Table, v xds.Version) *xds.Stamp {
	is := func(r *xds.Resource) bool { return r != nil && r.Version == v.Version }
	if r := lately[0].Departed(v.Name); is(r) {
		return r.Stamp
	}
	for _, t := range lately {
		if r := t.Lookup(v.Name); is(r) {
			return r.Stamp
		}
	}
	return &xds.Stamp{Name: strings.Clone(v.Name), Version: strings.Clone(v.Version)}
}
