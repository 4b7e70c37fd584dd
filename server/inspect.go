package server

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// Errors of [Stream.Inspect].
var (
	// ErrNotBegun means that a stream has no session yet, because the content for its node is not known.
	ErrNotBegun = errors.New("the stream's session has not begun: nothing is configured for its node yet")

	// ErrEnded means that a stream has ended. Polls, which cannot be inspected, return it too.
	ErrEnded = errors.New("the stream has ended")
)

// Inspect calls f with the up-to-date session of the stream, and returns when f has returned. So an
// observer that keeps streams can find out which resources their clients hold
// ([protocol.Session.NameStates]). The function f runs in the goroutine of the stream, which does
// nothing else meanwhile. So f must be quick, must only read, must not keep the session and must
// not inspect the same stream.
//
// If ctx is done first, f is not called, and the error is the cause of ctx. Before the session has begun the error is
// [ErrNotBegun], and after the end of the stream [ErrEnded]. A panic in f is logged; the stream continues.
//
// Any goroutine may call Inspect, except a method of an [Observer], which blocks its stream and the other streams
// of the client.
func (s *Stream) Inspect(ctx context.Context, f func(*protocol.Session)) error {
	if s == nil || s.inspections == nil {
		return ErrEnded
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return s.inspections.add(ctx, f)
}

// Resend makes the stream send resources again, changed or not, on behalf of an operator: see
// [protocol.Session.Resend]. It returns their number, and does not wait for the responses. The errors are
// those of [Stream.Inspect].
func (s *Stream) Resend(ctx context.Context, t *xds.Type, name string) (count int, err error) {
	err = s.Inspect(ctx, func(session *protocol.Session) { count = session.Resend(t, name) })
	if err == nil {
		err = s.Inspect(ctx, func(*protocol.Session) {}) // a step sends before it inspects, so this needs another step
	}
	return count, err
}

// inspections are the pending calls of Inspect for a stream. Any goroutine may add a call, and the
// stream's goroutine takes all pending calls at each step. The field wake must be set before use.
type inspections struct {
	wake   notices                    // of the stream
	newest atomic.Pointer[inspection] // a list, newest first; &streamEnded after the end of the stream
	waking atomic.Bool                // wake already has a notice: one notice is enough
	left   atomic.Bool                // Leave or Disconnect was called
}

// An inspection is one call of Inspect. It waits until the stream takes it, or the context of its caller is done.
type inspection struct {
	f     func(*protocol.Session)
	done  chan error // with one slot
	taken atomic.Bool
	older *inspection
}

// streamEnded replaces the list after the end of the stream.
var streamEnded inspection

// add adds a call and waits for its result.
func (a *inspections) add(ctx context.Context, f func(*protocol.Session)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q := &inspection{f: f, done: make(chan error, 1)}
	for added := false; !added; {
		q.older = a.newest.Load()
		if q.older == &streamEnded {
			return ErrEnded
		}
		added = a.newest.CompareAndSwap(q.older, q)
	}
	if a.waking.CompareAndSwap(false, true) {
		a.wake.notify(notice{what: noticeInspect})
	}
	select {
	case err := <-q.done:
		return err
	case <-ctx.Done():
		if q.taken.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		return <-q.done // f is running, and may still write to variables of the caller
	}
}

// noticed records that the notice was received.
func (a *inspections) noticed() { a.waking.Store(false) }

// pending reports whether there are pending calls.
func (a *inspections) pending() bool { return a.newest.Load() != nil }

// answer runs all pending calls, oldest first.
func (a *inspections) answer(call func(f func(*protocol.Session)) error) {
	if a.pending() {
		a.take(nil, call)
	}
}

// end makes pending and later calls return ErrEnded.
func (a *inspections) end() {
	a.take(&streamEnded, func(func(*protocol.Session)) error { return ErrEnded })
}

func (a *inspections) take(leave *inspection, call func(f func(*protocol.Session)) error) {
	var first *inspection
	for q := a.newest.Swap(leave); q != nil; {
		q, q.older, first = q.older, first, q
	}
	for q := first; q != nil; q = q.older {
		if q.taken.CompareAndSwap(false, true) {
			q.done <- call(q.f)
		}
	}
}
