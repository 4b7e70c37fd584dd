package protocol

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A World is what a SotW client may have of a type when it accepts a response. The
// version by which it tells so later, on another stream, is that of the response.
// It is immutable.
type World struct {
	Versions *xds.Versions // what the wildcard covers; of it the client has what it asked for

	// Lacks are names of these that it was not told of, or not of what they are now,
	// for they waited. Sorted.
	Lacks []string

	// Others are what it may have besides, or instead: what lingered, what it kept
	// since it refused another, what could not be told to be gone; of types with full
	// state also what is on demand. By name, of several of one name the newest first, if
	// that is known; one without a sum is something of that name from an earlier stream,
	// one without a name something of any, and nobody knows what.
	Others []*xds.Stamp

	// Since says that it was told otherwise after that, which is among these, and has
	// not accepted it: it may have taken some.
	Since bool
}

func stampByName(a, b *xds.Stamp) int { return strings.Compare(a.Name, b.Name) }

// place returns the place of a name in stamps that are in order, or where it would be, and
// whether it is there; of several the first.
func place(list []*xds.Stamp, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(st *xds.Stamp, name string) int { return strings.Compare(st.Name, name) })
}

// except returns stamps, of which no two have the same name, without those of some names.
// The stamps are in order, and stay as they are; the names are put in order. If none of them
// is there, it costs no more than to look for them.
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

// merged returns few stamps and many as one list, both in order, which stay as they are: of
// the same name those of the few come first.
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

// has returns what the world has of a name; of several, the first.
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

// Brings reports whether a request states what its client has of an earlier stream, and whether the view
// has or lately had all of that and nothing more, or it was told so here: a client that lacks what the view has may know
// that this is removed. It must be asked before Receive.
func (s *Session) Brings(req xds.Request) (brings, has bool) {
	typ := req.Type
	if typ == nil {
		typ = s.only
	}
	if typ == nil || s.sub(typ) != nil || req.Version == "" && len(req.Initial) == 0 {
		return false, true
	}
	t := s.table(typ)
	lately := slices.Concat([]*xds.Table{t}, s.recent(typ))
	if s.variant == xds.SotW {
		return true, slices.ContainsFunc(lately, func(was *xds.Table) bool { return was.Version() == req.Version }) ||
			typ.FullState && proven(lately, req.Version) != nil || s.opts.Told != nil && s.opts.Told(typ, req.Version, nil) != nil
	}
	for _, v := range req.Initial {
		if r := t.Lookup(v.Name); (r == nil || r.Version != v.Version) && !known(stated(lately, v)) {
			return true, false
		}
	}
	return true, slices.ContainsFunc(lately, func(was *xds.Table) bool { return statesAll(req, typ, was) })
}

// statesAll reports whether a first request by delta states all that a table has for it, and as the table has it.
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

// begin completes the first request of the type on the stream.
func (u *subscription) begin(s *Session, req xds.Request, t *xds.Table) {
	// "(legacy behavior) the request must have no resources in both
	// resource_names_subscribe and resource_names_unsubscribe".
	if u.implicit && u.typ.Implicit && len(req.Unsubscribe) == 0 {
		u.imply()
	}
	// Clients wait for an answer to these even when there is nothing to say.
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

// recall takes over what a SotW client holds that states a version: what this
// server told it under that version, or the table that has it. "The server can
// skip" what it has only of types with full state; the others are told anew.
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
		u.elsewhere = version != "" && u.typ.FullState // of others nothing tells that a name is lost
		return
	}
	s.takeOver(u, w, t)
}

