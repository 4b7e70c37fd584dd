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
// Siblings is not safe for concurrent use, together with all its sessions. Before an input of one
// session, give all of them the present time and view (Update). After the input and its responses,
// the sessions that are not Idle may have responses, and other deadlines.
type Siblings struct {
	all      []*Session
	several  bool // the streams are of several clients
	separate bool // several stays set
	epoch    uint64
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

// opensAgain is the condition that a stream of a type has just ended, so that the client may open it again.
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

// joined finds out whether the streams are of several clients. A client has one stream of a type whose
// responses have the full state. Of other types it may have one stream for each name.
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

// maxLooks limits how often Update asks for the views. Views change seldom, so two times are enough
// unless the changed names are not known.
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

// Depends reports whether anything waits for another type. It needs no view.
func (s *Session) Depends() bool {
	return slices.ContainsFunc(s.subs, func(u *subscription) bool { return u.waiting.len() > 0 || len(u.leaving) > 0 })
}

// ordersTypes reports whether the session knows the other types of its client: on an aggregated stream, or by siblings.
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

// other returns the first subscription of the client to a type, or nil. A client has one to a full-state type.
func (s *Session) other(t *xds.Type) *subscription {
	if u := s.sub(t); u != nil || s.siblings == nil {
		return u
	}
	for u := range s.clientOf(t) {
		return u
	}
	return nil
}
