package server

import (
	"context"
	"sync"
)

// Drain ends all streams with UNAVAILABLE, each at a moment of its own within
// the drain time, and returns when the last has ended or ctx is done. From its
// first moment on health is NOT_SERVING and new streams are refused, for good.
//
// Afterwards call grpc.Server.GracefulStop, and after a second Stop. Stop alone
// may cut the last stream off before it has said why it ends; GracefulStop alone
// would wait for ever for what does not end by itself, such as watches of health,
// and without Drain for every stream. A nil ctx is never done.
func (s *Server) Drain(ctx context.Context) error {
	if s == nil || s.health == nil {
		return errNotMade
	}
	if ctx == nil {
		ctx = context.Background()
	}
	s.health.Shutdown()
	if s.drain.begin() {
		s.seats.drain()
	}
	select {
	case <-s.drain.empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A drain counts the open streams and polls and tells them when to leave.
type drain struct {
	began chan struct{} // closed when draining has begun
	empty chan struct{} // closed when, after that, no stream is left

	mu    sync.Mutex
	open  int // streams and polls
	begun bool
}

func newDrain() drain { return drain{began: make(chan struct{}), empty: make(chan struct{})} }

// enter counts a stream or a poll, unless draining has begun.
func (d *drain) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.begun {
		d.open++
	}
	return !d.begun
}

func (d *drain) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open--; d.begun && d.open == 0 {
		close(d.empty)
	}
}

// begin reports whether it has not begun before.
func (d *drain) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun {
		return false
	}
	d.begun = true
	close(d.began)
	if d.open == 0 {
		close(d.empty)
	}
	return true
}
