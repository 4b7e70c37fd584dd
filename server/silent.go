package server

import (
	"context"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// silentStreams limits the streams without a request. The first silent stream of each connection is
// free and has no seat: a fleet that reconnects at once has one such stream on each connection, and
// a connection costs more than a stream. The other streams have seats.
type silentStreams struct {
	*seats

	mu   sync.Mutex // held for memory only
	free map[net.Addr]*seat
}

func newSilentStreams(s *seats) *silentStreams {
	return &silentStreams{seats: s, free: map[net.Addr]*seat{}}
}

// enter takes a seat for a stream of a connection. It returns nil if no seat is free.
func (s *silentStreams) enter(conn net.Addr, lost notices) *seat {
	if free := s.first(conn); free != nil {
		return free
	}
	return s.seats.enter(conn, lost)
}

// first returns the free seat of the connection, or nil if another stream has taken it.
func (s *silentStreams) first(conn net.Addr) *seat {
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

// room reports whether a stream of a connection would get a seat.
func (s *silentStreams) room(conn net.Addr) bool {
	s.mu.Lock()
	free := conn == nil || s.free[conn] == nil
	s.mu.Unlock()
	if free {
		return true
	}
	return s.seats.room(conn)
}

// leave gives back a seat. A second call does nothing.
func (s *silentStreams) leave(of *seat) {
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

// taken returns the number of streams without a request.
func (s *silentStreams) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.free) + s.seats.taken()
}

// errGone refuses a stream whose client has closed the connection (SAFE-14).
var errGone = status.Error(codes.Canceled, "the connection is closed")

// Tap is a handler for [grpc.InTapHandle]. If no seat for silent streams is free ([Limits.Silent]),
// or none for streams ([Limits.Streams]), Tap refuses a stream before gRPC starts a goroutine for
// it; a Fetch needs only the first. Without Tap the same streams are refused a little later. A flood
// of streams may then have thousands of goroutines on a busy machine.
func (s *Server) Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	_, timed := ctx.Deadline() // gRPC does not stop the timer of a call that Tap refuses
	if timed || !strings.HasPrefix(call.FullMethodName, "/envoy.") {
		return ctx, nil
	}
	from, full := peerOf(ctx), s.silent.full
	if s.unfinished.Gone(from) {
		return ctx, errGone
	}
	if s.silent.room(from) {
		method := call.FullMethodName[strings.LastIndexByte(call.FullMethodName, '/')+1:]
		if strings.HasPrefix(method, "Fetch") || s.seats.room(from) {
			return ctx, nil
		}
		full = s.seats.full
	}
	if !s.repeats.Full(status.Convert(full).Message(), 1) {
		return ctx, nil // the refusal would be logged, and gRPC holds a lock here
	}
	return ctx, s.guarded(&Stream{}, func() error { s.logNoSeat(ctx, full); return full })
}
