package rest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A stream is the polls for one type. Recv does them, in the goroutine of its caller.
type stream struct {
	transport *transport
	only      *xds.Type
	ctx       context.Context
	end       context.CancelCauseFunc
	wake      chan struct{} // rings for Recv, when names were sent
	due       time.Time     // of the next poll; Recv's

	mu    sync.Mutex
	node  *xds.Node
	want  *xds.Request       // what was sent last; nil: nothing yet
	named bool               // some request had names: one without wants nothing
	moved bool               // its names are not those of the last answer
	sent  int                // how often names were sent
	abort context.CancelFunc // the poll that is held; nil: none
	heard string             // the version of the last response
}

// Send makes a request that of the next poll, which is at once if its names are others.
func (s *stream) Send(r *xds.Request) error {
	if err := s.over(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *r
	next.Names = slices.Sorted(slices.Values(r.Names))
	// "Only the first message on a stream is guaranteed to carry the node identifier", and a
	// poll is no stream: each has it.
	if r.Node != nil {
		s.node = r.Node
	}
	s.named = s.named || len(next.Names) > 0
	was := s.want
	s.want = &next
	if was != nil && slices.Equal(was.Names, next.Names) {
		return nil
	}
	s.moved = was != nil
	s.sent++
	if s.abort != nil {
		s.abort()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// over returns why the stream has ended; nil: it has not.
func (s *stream) over() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return fmt.Errorf("%s: %w", s.transport.uri, cause)
	}
	return nil
}

// Recv polls until there is a response.
func (s *stream) Recv() (*xds.Response, error) {
	for {
		if err := s.rest(); err != nil {
			return nil, err
		}
		r, err := s.poll()
		if errors.Is(err, errOthers) {
			continue
		}
		if err != nil {
			if over := s.over(); over != nil {
				return nil, over
			}
			s.end(err)
			return nil, err
		}
		refresh := s.transport.options.Refresh
		s.due = time.Now().Add(refresh + rand.N(refresh/10+1))
		if r != nil {
			return r, nil
		}
	}
}

// rest waits until it is time to poll.
func (s *stream) rest() error {
	timer := time.NewTimer(time.Until(s.due))
	defer timer.Stop()
	elapsed := timer.C
	for {
		if err := s.over(); err != nil {
			return err
		}
		select {
		case <-s.ctx.Done():
			continue
		case <-s.wake:
		case <-elapsed:
			elapsed = nil
		}
		if s.wants() {
			return nil
		}
	}
}

// wants reports whether there is something to ask for. A request without names asks for all,
// unless one before it had some.
func (s *stream) wants() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want != nil && (len(s.want.Names) > 0 || !s.named)
}

// errOthers is that of a poll for names that nobody wants any more.
var errOthers = errors.New("other names were asked for")

// poll asks once, and returns nil if there is nothing new.
func (s *stream) poll() (*xds.Response, error) {
	s.mu.Lock()
	sent, want := s.sent, *s.want
	want.Node, want.Type = s.node, s.only
	if s.moved {
		// The version is of other names. Who takes it to be of these would say that nothing is new.
		want.Version = ""
	}
	ctx, abort := context.WithTimeoutCause(s.ctx, s.transport.options.Timeout, errTimeout)
	s.abort = abort
	s.mu.Unlock()
	defer abort()

	r, err := s.transport.post(ctx, &want)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.abort = nil
	switch {
	case s.sent != sent:
		return nil, errOthers
	case err != nil:
		return nil, err
	}
	select { // it rang for this poll
	case <-s.wake:
	default:
	}
	if want.Error != nil && s.want.Nonce == want.Nonce {
		s.want.Error = nil // the server knows it
	}
	moved := s.moved
	s.moved = false
	if r == nil || r.Version != "" && (r.Version == want.Version || r.Version == s.heard && !moved) {
		return nil, nil
	}
	s.heard = r.Version
	return r, nil
}