// takeOver takes over what a SotW client may have.
func (s *Session) takeOver(u *subscription, w *World, t *xds.Table) {
	// What the view has and it came by in a later world it need not have: that is news.
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
	u.addMarked(extra)
	var kept [][]item // each name once in each: it may have any of several
	several := map[string]int{}
	var unknown []string
	for _, st := range w.Others {
		e, told := u.entry(st.Name), u.told(st.Name)
		switch {
		case !known(st):
			if u.covers(st.Name) { // until it is told, which may never be
				unknown = append(unknown, st.Name)
			}
		case !u.wildcard && (e == nil || !u.wants(e)), same(told, st), doubtful(st):
		case e == nil && told == absent:
			u.addMarked([]entry{{name: st.Name, told: st, sent: true, again: !u.typ.FullState}})
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
	for _, items := range kept {
		u.refusals = append(u.refusals, list(items, 0, true))
	}
	for len(u.refusals) > maxRefusals {
		u.joinRefusals()
	}
}

// world returns what a client has that states a version, or nil if that is not
// known.
func (s *Session) world(typ *xds.Type, version string, t *xds.Table) *World {
	if version == "" {
		return nil
	}
	var known *World
	if typ.FullState { // of others a response has a part, and the rest need not be of that version
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

// proven returns what a version proves that is the hash of one of some tables, the newest first, or of one
// together with some that those before it had: what lingered when another server told it.
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
		var gone []*xds.Stamp // the latest first
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

// mostGone is how many deletions are looked at, of each table, that a version may have besides.
const mostGone = 16

// recallLately takes over what a client may have that states a version of which nothing is
// known here. It was told so elsewhere, by "another replica" or this server before a restart,
// of the same source: so it may have what the view had lately, which is told on until nothing
// refers to it that the client may hold. What the view has is news to it.
//
// That is asked when it is to be told something first, for what goes until then it may have,
// too.
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

// recent returns the tables that the type had lately, the newest first.
func (s *Session) recent(t *xds.Type) []*xds.Table {
	if s.opts.Recent == nil {
		return nil
	}
	return s.opts.Recent(t)
}

// past returns those before a table. There may be later ones, which the session has not seen
// yet: what is in these is to come.
func (s *Session) past(typ *xds.Type, t *xds.Table) []*xds.Table {
	recent := s.recent(typ)
	return recent[slices.Index(recent, t)+1:]
}

// worldOf returns what the client may have when it accepts a part of a delivery
// that is about to leave, which brings it up to t. A type with full state it has
// whole then; of others it may refuse what is under way besides, and other parts.
func (s *Session) worldOf(u *subscription, t *xds.Table, d *delivery, parts int) *World {
	w := &World{Versions: t.Versions()}
	if u.typ.FullState {
		for st := range u.lingeringStamps {
			w.Others = append(w.Others, st)
		}
		for e := range u.entries() { // what is on demand is part of no table's versions
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
	s.mayHold(u, func(st *xds.Stamp, _ bool) bool {
		if stands(st) && (st.Name != "" || s.vagueAfter(u, d, parts)) {
			w.Others = append(w.Others, st)
		}
		return true
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
	// It may have had these for the longest, so they come last of a name. All are shared,
	// or it would cost what the client brought, and not what it is told.
	w.Others = merged(w.Others, except(u.brought, told))
	return w
}

// resume takes over what a delta client retains: "the Incremental xDS client
// may tell the server of its known resources to avoid resending them".
func (s *Session) resume(u *subscription, initial []xds.Version, t *xds.Table) {
	if len(initial) == 0 {
		return
	}
	u.owe(false)
	lately := slices.Concat([]*xds.Table{t}, s.recent(u.typ)) // once: a client may state many names
	seen := newIndex(initial)
	matched := 0
	var extra []entry
	for i, v := range slices.Backward(initial) {
		if !seen.add(i) {
			continue // of a name stated twice, the later holds
		}
		e := u.entry(v.Name)
		stray := !u.wildcard && (e == nil || !u.wants(e)) // it is told to be gone: "no longer visible"
		r := t.Lookup(v.Name)
		current := !stray && u.shows(r) && r.Version == v.Version
		expires := current && s.ttl && r.TTL > 0 // nobody knows how soon
		var told *xds.Stamp
		if current {
			told = r.Stamp
			if !r.OnDemand {
				matched++
			}
		} else {
			told = stated(lately, v)
		}
		switch {
		case e != nil:
			e.tell(told)
			e.repeat(expires)
			u.regain(v.Name) // what it has by way of "*" it has not given up
			if e.matched == 0 && u.collects(v.Name) {
				u.lapse(e) // its collection found it, too
			}
			u.mark(e)
		case !current || r.OnDemand || expires:
			e = &entry{name: strings.Clone(v.Name), told: told, sent: true, again: expires}
			if stray && (u.scopes != nil || u.collects(v.Name)) {
				u.lapse(e) // its wildcard or its collection found it
			}
			extra = append(extra, *e)
		}
	}
	if u.wildcard {
		u.rebase(t.Versions())
		u.renew(false)
		u.doubtAll()
		if matched < t.Len() { // what the client does not state it does not have
			for st := range t.Versions().All() {
				if !seen.has(st.Name) && u.entry(st.Name) == nil {
					extra = append(extra, entry{name: st.Name, told: absent})
				}
			}
		}
	}
	u.addMarked(extra)
}

// recognize takes over what a delta client stated to have before the view had it, which was
// still looking for it: that is "to avoid resending" it, too.
func (s *Session) recognize(u *subscription, e *entry) {
	if known(e.told) || e.told.Version == "" {
		return
	}
	r := s.table(u.typ).Lookup(e.name)
	if u.shows(r) && r.Version == e.told.Version && (!s.ttl || r.TTL == 0) {
		e.had(r.Stamp)
	}
}

// An index is a set of names that a client states. Each client that comes back needs
// one: it is a sixth of a map, and costs half the time.
type index struct {
	of     []xds.Version
	places []int32 // in of, from 1, by hash; zero: free
}

func newIndex(of []xds.Version) index {
	return index{of, make([]int32, 1<<bits.Len(uint(2*len(of))))} // at most half full
}

// place returns the place of a name, or the free one that is for it.
func (x *index) place(name string) *int32 {
	for h := maphash.String(seed, name); ; h++ {
		p := &x.places[h&uint64(len(x.places)-1)]
		if *p == 0 || x.of[*p-1].Name == name {
			return p
		}
	}
}

func (x *index) has(name string) bool { return *x.place(name) != 0 }

// add adds one of the names, and reports whether it was not there.
func (x *index) add(i int) bool {
	p := x.place(x.of[i].Name)
	if *p != 0 {
		return false
	}
	*p = int32(i + 1)
	return true
}

// stated returns what a client has of a name at a version. What that refers to
// is known only if the view had it lately: in one of these tables, of which the first is
// that of the view.
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
