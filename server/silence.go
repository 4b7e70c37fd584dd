package server

import (
	"context"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/chancery-xds/chancery/internal/limit/fair"
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

// room reports whether a stream of a connection would find a seat.
func (s *silences) room(conn net.Addr) bool {
	s.mu.Lock()
	free := conn == nil || s.free[conn] == nil
	s.mu.Unlock()
	if free {
		return true
	}
	s.seats.mu.Lock()
	defer s.seats.mu.Unlock()
	return s.shares.Room(fair.Owner(conn))
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

// Tap is for [grpc.InTapHandle]: it refuses a stream, or a Fetch, for which there is no room
// among those on which no request has come ([Limits.Silent]) before gRPC has a goroutine for
// it. They are refused without it, too, but a flood of them then has thousands of goroutines
// when the machine is busy.
func (s *Server) Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	_, timed := ctx.Deadline() // then gRPC would keep its timer
	if timed || !strings.HasPrefix(call.FullMethodName, "/envoy.") || s.silent.room(peerOf(ctx)) {
		return ctx, nil
	}
	full := s.silent.full
	if !s.repeats.Full(status.Convert(full).Message(), 1) {
		return ctx, nil // there is a line to write, and gRPC holds a lock
	}
	return ctx, s.guarded(&Stream{}, func() error { s.crowded(ctx, full); return full })
}
