package revsource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// lookTime limits the time for reading the number of the newest revision, and for serving that
// revision.
const lookTime = 2 * time.Second

// A BehindError means that the server does not know whether it serves the newest revision.
type BehindError struct {
	Since time.Time // the time since when this is unknown
	Err   error     // the reason
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("the served configuration may be older than the newest revision: %v", e.Err)
}

// Unwrap returns the reason.
func (e *BehindError) Unwrap() error { return e.Err }

// Newest waits until the served configuration is at least as new as any that another server served
// before the call. It reads the head, and waits until that revision and the held revisions are
// served. After it, a client that comes from another server gets nothing older than what the client
// has. All waiting callers share one read.
//
// The error is a [BehindError] after 2 s. If hurry is false and the last attempt has failed, Newest
// returns that error at once. Newest returns earlier if ctx is done.
func (s *Source) Newest(ctx context.Context, hurry bool) error {
	r, away := s.asks.join(s.ask)
	if away != nil && !hurry {
		return away
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// asks are the shared reads of the repository. The zero value is ready to use.
type asks struct {
	mu   sync.Mutex    // never held during I/O
	now  *round        // the running round; nil: none
	next *round        // the round for callers that came after now began; nil: none
	news chan struct{} // closed when the served state or its error changes; nil: no round waits
	last error         // why the newest state was not served
	away *BehindError  // the failure of the last round; nil: it succeeded

	read <-chan struct{} // closed when the last read has ended; nil: there was none. Owned by the goroutine of answer
}

// A round is a read of the head, and the wait until that state is served.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// join returns a round that begins after the call of join, and the failure of the last round.
func (a *asks) join(ask func() error) (*round, *BehindError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil {
		a.now = &round{done: make(chan struct{})}
		go a.answer(a.now, ask)
		return a.now, a.away
	}
	if a.next == nil {
		a.next = &round{done: make(chan struct{})}
	}
	return a.next, a.away
}

// answer runs a round, and then the rounds that callers have joined in the meantime.
func (a *asks) answer(r *round, ask func() error) {
	for r != nil {
		began := time.Now()
		err := ask()
		a.mu.Lock()
		if err == nil {
			a.away = nil
		} else if a.away == nil {
			a.away = &BehindError{began, err}
		} else {
			a.away = &BehindError{a.away.Since, err}
		}
		if a.away != nil {
			r.err = a.away
		}
		a.now, a.next = a.next, nil
		close(r.done)
		r = a.now
		a.mu.Unlock()
	}
}

// turn records that another state is served, or the reason why it is not.
func (a *asks) turn(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = err
	if err == nil {
		a.away = nil
	}
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
}

// turned returns a channel that is closed at the next turn, and the last error.
func (a *asks) turned() (<-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news == nil {
		a.news = make(chan struct{})
	}
	return a.news, a.last
}

// ask waits until the newest revision is served.
func (s *Source) ask() error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	n, err := s.readHead(ctx)
	switch {
	case err != nil:
		return err
	case n.Number == 0:
		return ErrEmpty // the source may serve restored items, and other servers may have served newer ones
	}
	for {
		news, last := s.asks.turned()
		if s.State().AtLeast(n) {
			return nil
		}
		if rejected, ok := errors.AsType[*RejectedError](last); ok && rejected.State.AtLeast(n) {
			return rejected
		}
		s.repo.Refresh()
		select {
		case <-news:
		case <-ctx.Done():
			if last == nil {
				last = fmt.Errorf("revision %s is not read yet: %w", n.Number, revisions.ErrUnavailable)
			}
			return last
		}
	}
}

// readHead reads the head. If a call of the engine takes longer than ctx, readHead abandons the call.
// It makes no other call until the abandoned one ends.
func (s *Source) readHead(ctx context.Context) (n revisions.State, err error) {
	if s.asks.read != nil {
		select {
		case <-s.asks.read:
		case <-ctx.Done():
			return n, errNoAnswer
		}
	}
	type result struct {
		n   revisions.State
		err error
	}
	done, read := make(chan result, 1), make(chan struct{})
	s.asks.read = read
	go func() {
		defer close(read)
		n, err := s.repo.Newest(ctx)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-ctx.Done():
		return n, errNoAnswer
	}
}

var errNoAnswer = fmt.Errorf("%w: it does not answer", revisions.ErrUnavailable)

// Repository returns the repository that the source reads. Revisions that it reads share memory with
// the served one.
func (s *Source) Repository() *revisions.Repository { return s.repo }
