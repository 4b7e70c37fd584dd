package protocol

import (
	"slices"
	"time"
)

// mutes are the names whose absence is kept from the client for a while.
//
// Invariant: the list is in order of time, and each name is in it with its time.
type mutes struct {
	until map[string]time.Time
	list  []muting // these, and some that count no more
}

// A muting says until when the absence of a name is kept back.
type muting struct {
	name  string
	until time.Time
}

// keepBack keeps the absence of names from a client that must not be told of it for
// a while after it asked for them.
func (s *Session) keepBack(u *subscription, names []string) {
	d := u.typ.Mute[s.agent]
	if d == 0 {
		return
	}
	until := s.now.Add(d)
	for _, n := range names {
		e := u.entry(n)
		if e == nil || e.sent {
			continue
		}
		if u.mute == nil {
			u.mute = &mutes{until: map[string]time.Time{}}
		}
		if !until.Equal(u.mute.until[e.name]) {
			u.mute.until[e.name] = until
			u.queue(muting{e.name, until})
		}
	}
}

// queue adds a muting behind the others: their time is the same, so that the first ends
// first. Before the list would grow, it loses those that count no more.
func (u *subscription) queue(m muting) {
	if l := u.mute; len(l.list) == cap(l.list) {
		l.list = slices.DeleteFunc(l.list, func(m muting) bool {
			if !l.until[m.name].Equal(m.until) {
				return true // it was asked for again since
			}
			e := u.entry(m.name)
			if e == nil || e.sent {
				delete(l.until, m.name)
			}
			return e == nil || e.sent
		})
		l.list = slices.Grow(l.list, len(l.list)+1)
	}
	u.mute.list = append(u.mute.list, m)
}

// mutes reports whether the absence of a name is to be kept from the client for
// now.
func (s *Session) mutes(u *subscription, e *entry) bool {
	return !e.sent && u.mute != nil && s.now.Before(u.mute.until[e.name])
}

// mutedBy is when the absence of a name is kept back no longer; zero: never.
func (y *saying) mutedBy() time.Time {
	if y.mute == nil || len(y.mute.list) == 0 {
		return time.Time{}
	}
	return y.mute.list[0].until
}

// unmute lets go of names whose time is over, or of which something was told. It looks
// at the first alone while that one counts: there may be many.
func (s *Session) unmute(u *subscription) {
	m := u.mute
	if m == nil {
		return
	}
	for len(m.list) > 0 {
		n, until := m.list[0].name, m.list[0].until
		e, counts := u.entry(n), m.until[n].Equal(until)
		if counts && e != nil && !e.sent && s.now.Before(until) {
			return
		}
		m.list[0] = muting{}
		m.list = m.list[1:]
		if !counts {
			continue
		}
		delete(m.until, n)
		if e != nil {
			u.mark(e)
		}
	}
	u.mute = nil
}
