package server

import (
	"net"
	"sync"
)

// silences are the streams on which no request has come. One of each connection is free:
// a fleet that comes back at once has as many, and a connection costs more than a stream.
// The others have seats.
type silences struct {
	*seats

	mu   sync.Mutex // held for memory only
	free map[net.Addr]*seat
}

func newSilences(s *seats) *silences { return &silences{seats: s, free: map[net.Addr]*seat{}} }

// enter finds a seat for a stream of a connection; nil: there is none.
func (s *silences) enter(conn net.Addr, lost loss) *seat {
	if free := s.first(conn); free != nil {
		return free
	}
	return s.seats.enter(conn, lost)
}

// first returns a free seat if the connection has none, else nil.
func (s *silences) first(conn net.Addr) *seat {
	if conn == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free[conn] != nil {
		return nil
	}
	free := &seat{free: conn}
	s.free[conn] = free
	return free
}

// leave gives a seat back. A second time does nothing.
func (s *silences) leave(of *seat) {
	if of.free == nil {
		s.seats.leave(of)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free[of.free] == of {
		delete(s.free, of.free)
	}
}

// taken is how many streams are silent.
func (s *silences) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.free) + s.seats.taken()
}
