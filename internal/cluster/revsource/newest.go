package revsource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// lookTime is how long it may take to find out whether what is served is the newest, and to serve that.
const lookTime = 2 * time.Second

// A BehindError says that nobody knows whether what is served is the newest revision.
type BehindError struct {
	Since time.Time // since when that is not known
	Err   error     // why
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("what is served may be older than the newest revision: %v", e.Err)
}

// Unwrap returns why.
func (e *BehindError) Unwrap() error { return e.Err }

// Newest returns when what is served is at least as new as what anybody may have served of the repository before
// it was called: it reads the head after that, and waits until that revision, with what groups are held at, is served here. A client that comes from another server is told
// nothing older than what it has, then. Any number of callers share a read.
//
// A [BehindError] says that this was not to be known within 2 s. Who is in no hurry to know does not wait for that while
// the last try has failed, or longer than for ctx.
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

// Asks are what is asked of the repository. The zero value is ready to use.
type asks struct {
	mu   sync.Mutex    // held for memory only
	now  *round        // is being answered; nil: none is
	next *round        // of those who came since it began; nil: none have
	news chan struct{} // closed when something else is served, or is not; nil: nobody waits for that
	last error         // why what was newest was not served
	away *BehindError  // the last round has failed; nil: it has not

	read <-chan struct{} // closed when the last read has ended; nil: there was none. Owned by the goroutine that answers
}

// A round is a read of the head, and whether it is served.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// join returns a round that begins after join was called, and whether the last has failed.
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

// answer answers a round, and those that are wanted meanwhile.
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

// turn notes that something else is served, or why it is not.
func (a *asks) turn(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last = err; err == nil {
		a.away = nil
	}
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
}

// turned returns what is closed at the next turn, and what the last said.
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
		return ErrEmpty // but what was restored may be served, and others may have served more
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

// readHead reads the head. An engine that does not end with ctx is left behind, and asked nothing more before it has.
func (s *Source) readHead(ctx context.Context) (n revisions.State, err error) {
	if s.asks.read != nil {
		select {
		case <-s.asks.read:
		case <-ctx.Done():
			return n, errSilent
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
		return n, errSilent
	}
}

var errSilent = fmt.Errorf("%w: it does not answer", revisions.ErrUnavailable)

// Repository is what the source reads. Who asks it for revisions shares what is served already.
func (s *Source) Repository() *revisions.Repository { return s.repo }
