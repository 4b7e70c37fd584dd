package revsource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// lookTime limits how long it may take to learn the newest revision, and to serve it.
const lookTime = 2 * time.Second

// A BehindError means that the server cannot tell whether it serves the newest revision.
type BehindError struct {
	Since time.Time // since when it is unknown
	Err   error     // the reason
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("the served configuration may be older than the newest revision: %v", e.Err)
}

// Unwrap returns the reason.
func (e *BehindError) Unwrap() error { return e.Err }

// Newest waits until the served configuration is at least as new as any that another server served before
// the call. It reads the head, and waits until that revision and the held revisions are served. Then a
// client that comes from another server gets nothing older than what it has. Any number of callers share
// a read.
//
// The error is a [BehindError] if that takes longer than 2 s. A caller that is not in a hurry returns at
// once while the last attempt has failed, and waits at most for ctx.
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
	mu   sync.Mutex    // held for memory only
	now  *round        // the running round; nil: none
	next *round        // the round of the callers since it began; nil: none
	news chan struct{} // closed when the served state or its error changes; nil: no caller waits
	last error         // why the newest state was not served
	away *BehindError  // the last round has failed; nil: it has not

	read <-chan struct{} // closed when the last read has ended; nil: there was none. Owned by the goroutine that answers
}

// A round is a read of the head, and the wait until it is served.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// join returns a round that begins after the call of join, and the failure of the last one.
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

// answer runs a round, and the rounds that callers join meanwhile.
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

// turn records that another state is served, or why it is not.
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

// ask returns when the newest revision is served.
func (s *Source) ask() error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	n, err := s.readHead(ctx)
	switch {
	case err != nil:
		return err
	case n.Number == 0:
		return ErrEmpty // restored items may be served, and other servers may have served newer ones
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

// readHead reads the head. A call of the engine that outlives ctx is abandoned, and no other is made
// until it ends.
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

// Repository is the repository that the source reads. Revisions read through it share memory with the
// served one.
func (s *Source) Repository() *revisions.Repository { return s.repo }
