package client

import "sync"

// A mailbox holds the events that a watch has not taken yet. For each name it has the last event.
// Before a Refused or Stale event, it also keeps an Updated event if that resource is still in use.
// So the number of names bounds the size of the mailbox, however slow the watch is. The method put
// never waits.
type mailbox struct {
	bell chan struct{} // one slot: an event was put

	mu          sync.Mutex // held for memory only
	slots       map[string]*slot
	first, last *slot // in the order of arrival of the names
	unusable    int   // bytes of names in slots marked unusable
}

// maxUnusable limits, in bytes, the names of unusable resources that only a wildcard or a
// collection matches. Without this limit a server could invent any number of such names. The watch
// gets no events beyond the limit.
const maxUnusable = 1 << 20

// A slot holds the waiting events of one name.
type slot struct {
	update   Event // an Updated event before step; Kind 0: none
	step     Event
	fresh    bool // the watch has no valid state of the name yet
	unusable bool // the name counts towards maxUnusable

	next, prev *slot
}

func newMailbox() *mailbox {
	return &mailbox{bell: make(chan struct{}, 1)}
}

// put adds an event. The parameter fresh means that the watch has no valid state of the name yet.
// If a fresh name is removed before the watch takes its event, the watch gets no event at all,
// unless keep is set.
func (m *mailbox) put(ev Event, fresh, keep bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[ev.Name]
	bare := fresh && !keep && ev.Err != nil && ev.Resource == nil
	switch {
	case s == nil && bare && m.unusable+len(ev.Name) > maxUnusable:
		return
	case s == nil:
		s = &slot{fresh: fresh}
		if m.slots == nil {
			m.slots = map[string]*slot{}
		}
		m.slots[ev.Name] = s
		m.append(s)
	case ev.Kind == Complete: // must come after the events that it completes
		m.remove(s)
		m.append(s)
	}
	switch ev.Kind {
	case Removed, Absent:
		if s.fresh && !keep {
			m.remove(s)
			delete(m.slots, ev.Name)
			return
		}
		s.update = Event{}
	case Refused, Stale:
		if s.step.Kind == Updated {
			s.update = s.step
		}
		if ev.Resource == nil {
			s.update = Event{}
		}
	default:
		s.update = Event{}
	}
	s.step = ev
	m.count(s, bare && s.fresh)
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

// take returns the next event, if any.
func (m *mailbox) take() (ev Event, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.first
	if s == nil {
		return Event{}, false
	}
	if s.update.Kind != 0 {
		ev, s.update, s.fresh = s.update, Event{}, false
		return ev, true
	}
	m.remove(s)
	delete(m.slots, s.step.Name)
	if m.first == nil {
		m.slots = nil // a map never shrinks
	}
	return s.step, true
}

func (m *mailbox) append(s *slot) {
	s.prev = m.last
	if s.prev != nil {
		s.prev.next = s
	} else {
		m.first = s
	}
	m.last, s.next = s, nil
}

func (m *mailbox) count(s *slot, bare bool) {
	if s.unusable != bare {
		s.unusable = bare
		if n := len(s.step.Name); bare {
			m.unusable += n
		} else {
			m.unusable -= n
		}
	}
}

func (m *mailbox) remove(s *slot) {
	m.count(s, false)
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		m.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		m.last = s.prev
	}
	s.next, s.prev = nil, nil
}
