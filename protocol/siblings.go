package protocol

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol/internal/delay"
	"github.com/chancery-xds/chancery/xds"
)

// Siblings are the sessions of the per-type streams of one client: streams of one connection and one
// node (ADS-11). Their types wait for each other by acknowledgement, like the types of an aggregated
// stream. Two open streams of a full-state type prove several clients. Then each session is alone,
// and the grace period protects removed resources.
//
// Siblings and its sessions are not safe for concurrent use: one lock must protect all of them. A step of
// one session is Update, its inputs, its responses and EndStep. A step costs time for the siblings that wait or keep
// removed resources, and for all siblings only if the view has changed.
type Siblings struct {
	all        []*Session
	streams    map[string][]*Session // by type URL
	dependents []*Session            // sessions with names that wait or are kept; possibly some others
	told       map[string]*subscription
	several    bool // the streams are of several clients
	separate   bool // Separate was called: several stays set
	behind     bool // a session has a newer view than the others
	updated    bool // all sessions were given their views since EndStep
	epoch      uint64
	closed     map[string]time.Time // when a stream of a type last ended, by type URL
}

// A sibling is what the siblings of a session record about it.
type sibling struct {
	siblings  *Siblings // the per-type streams of the same client; nil: unknown, or an aggregated stream
	dependent bool      // the session is in dependents
	epoch     uint64    // Epoch of the subscription at the end of the last step
	due       bool      // a step of a sibling moved the time past the session's deadline, which is not reported again
	stirred   bool      // names that wait for the session were told of its changes, since EndStep
}

// Join adds the session of a per-type stream, before its first request.
func (g *Siblings) Join(s *Session) {
	if g.streams == nil {
		g.streams, g.told, g.closed = map[string][]*Session{}, map[string]*subscription{}, map[string]time.Time{}
	}
	s.siblings, g.behind = g, true
	g.all = append(g.all, s)
	g.joined(s.only, append(g.streams[s.only.URL], s))
}

// Leave removes the session of a stream that has ended. The client may open it again, and may hold its
// resources until then (ADS-9). The result is the same as that of EndStep.
func (g *Siblings) Leave(s *Session, now time.Time) (woken []*Session) {
	is := func(o *Session) bool { return o == s }
	s.siblings = nil
	g.all, g.dependents = slices.DeleteFunc(g.all, is), slices.DeleteFunc(g.dependents, is)
	maps.DeleteFunc(g.told, func(_ string, u *subscription) bool { return slices.Contains(s.subs, u) })
	g.closed[s.only.URL] = now
	g.epoch++ // a wait may have the deadline of a response on this stream
	g.joined(s.only, slices.DeleteFunc(g.streams[s.only.URL], is))
	if g.updated {
		return g.all // the last step has failed before EndStep
	}
	return g.dependents
}

// opensAgain is the condition that a stream of type t ended less than the grace period ago. The client may
// open it again, and may hold its resources.
func (s *Session) opensAgain(t *xds.Type) condition {
	if s.siblings == nil || s.siblings.several {
		return condition{}
	}
	return s.within(delay.Unopened, s.siblings.closed[t.URL])
}

// Separate makes all sessions alone, now and later: the client has a stream whose session is not here.
func (g *Siblings) Separate() {
	g.separate, g.several = true, true
	g.epoch++
}

// Several reports whether the streams are of several clients, so that they do not wait for each other.
func (g *Siblings) Several() bool { return g.several }

// joined records the streams of a type, and decides whether the streams are of several clients. One client has at
// most one stream of a full-state type. Of another type it may have one stream for each name.
func (g *Siblings) joined(t *xds.Type, streams []*Session) {
	was := g.several
	first := len(streams) == 0 || len(g.streams[t.URL]) == 0
	g.streams[t.URL] = streams
	g.several = g.separate
	for _, of := range g.streams {
		g.several = g.several || len(of) > 1 && of[0].only.FullState
	}
	if first || was != g.several {
		g.epoch++
	}
}

// maxLooks limits how often Update asks for the views. Usually the second time no view has changed. A view
// whose changed names are unknown counts as changed each time.
const maxLooks = 4

// Update gives a session the present time and its view, which next returns like the parameters of
// [Session.Change]. If that has changed, Update gives all sessions their views: they must be of the same commit, so
// Update asks until no view has changed. If next returns a nil view, the session keeps the view that it has.
func (g *Siblings) Update(s *Session, now time.Time, next func(*Session) (view xds.View, touched []xds.Names)) {
	give := func(o *Session) (changed bool) {
		at := o.Deadline()
		o.due = o.due || !at.IsZero() && !now.Before(at)
		o.Advance(now)
		view, touched := next(o)
		if view == nil {
			return false
		}
		o.Change(view, touched)
		return touched == nil || len(touched) > 0
	}
	changed := give(s) || g.behind
	for range maxLooks {
		if !changed {
			return
		}
		changed, g.behind, g.updated = false, false, true
		for _, o := range g.all {
			changed = give(o) || changed
		}
	}
}

