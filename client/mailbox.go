package client

import "sync"

// A mailbox holds what a watch has not taken yet: of each name the last step, and the update
// before it whose resource is still in use. So it is bounded by the names that the watch was
// told of and those that there are, however slow the watch is, and whoever puts never waits.
type mailbox struct {
	bell chan struct{} // one slot: something was put

	mu          sync.Mutex // held for memory only
	slots       map[string]*slot
	first, last *slot // in the order in which the names came
	bare        int   // bytes of the names of which there is nothing but that they cannot be used
}

// maxBare is how many bytes of names a mailbox holds of resources that cannot be used, and that
// only a wildcard or a collection finds: a server could invent them without end. Of more the watch
// does not hear.
const maxBare = 1 << 20

// A slot is what is due of one name.
type slot struct {
	update Event // before last; Kind 0: none
	step   Event
	fresh  bool // the watch knows nothing of the name
	bare   bool // it counts as one

	next, prev *slot
}

func newMailbox() *mailbox {
	return &mailbox{bell: make(chan struct{}, 1)}
}

// put leaves an event. Fresh says that the watch was told nothing of the name that still holds:
// if it is gone before the watch has looked, there is nothing to tell unless keep says so.
func (m *mailbox) put(ev Event, fresh, keep bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[ev.Name]
	bare := fresh && !keep && ev.Err != nil && ev.Resource == nil
	switch {
	case s == nil && bare && m.bare+len(ev.Name) > maxBare:
		return
	case s == nil:
		s = &slot{fresh: fresh}
		if m.slots == nil {
			m.slots = map[string]*slot{}
		}
		m.slots[ev.Name] = s
		m.append(s)
	case ev.Kind == Complete: // comes after what it completes
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

// take returns the next event, if there is one.
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
	if delete(m.slots, s.step.Name); m.first == nil {
		m.slots = nil // a map does not shrink
	}
	return s.step, true
}

func (m *mailbox) append(s *slot) {
	if s.prev = m.last; s.prev != nil {
		s.prev.next = s
	} else {
		m.first = s
	}
	m.last, s.next = s, nil
}

func (m *mailbox) count(s *slot, bare bool) {
	if s.bare != bare {
		s.bare = bare
		if n := len(s.step.Name); bare {
			m.bare += n
		} else {
			m.bare -= n
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
