package server

import (
	"context"
	"sync"
)

// Drain ends all streams and returns when the last one has ended or ctx is done. Streams end with UNAVAILABLE, spread
// over the drain time ([WithDrainTime]), so that clients do not all reconnect at once. When Drain starts,
// health becomes NOT_SERVING and new streams are refused. This cannot be undone.
//
// After Drain call grpc.Server.GracefulStop with a timeout, and then Stop. Stop without GracefulStop may cut off the
// last stream before its status is sent. GracefulStop alone may wait for ever, for example for watches of
// the health service. A nil ctx means no deadline.
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

// A drain counts the open streams and polls, and signals the start and the end of a drain.
type drain struct {
	began chan struct{} // closed when the drain starts
	empty chan struct{} // closed when the drain has started and the last stream has ended

	mu    sync.Mutex
	open  int // streams and polls
	begun bool
}

func newDrain() drain { return drain{began: make(chan struct{}), empty: make(chan struct{})} }

// enter counts a stream or a poll. It returns false after the drain has started.
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
	d.open--
	if d.begun && d.open == 0 {
		close(d.empty)
	}
}

// begin starts the drain. It returns false if the drain has started before.
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