// EndStep ends a step of a session: it releases the views. It returns the siblings that may have something to send,
// or another deadline. The result is valid until the next call.
func (g *Siblings) EndStep(s *Session) (woken []*Session) {
	if g.updated {
		g.updated = false
		given := func(o *Session) bool { return o.view != nil } // not if next has failed
		for _, o := range g.all {
			_ = given(o) && g.record(o)
		}
		for _, o := range g.all {
			if o != s && given(o) && (o.due || !o.idle()) {
				woken = append(woken, o)
			}
			o.due = false
			o.Release()
		}
		return woken
	}
	if g.record(s) {
		for _, o := range g.dependents {
			if o != s && o.concerns(s.only) {
				woken = append(woken, o)
			}
		}
	}
	s.Release()
	return woken
}

// record ends the step of a session that has its view, and reports whether the step may concern others.
func (g *Siblings) record(s *Session) (stirred bool) {
	for _, u := range s.subs {
		s.recheckDependents(u)
		s.stirred = s.stirred || u.Epoch != s.epoch
		if u.Epoch != s.epoch && s.epoch > 0 {
			g.epoch++
		}
		s.epoch = u.Epoch
	}
	if depends := s.depends(); depends && !s.dependent {
		g.dependents = append(g.dependents, s)
	} else if !depends && s.dependent {
		g.dependents = slices.DeleteFunc(g.dependents, func(o *Session) bool { return o == s })
	}
	s.dependent = s.depends()
	stirred, s.stirred = s.stirred, false
	return stirred
}

// stir records that the names that wait for u are told of changed names. It remembers which stream has the newest
// changes of an assignment: a hint, which may be lost.
func (s *Session) stir(u *subscription, names []string) {
	g := s.siblings
	if g == nil {
		return
	}
	s.stirred = true
	u.Watch()
	if !s.warms(u.typ) {
		return
	}
	if len(g.told) > 2*len(g.all) {
		clear(g.told)
	}
	for _, name := range names {
		g.told[name] = u
	}
}

// concerns reports whether a step of a stream of type t may give the session something to send, or another deadline.
func (s *Session) concerns(t *xds.Type) bool {
	return slices.ContainsFunc(s.subs, func(u *subscription) bool {
		w := u.waiting
		return len(u.Dirty) > 0 || len(u.leaving) > 0 && slices.ContainsFunc(u.typ.ReferredBy(), t.Is) ||
			w.len() > 0 && (!w.parked || w.seen != s.inputs(u) || t.Is(u.first()))
	})
}

// idle reports whether the session has nothing to send, and does not depend on its siblings. It needs a view.
func (s *Session) idle() bool {
	return !s.depends() && !slices.ContainsFunc(s.subs, func(u *subscription) bool { return u.pending(s.table(u.typ)) })
}

// depends reports whether a resource waits for another one, or a lost resource is kept. So the siblings decide
// what the session sends next. It may be called after Release.
func (s *Session) depends() bool {
	return slices.ContainsFunc(s.subs, func(u *subscription) bool { return u.waiting.len() > 0 || len(u.leaving) > 0 })
}

// ordersTypes reports whether the session sees all types of its client: on an aggregated stream, or with siblings.
func (s *Session) ordersTypes() bool {
	return s.only == nil || s.siblings != nil && !s.siblings.several
}

// waiters returns the subscriptions of the client that may wait for others.
func (s *Session) waiters() []*subscription {
	if s.siblings == nil || s.siblings.several {
		return s.subs
	}
	all := slices.Clone(s.subs)
	for _, o := range s.siblings.dependents {
		if o != s {
			all = append(all, o.subs...)
		}
	}
	return all
}

// clientOf yields the subscriptions of the client to a type.
func (s *Session) clientOf(t *xds.Type) iter.Seq[*subscription] {
	return func(yield func(*subscription) bool) {
		u := s.sub(t)
		if u != nil && !yield(u) || t == nil || s.siblings == nil || s.siblings.several {
			return
		}
		for _, o := range s.siblings.streams[t.URL] {
			if v := o.sub(t); v != nil && v != u && !yield(v) {
				return
			}
		}
	}
}

// subscribers yields the same subscriptions. It begins with the one whose state of a name has changed last.
func (s *Session) subscribers(t *xds.Type, name string) iter.Seq[*subscription] {
	return func(yield func(*subscription) bool) {
		if g := s.siblings; g != nil && !g.several && g.told[name] != nil && !yield(g.told[name]) {
			return
		}
		s.clientOf(t)(yield)
	}
}

// other returns a subscription of the client to a type: of the session itself if it has one, else of the first
// sibling with the type, or nil. To a full-state type a client has only one.
func (s *Session) other(t *xds.Type) *subscription {
	for u := range s.clientOf(t) {
		return u
	}
	return nil
}
