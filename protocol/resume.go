package protocol

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// This file applies the first request of a type: it calls all rooms.

// Brings reports whether the first request of a type states resources from an earlier stream
// (brings). The result has reports whether the server knows what the client holds: a present or
// recent table of the view has exactly the stated resources, or the server has recorded them. If
// the client states only a part of a table, has is false, because the client may know that the
// other resources are removed. Call Brings before Receive.
func (s *Session) Brings(req xds.Request) (brings, has bool) {
	typ := cmp.Or(req.Type, s.only)
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
	stated, listed := make(map[string]bool, len(req.Initial)), 0
	for _, v := range req.Initial {
		if r := t.Lookup(v.Name); r != nil && r.Version == v.Version && !stated[v.Name] {
			stated[v.Name] = true
			if !r.OnDemand {
				listed++
			}
		}
	}
	all := len(req.Subscribe) == 0 && typ.Implicit || slices.Contains(req.Subscribe, xds.Wildcard)
	if all && listed < t.Len() {
		return false
	}
	return !slices.ContainsFunc(req.Subscribe, func(name string) bool { return !stated[name] && t.Lookup(name) != nil })
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
	u.Owe(u.wildcard || s.tellsWorld(u))
	s.narrow(u)
	s.returnMatched(u)
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
		u.doubt(s.now.Add(delay.Earlier.Limit(0)), u.wildcard || u.typ.FullState)
		if !u.typ.FullState {
			u.bring(u.Subscribed())
		}
	}
	if u.typ.FullState && w != nil && !w.Since {
		u.state(strings.Clone(version))
	}
	if w == nil {
		u.resumed(version != "" && u.typ.FullState, false) // other types have no removals in SotW
		return
	}
	u.resumed(false, u.typ.FullState)
	s.takeOver(u, w, t)
}

// takeOver makes a World the told state of the client.
func (s *Session) takeOver(u *subscription, w *World, t *xds.Table) {
	// A later, unanswered response may have brought resources of the view. The client may not hold
	// them, so they count as new.
	doubtful := func(st *xds.Stamp) bool {
		return u.typ.FullState && w.Since && w.listed(st.Name) == nil && u.current(t, st.Name, st)
	}
	surely := func(name string) *xds.Stamp {
		if st := w.has(name); stands(st) && !doubtful(st) {
			return st
		}
		return absent
	}
	for e := range u.Entries() {
		if st := surely(e.Name); stands(st) {
			e.Had(st)
		}
	}
	if u.wildcard {
		u.rebase(w.Versions)
		u.Renew(true)
	}
	var extra []entry
	for _, n := range w.Lacks {
		if u.wildcard && u.Entry(n) == nil {
			extra = append(extra, entry{Name: n, Told: surely(n), Again: !u.typ.FullState})
		}
	}
	u.addTouched(extra)
	var kept [][]item // a name is in each list at most once; the client may hold several states of a name, in several lists
	several := map[string]int{}
	var unknown []string
	for _, st := range w.Others {
		e, told := u.Entry(st.Name), u.told(st.Name)
		switch {
		case !known(st):
			if u.covers(st.Name) { // the state is unknown until the name is sent, which may never happen
				unknown = append(unknown, st.Name)
			}
		case !u.covers(st.Name), same(told, st), doubtful(st):
		case e == nil && told == absent:
			u.addTouched([]entry{{Name: st.Name, Told: st, Again: !u.typ.FullState}})
		default:
			n := several[st.Name]
			several[st.Name]++
			if n == len(kept) {
				kept = append(kept, nil)
			}
			kept[n] = append(kept[n], item{Name: st.Name, Was: told, Is: st})
		}
	}
	u.bring(unknown)
	u.adoptRefused(kept)
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
		var gone []*xds.Stamp
		for st := range removedBefore(was, lately[i+1:]) {
			gone = append(gone, st)
			if len(gone) == mostGone {
				break
			}
		}
		if which, ok := was.Versions().MatchExtra(version, gone); ok {
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
	u.resumed(false, false)
	t := s.table(u.typ)
	gone := slices.SortedFunc(removedBefore(t, s.past(u.typ, t)), stampByName)
	s.takeOver(u, &World{Since: true, Others: gone}, t)
}

// removedBefore yields the resources of earlier tables that a table lacks, the last removed first. Of
// each name it yields the newest state.
func removedBefore(t *xds.Table, past []*xds.Table) iter.Seq[*xds.Stamp] {
	return func(yield func(*xds.Stamp) bool) {
		seen, next := map[string]bool{}, t.Versions()
		for _, before := range past {
			for old, is := range next.Since(before.Versions()) {
				if is != nil || seen[old.Name] || t.Lookup(old.Name) != nil {
					continue
				}
				seen[old.Name] = true
				if !yield(old) {
					return
				}
			}
			next = before.Versions()
		}
	}
}

// resume adopts the resources that a delta client states (DELTA-9): "the Incremental xDS client may
// tell the server of its known resources to avoid resending them".
func (s *Session) resume(u *subscription, initial []xds.Version, t *xds.Table) {
	if len(initial) == 0 {
		return
	}
	u.Owe(false)
	lately := slices.Concat([]*xds.Table{t}, s.recent(u.typ)) // computed once, because a client may state many names
	seen := newIndex(initial)
	matched := 0
	var extra []entry
	for i, v := range slices.Backward(initial) {
		if !seen.add(i) {
			continue // if a name is stated twice, the later statement counts
		}
		is := s.statement(u, t, lately, v)
		if is.listed {
			matched++
		}
		if e := u.Entry(v.Name); e != nil {
			u.adopt(e, is)
		} else if !is.listed || is.expires {
			e = &entry{Name: strings.Clone(v.Name), Told: is.told, Again: is.expires}
			if u.scopes != nil || u.collects(v.Name) {
				u.lapse(e) // the wildcard or the collection matched the resource
			}
			extra = append(extra, *e)
		}
	}
	if u.wildcard {
		u.rebase(t.Versions())
		u.Renew(false)
		u.TouchAll()
		if matched < t.Len() { // the client does not hold names that it does not state
			for st := range t.Versions().All() {
				if !seen.has(st.Name) && u.Entry(st.Name) == nil {
					extra = append(extra, entry{Name: st.Name, Told: absent})
				}
			}
		}
	}
	u.addTouched(extra)
}

// A statement is the meaning of a name and version that a delta client states.
type statement struct {
	told    *xds.Stamp
	listed  bool // the view has this version, where a wildcard finds it
	expires bool // the resource is sent again, because its remaining TTL is unknown
}

func (s *Session) statement(u *subscription, t *xds.Table, lately []*xds.Table, v xds.Version) statement {
	r := t.Lookup(v.Name)
	if !u.covers(v.Name) || !u.shows(r) || r.Version != v.Version {
		return statement{told: stated(lately, v)}
	}
	return statement{told: r.Stamp, listed: !r.OnDemand, expires: s.ttl && r.TTL > 0}
}

// adopt applies a statement to the entry of its name.
func (u *subscription) adopt(e *entry, is statement) {
	e.Tell(is.told, 0)
	e.Repeat(is.expires)
	u.regain(e.Name) // the client has not unsubscribed from names that its "*" covers
	if e.Matched == 0 && u.collects(e.Name) {
		u.lapse(e) // the collection matched the resource, too
	}
	u.Touch(e)
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
