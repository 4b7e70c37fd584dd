package protocol

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/protocol/internal/names"
	"github.com/chancery-xds/chancery/xds"
)

// A leaver is a resource that the view has lost and that the session keeps on the client, because a
// resource on the client may refer to it (ADS-3): "Stale CDS clusters and related EDS endpoints
// (ones no longer being referenced) can then be removed". While the view is looking for a lost
// resource again, the resource is kept, too. Terms: see doc.go.
type leaver struct {
	names.Kept
	since   time.Time // when withdraw first looked at this leaver; zero: not yet
	alone   time.Time // since then the session does not see all types of its client; zero: it does
	hold              // the last result of holdOf
	outside bool      // resources of a type that the client has not opened here may refer to it (see outside)
}

// A hold is the decision whether a kept resource may be removed. It is kept while the condition
// holds. At the time until it is removed even if the client does not answer.
type hold struct {
	condition
	referred bool        // a resource on the client refers, or has referred, to the resource
	waived   []*xds.Type // types that refer to the resource and were silent for too long
}

// join adds a condition of a resource that refers to the kept one.
func (h *hold) join(c condition) { h.condition, h.referred = h.or(c), true }

// A withdrawing is the set of kept resources (leavers) of one type.
//
// Invariant: each name in leaving has an entry. The stamp, unless it is absent, and the body of its
// leaver have the same name. The time until is later than since.
type withdrawing struct {
	leaving map[string]*leaver
}

// lingers returns the kept resource with a name. It returns nil if no such resource is kept, or if
// the resource is released.
func (u *subscription) lingers(name string) *leaver {
	if l := u.leaving[name]; l != nil && !l.Released {
		return l
	}
	return nil
}

// lingering yields the kept resources that are not released and have a known body.
func (u *subscription) lingering(yield func(*xds.Resource) bool) {
	for _, l := range u.leaving {
		if !l.Released && l.Body != nil && !yield(l.Body) {
			return
		}
	}
}

// lingeringStamps yields the stamps of the resources that lingering yields.
func (u *subscription) lingeringStamps(yield func(*xds.Stamp) bool) {
	for r := range u.lingering {
		if !yield(r.Stamp) {
			return
		}
	}
}

// An origin is where lost resources are referred to, and why the resources there count: the client may hold them,
// and the view no longer has them.
type origin struct {
	typ   *xds.Type
	sub   *subscription // nil: the client has not opened the type
	why   delay.Reason
	until time.Time // from then on, they do not count; zero: see ends
}

// A referrer has the references from the resources of an origin to another type.
type referrer struct {
	origin
	refSet
	kept []*xds.Stamp // delay.Member: the resources
}

// A refSet is a set of references to resources of one type.
type refSet struct {
	to    *xds.Type // the type that the references point to; nil: the set is empty
	all   bool
	names map[string]bool
}

// add adds the references of a resource. Unknown references refer to everything.
func (s *refSet) add(t *xds.Type, st *xds.Stamp) {
	if st.Refs == nil {
		s.refer(t, xds.Wildcard)
	}
	for _, ref := range st.Refs {
		if ref.Type.Is(t) {
			s.refer(t, ref.Name)
		}
	}
}

func (s *refSet) refer(t *xds.Type, name string) {
	s.to = t
	if name == xds.Wildcard {
		s.all = true
		return
	}
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[name] = true
}

// has reports whether the set has a reference to a resource: by its name, an alias, or its collection, as
// assignments refer to endpoints.
func (s *refSet) has(name string, body *xds.Resource) bool {
	return s.all || len(s.names) > 0 && (s.names[name] || s.names[s.to.Collection(name)] || body != nil && slices.ContainsFunc(body.Aliases, func(a string) bool { return s.names[a] }))
}

// holders yields the resources that the client may hold, that the view no longer has, and that may refer to a type.
func (s *Session) holders(t *xds.Type, yield func(from origin, st *xds.Stamp)) {
	u := s.sub(t)
	s.mayHold(u, func(st *xds.Stamp, why delay.Reason) {
		if u.leaving[st.Name] != nil {
			why = delay.Member
		}
		if st.Refs != nil { // unknown references count only to other types (ADS-10)
			yield(origin{typ: t, sub: u, why: why}, st)
		}
	})
	if !s.ordersTypes() {
		return // a stream of one type sees no other types
	}
	for _, by := range t.ReferredBy() {
		opens := s.opensAgain(by) // the client may hold resources from an earlier stream (ADS-9)
		if s.resumes && s.other(by) == nil && !opens.holds {
			opens = s.within(delay.Unopened, s.began)
		}
		if opens.holds {
			yield(origin{typ: by, why: opens.why, until: opens.until}, &xds.Stamp{})
		}
		for u := range s.clientOf(by) {
			early := s.now.Before(u.vague) && s.vague(u)
			s.mayHold(u, func(st *xds.Stamp, why delay.Reason) {
				from := origin{typ: by, sub: u, why: why}
				if early && why == delay.Earlier {
					from.until = u.vague
				}
				yield(from, st)
			})
		}
	}
}

