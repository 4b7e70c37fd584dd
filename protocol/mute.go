package protocol

import (
	"slices"
	"time"
)

// mutes lists the names whose absence is not reported yet (DELTA-7). Terms: see doc.go.
//
// Invariant: list is sorted by time. Each name in until is in list with the same time.
type mutes struct {
	until map[string]time.Time
	list  []muting // may contain outdated elements, whose time is not in until
}

// A muting is the time until which the absence of a name is not reported.
type muting struct {
	name  string
	until time.Time
}

// keepBack delays the report that names do not exist, for clients that cannot handle this report
// right after the subscription. The delay begins with the subscription.
func (s *Session) keepBack(u *subscription, names []string) {
	d := u.typ.AbsenceDelay[s.agent]
	if d == 0 {
		return
	}
	until := s.now.Add(d)
	for _, n := range names {
		e := u.Entry(n)
		if e == nil || !e.Untold() {
			continue
		}
		if u.mute == nil {
			u.mute = &mutes{until: map[string]time.Time{}}
		}
		if !until.Equal(u.mute.until[e.Name]) {
			u.mute.until[e.Name] = until
			u.queue(muting{e.Name, until})
		}
	}
}

// queue appends a muting. All delays of a type are equal, so the list stays sorted. When the list
// would have to grow, queue first drops the outdated elements.
func (u *subscription) queue(m muting) {
	if l := u.mute; len(l.list) == cap(l.list) {
		l.list = slices.DeleteFunc(l.list, func(m muting) bool {
			if !l.until[m.name].Equal(m.until) {
				return true // the client has subscribed to the name again since
			}
			e := u.Entry(m.name)
			if e == nil || !e.Untold() {
				delete(l.until, m.name)
			}
			return e == nil || !e.Untold()
		})
		l.list = slices.Grow(l.list, len(l.list)+1)
	}
	u.mute.list = append(u.mute.list, m)
}

// mutes reports whether the absence of a name must not be reported yet.
func (s *Session) mutes(u *subscription, e *entry) bool {
	return e.Untold() && u.mute != nil && s.now.Before(u.mute.until[e.Name])
}

// mutedBy returns the time at which the next absence may be reported; zero: never.
func (u *subscription) mutedBy() time.Time {
	if u.mute == nil || len(u.mute.list) == 0 {
		return time.Time{}
	}
	return u.mute.list[0].until
}

// unmute drops names whose delay is over, or for which something was sent. There may be many names,
// so unmute stops at the first one that is still muted.
func (s *Session) unmute(u *subscription) {
	m := u.mute
	if m == nil {
		return
	}
	for len(m.list) > 0 {
		n, until := m.list[0].name, m.list[0].until
		e, counts := u.Entry(n), m.until[n].Equal(until)
		if counts && e != nil && e.Untold() && s.now.Before(until) {
			return
		}
		m.list[0] = muting{}
		m.list = m.list[1:]
		if !counts {
			continue
		}
		delete(m.until, n)
		if e != nil {
			u.Touch(e)
		}
	}
	u.mute = nil
}
