package server

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/chancery-xds/chancery/protocol"
)

// Errors of [Stream.Inspect].
var (
	// ErrNotBegun says that a stream has no session yet: nobody knows what its node may see.
	ErrNotBegun = errors.New("the stream's session has not begun: nothing is configured for its node yet")

	// ErrEnded says that a stream has ended, or that it is none: polls are not.
	ErrEnded = errors.New("the stream has ended")
)

// Inspect calls f with the session of the stream, which is up to date then, and returns f's
// end: by it an observer that is told of streams learns what their clients have, by name
// ([protocol.Session.NameStates]). f is called by the stream's goroutine, which meanwhile does
// nothing else: it must be quick, must only read, and must not keep the session. It must not
// inspect the same stream.
//
// If ctx is done first, f is not called any more, and the error is its cause. Before the
// session has begun it is [ErrNotBegun], after the stream's end [ErrEnded]. If f panics, that is
// logged as any panic of an embedder's code; the stream lives, and the error says nothing more.
//
// It may be called by any goroutine, but for a method of an [Observer], which holds up its
// stream.
func (s *Stream) Inspect(ctx context.Context, f func(*protocol.Session)) error {
	if s == nil || s.asks == nil {
		return ErrEnded
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return s.asks.ask(ctx, f)
}

// asks are what wants to look at a session. Any goroutine adds one, and the stream's own takes
// all of them at each step. Only wake is set beforehand.
type asks struct {
	wake   loss                // of the stream
	newest atomic.Pointer[ask] // not taken yet, or over
	waking atomic.Bool         // a notice is in wake: one is enough
	left   atomic.Bool         // it was told to leave
}

// An ask waits for its turn, and then is either taken by the stream or given up.
type ask struct {
	f     func(*protocol.Session)
	done  chan error // with one slot
	taken atomic.Bool
	older *ask
}

// over stands for what comes after the stream's end.
var over ask

// ask asks, and waits for the answer.
func (a *asks) ask(ctx context.Context, f func(*protocol.Session)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q := &ask{f: f, done: make(chan error, 1)}
	for added := false; !added; {
		if q.older = a.newest.Load(); q.older == &over {
			return ErrEnded
		}
		added = a.newest.CompareAndSwap(q.older, q)
	}
	if a.waking.CompareAndSwap(false, true) {
		a.wake.notify(notice{what: asked})
	}
	select {
	case err := <-q.done:
		return err
	case <-ctx.Done():
		if q.taken.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		return <-q.done // f is being called: what it writes to is not its caller's before it returns
	}
}

// woken notes that the notice was read.
func (a *asks) woken() { a.waking.Store(false) }

// open reports whether there are some that nobody has taken.
func (a *asks) open() bool { return a.newest.Load() != nil }

// answer answers all, the oldest first.
func (a *asks) answer(call func(f func(*protocol.Session)) error) {
	if a.open() {
		a.take(nil, call)
	}
}

// end answers all that come too late.
func (a *asks) end() {
	a.take(&over, func(func(*protocol.Session)) error { return ErrEnded })
}

func (a *asks) take(leave *ask, call func(f func(*protocol.Session)) error) {
	var first *ask
	for q := a.newest.Swap(leave); q != nil; {
		q, q.older, first = q.older, first, q
	}
	for q := first; q != nil; q = q.older {
		if q.taken.CompareAndSwap(false, true) {
			q.done <- call(q.f)
		}
	}
}
