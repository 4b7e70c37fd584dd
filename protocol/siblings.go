package protocol

import (
	"iter"
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
// Siblings and its sessions are not safe for concurrent use: one lock must protect all of them. Before
// an input of one session, call Update. After the input and its responses, ask each other session that
// is not Idle for its responses and its Deadline: both may have changed.
type Siblings struct {
	all      []*Session
	several  bool                 // the streams are of several clients
	separate bool                 // Separate was called: several stays set
	epoch    uint64               // counts the calls of joined (see inputs)
	closed   map[string]time.Time // when a stream of a type last ended, by type URL
}

// Join adds the session of a per-type stream, before its first request.
func (g *Siblings) Join(s *Session) {
	s.siblings = g
	g.all = append(g.all, s)
	g.joined()
}

// Leave removes the session of a stream that has ended. The client may open it again, and may hold its
// resources until then (ADS-9).
func (g *Siblings) Leave(s *Session, now time.Time) {
	s.siblings = nil
	g.all = slices.DeleteFunc(g.all, func(o *Session) bool { return o == s })
	if g.closed == nil {
		g.closed = map[string]time.Time{}
	}
	g.closed[s.only.URL] = now
	g.joined()
}

// opensAgain is the condition that a stream of type t ended less than the grace period ago. The client may
// open it again, and may hold its resources.
func (s *Session) opensAgain(t *xds.Type) condition {
	if s.siblings == nil || s.siblings.several {
		return condition{}
	}
	at, ok := s.siblings.closed[t.URL]
	if !ok {
		return condition{}
	}
	return s.within(delay.Unopened, at)
}

// Separate makes all sessions alone, now and later: the client has a stream whose session is not here.
func (g *Siblings) Separate() {
	g.separate = true
	g.joined()
}

// joined is called when the set of sessions changes. It decides whether the streams are of several clients.
// One client has at most one stream of a full-state type. Of another type it may have one stream for each name.
func (g *Siblings) joined() {
	g.epoch++
	g.several = g.separate
	seen := map[string]bool{}
	for _, s := range g.all {
		g.several = g.several || s.only.FullState && seen[s.only.URL]
		seen[s.only.URL] = true
	}
}

// Len returns the number of sessions.
func (g *Siblings) Len() int { return len(g.all) }

// maxLooks limits how often Update asks for the views. Usually the second time no view has changed. A view
// whose changed names are unknown counts as changed each time.
const maxLooks = 4

// Update gives all sessions the present time and their views, which next returns like the parameters of
// [Session.Change]. If next returns a nil view, the session keeps the view that it has. All views must
// be of the same commit, so Update asks until no view has changed.
func (g *Siblings) Update(now time.Time, next func(*Session) (view xds.View, touched []xds.Names)) {
	for _, s := range g.all {
		s.Advance(now)
	}
	for range maxLooks {
		changed := false
		for _, s := range g.all {
			view, touched := next(s)
			if view == nil {
				continue
			}
			s.Change(view, touched)
			changed = changed || touched == nil || len(touched) > 0
		}
		if !changed {
			return
		}
	}
}

// Release releases the views of all sessions (see [Session.Release]).
func (g *Siblings) Release() {
	for _, s := range g.all {
		s.Release()
	}
}

// Idle reports whether the session has nothing to send, and does not depend on its siblings. A session that got no
// view is idle: its stream is about to end.
func (s *Session) Idle() bool {
	return s.view == nil || !s.Depends() && !slices.ContainsFunc(s.subs, func(u *subscription) bool { return u.pending(s.table(u.typ)) })
}

// Depends reports whether a resource waits for another one, or a lost resource is kept. So the siblings decide
// what the session sends next. It may be called after Release.
func (s *Session) Depends() bool {
	return slices.ContainsFunc(s.subs, func(u *subscription) bool { return u.waiting.len() > 0 || len(u.leaving) > 0 })
}

// ordersTypes reports whether the session sees all types of its client: on an aggregated stream, or with siblings.
func (s *Session) ordersTypes() bool {
	return s.only == nil || s.siblings != nil && !s.siblings.several
}

// client yields the subscriptions of the client: those of the session and of its siblings.
func (s *Session) client(yield func(*subscription) bool) {
	if s.siblings == nil || s.siblings.several {
		slices.Values(s.subs)(yield)
		return
	}
	for _, o := range s.siblings.all {
		for _, u := range o.subs {
			if !yield(u) {
				return
			}
		}
	}
}

// clientOf yields the subscriptions of the client to a type.
func (s *Session) clientOf(t *xds.Type) iter.Seq[*subscription] {
	return func(yield func(*subscription) bool) {
		for u := range s.client {
			if u.typ.Is(t) && !yield(u) {
				return
			}
		}
	}
}

// other returns a subscription of the client to a type: of the session itself if it has one, else of the first
// sibling with the type, or nil. To a full-state type a client has only one.
func (s *Session) other(t *xds.Type) *subscription {
	if u := s.sub(t); u != nil || s.siblings == nil {
		return u
	}
	for u := range s.clientOf(t) {
		return u
	}
	return nil
}