// referrers returns the references to a type from the resources on the client.
func (s *Session) referrers(t *xds.Type) (all []referrer) {
	s.holders(t, func(from origin, st *xds.Stamp) {
		if st.Refs != nil && !slices.ContainsFunc(st.Refs, func(ref xds.Ref) bool { return ref.Type.Is(t) }) {
			return
		}
		i := slices.IndexFunc(all, func(r referrer) bool { return r.origin == from })
		if i < 0 {
			i, all = len(all), append(all, referrer{origin: from})
		}
		all[i].add(t, st)
		if from.why == delay.Member {
			all[i].kept = append(all[i].kept, st)
		}
	})
	return all
}

// outside returns the referrers of a type that the client has not opened on this connection. It may have them
// on another one, so the references of the view, and of its recent tables, count for the grace period (ADS-11).
func (s *Session) outside(t *xds.Type) (all []referrer) {
	if s.only == nil || !s.ordersTypes() {
		return nil
	}
	for _, by := range t.ReferredBy() {
		if s.other(by) != nil {
			continue
		}
		r := referrer{origin{typ: by, why: delay.Elsewhere}, refSet{to: t, all: s.opts.Recent == nil}, nil}
		for _, table := range slices.Concat(s.recent(by), []*xds.Table{s.table(by)}) {
			for st := range table.Versions().All() {
				r.add(t, st)
			}
		}
		if r.all || len(r.names) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// ends returns the time at which a referrer releases a name that the view lost at the time since, even if the
// client does not answer; zero: never.
func (r *referrer) ends(since time.Time) time.Time {
	limit, fromAnswer := r.why.Limit(0), r.why.Start() == delay.Answer
	switch {
	case limit == 0 || r.sub == nil || fromAnswer && !r.sub.unacked:
		return r.until // zero: until the client answers, or the session sends a newer state
	case !fromAnswer:
		return since.Add(limit)
	}
	return sooner(r.sub.silentUntil(r.why, since), r.until)
}

// silentUntil returns the end of a delay that began at the time since: its limit counts from then, or from the last
// answer of the client if that is later.
func (u *subscription) silentUntil(why delay.Reason, since time.Time) time.Time {
	if u.silent.After(since) {
		since = u.silent
	}
	return since.Add(why.Limit(0))
}

// withdrawsLate reports whether the session may keep resources of u on the client when the view
// loses them.
func (s *Session) withdrawsLate(u *subscription) bool {
	if len(u.typ.ReferredBy()) == 0 {
		return false
	}
	// On a per-type SotW stream, a type without full state has no removals.
	return s.ordersTypes() || s.opts.Grace > 0 && (s.variant == xds.Delta || u.typ.FullState)
}

// retain finds the names that the client holds and the view has lost. It keeps the names to which a
// resource on the client may still refer. The other names are removed with the next response.
// retain looks at dirty names. If only the wildcard covers a name, retain looks at the name only if
// it is in touched; a nil touched means all names.
func (s *Session) retain(u *subscription, touched []xds.Names) {
	if !s.withdrawsLate(u) {
		return
	}
	t, blocked := s.table(u.typ), s.blocked(u)
	var refs []referrer
	asked, unheld := false, false // unheld: no resource on the client refers to a lost name
	ask := func() []referrer {
		if !asked {
			asked, refs = true, slices.Concat(s.referrers(u.typ), s.outside(u.typ))
			unheld = !blocked && s.ordersTypes() && len(refs) == 0
		}
		return refs
	}
	var extra []entry
	look := func(n string, e *entry) {
		if unheld && !s.undecided(u.typ, n) {
			return
		}
		told := u.toldBy(e, n)
		if !s.lost(u, t, n, e, told) {
			return
		}
		kept := s.keep(u, ask(), n, told)
		switch {
		case e != nil:
		case kept:
			extra = append(extra, entry{Name: n, Told: told, Again: u.Anew && !u.typ.FullState})
		case blocked: // until the removal of the name is sent, a new resource may refer to it
			gone := entry{Name: n, Told: told, Again: u.Anew && !u.typ.FullState}
			u.Touch(&gone)
			extra = append(extra, gone)
		}
	}
	u.lookCovered(t, touched, look)
	for _, n := range u.Dirty {
		if e := u.Entry(n); e != nil || u.wildcard {
			look(n, e)
		}
		s.retainFound(u, t, n, blocked, ask)
	}
	u.add(extra...)
}

// lookCovered calls look for names without an entry that the view may have lost and that the wildcard
// covers. Names with an entry are looked at if they are dirty.
func (u *subscription) lookCovered(t *xds.Table, touched []xds.Names, look func(string, *entry)) {
	if !u.wildcard {
		return
	}
	covered := func(names []string) {
		for _, n := range names {
			if u.Entry(n) == nil {
				look(n, nil)
			}
		}
	}
	if touched == nil && u.base != t.Versions() {
		covered(t.Since(u.base).Removed)
	}
	for _, names := range touched {
		covered(names[u.typ.URL])
	}
}

// retainFound keeps resources that a name matched, if no subscription of this client matches them
// in the present view. The view has not lost these resources, but the client loses them all the
// same.
func (s *Session) retainFound(u *subscription, t *xds.Table, name string, blocked bool, ask func() []referrer) {
	was := u.matches[name]
	for r := range was.All() {
		e, is := u.Entry(r.Name), t.Lookup(r.Name)
		if is == nil || u.leaving[r.Name] != nil || !stands(e.Told) || u.findable(t, is) {
			continue
		}
		refs := ask()
		if blocked { // until the removal of the resource is sent, a new one may refer to it
			refs = append(slices.Clip(refs), referrer{refSet: refSet{all: true}})
		}
		s.keep(u, refs, r.Name, e.Told)
	}
}

// lost reports whether the view has lost a name whose told state the client may still need.
func (s *Session) lost(u *subscription, t *xds.Table, n string, e *entry, told *xds.Stamp) bool {
	switch {
	case u.leaving[n] != nil || u.shows(t.Lookup(n)):
		return false
	case e == nil:
		return stands(told)
	case !u.wants(e) && u.hasLetGo(t, n):
		return false
	}
	return stands(told) || s.awaits(u, e)
}

// hasLetGo reports whether the client need not be told that an unwanted name is removed, because
// the client has dropped the name and the wildcard does not cover it.
func (u *subscription) hasLetGo(t *xds.Table, name string) bool {
	switch {
	case u.dropped[name] && t.Lookup(name) != nil: // a resource on demand
		return true
	case u.wildcard:
		return false
	}
	return !u.isLeftover(name, unmatched) || !u.collects(name)
}

// awaits reports whether the client has subscribed to a name, has not got a response for it yet,
// and may need the resource before it can ACK another type.
func (s *Session) awaits(u *subscription, e *entry) bool {
	return e.Named && e.Again && u.matches[e.Name] == nil && s.warms(u.typ)
}

// warms reports whether the client ACKs another type only after it has got resources of type t.
// Nothing that an ACK depends on may wait for that ACK (ADS-7). So a name of such a type is sent
// even if the client subscribes after the view has lost it: a resource on the client may refer to
// the name.
func (s *Session) warms(t *xds.Type) bool {
	return s.ordersTypes() && slices.ContainsFunc(t.ReferredBy(), func(by *xds.Type) bool { return t.Is(by.Warms) })
}

// keep makes a lost resource a leaver if a resource on the client may refer to it. It reports whether it did.
func (s *Session) keep(u *subscription, refs []referrer, name string, told *xds.Stamp) bool {
	body := s.body(u.typ, name, told)
	if body == nil && (s.variant == xds.SotW || told == absent) {
		return false // the lost resource is no longer known
	}
	// A name that the view is still looking for is kept even without a reference, so that later
	// references to it count. A stream of one type does not know the references.
	referred, outside := stands(told) && s.undecided(u.typ, name) || !s.ordersTypes(), false
	for i := range refs {
		if refs[i].has(name, body) {
			referred, outside = true, outside || refs[i].why == delay.Elsewhere
		}
	}
	if !referred {
		return false
	}
	if u.leaving == nil {
		u.leaving = map[string]*leaver{}
	}
	l := &leaver{Kept: names.Kept{Stamp: told, Body: body}, outside: outside}
	u.leaving[name] = l
	u.Keep(name, &l.Kept)
	u.Note(name)
	return true
}

// withdraw releases the kept names to which nothing refers any more. It reports whether it has
// released any. If the removal of a released name is not sent in this step, the name is kept again
// (holdAgain).
func (s *Session) withdraw() (progress bool) {
	for _, u := range s.subs {
		if len(u.leaving) == 0 {
			continue
		}
		t, refs, blocked := s.table(u.typ), s.referrers(u.typ), s.blocked(u)
		var free []string
		for name, l := range u.leaving {
			if l.Released {
				continue
			}
			s.begin(l)
			l.hold = s.holdOf(u, refs, name, l)
		}
		u.holdMembers(refs)
		for name, l := range u.leaving {
			if !l.Released && !l.holds && !blocked {
				free = append(free, name)
			}
		}
		slices.Sort(free)
		for _, name := range free {
			u.leaving[name].Released = true
			u.Note(name)
			u.rematch(t, name)
			s.returnMatched(u)
			u.Touch(u.Entry(name))
			progress = true
		}
	}
	return progress
}

// begin records the times from which the limits of a kept resource count.
func (s *Session) begin(l *leaver) {
	if l.since.IsZero() { // the time when the view lost the name would depend on the hints of Change
		l.since = s.now
	}
	switch {
	case s.ordersTypes():
		l.alone = time.Time{}
	case l.alone.IsZero():
		l.alone = s.now
	}
}

// holdAgain keeps all released names whose removal was not sent. Then withdraw decides about them
// again.
func (u *subscription) holdAgain(t *xds.Table) {
	for name, l := range u.leaving {
		if l.Released {
			u.Note(name)
		}
		l.Released = false
		u.returned(t, name) // the client may have subscribed to another name that matches this one
	}
}

// leaveNot forgets a kept name: the client has unsubscribed from it, its removal is sent, or the view
// has it again.
func (u *subscription) leaveNot(name string) {
	delete(u.leaving, name)
	u.KeepNot(name)
}

// departed records that the removal of a kept name is sent now, and reports the events.
func (s *Session) departed(u *subscription, name string) {
	l := u.leaving[name]
	if l == nil {
		return
	}
	u.Note(name)
	u.leaveNot(name)
	for _, by := range l.waived {
		s.event(Event{Kind: Waived, Type: u.typ, By: by, Name: name})
	}
	s.event(Event{Kind: Departed, Type: u.typ, Name: name, Version: l.Stamp.Version})
}

// holdOf decides whether a kept name may be removed: no type refers to the name, or the client has
// not answered the referring types for too long. A stream of one type does not see other types.
// There the grace period protects the name from them.
func (s *Session) holdOf(u *subscription, refs []referrer, name string, l *leaver) hold {
	is := hold{referred: l.referred}
	if !s.ordersTypes() {
		is.condition = s.within(delay.Elsewhere, l.alone)
	} else if l.outside {
		is.condition = s.within(delay.Elsewhere, l.since)
	}
	for i := range refs {
		r := &refs[i]
		if r.why == delay.Member || !r.has(name, l.Body) { // see holdMembers
			continue
		}
		is.referred = is.referred || r.sub != nil
		until := r.ends(l.since)
		if until.IsZero() || s.now.Before(until) {
			is.condition = is.or(condition{holds: true, why: r.why, until: until})
		} else if !slices.Contains(is.waived, r.typ) {
			is.waived = append(is.waived, r.typ)
		}
	}
	if is.referred && u.dropsByItself() && s.ordersTypes() {
		is.condition = is.or(s.within(delay.Dropping, l.since))
	}
	return is
}

// dropsByItself reports whether the client subscribes by name to the clusters of its routes, as
// gRPC does. Such a client ACKs new routes first, then subscribes to the new cluster, and then
// unsubscribes from the old cluster.
func (u *subscription) dropsByItself() bool { return u.typ.FullState && !u.wildcard }

// returned forgets a kept name if the view has the name again.
func (u *subscription) returned(t *xds.Table, name string) {
	if r := t.Lookup(name); u.leaving[name] != nil && u.shows(r) && u.findable(t, r) {
		u.leaveNot(name)
		u.Note(name)
		u.suspect(name)
		if e := u.Entry(name); e != nil {
			u.Touch(e)
		}
	}
}

// returnMatched calls returned for the kept names that a subscribed name has matched.
func (s *Session) returnMatched(u *subscription) {
	for _, n := range u.TakeMatched() {
		u.returned(s.table(u.typ), n)
	}
}

// withdrawBy yields the times at which kept names are removed even if the client does not answer.
func (u *subscription) withdrawBy(yield func(time.Time)) {
	for _, l := range u.leaving {
		yield(l.until)
	}
}
