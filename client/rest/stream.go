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

// A stream polls for one type. It polls in Recv, in the caller's goroutine.
type stream struct {
	transport *transport
	only      *xds.Type
	ctx       context.Context
	end       context.CancelCauseFunc
	wake      chan struct{} // one slot, for Recv: names have changed
	nextPoll  time.Time     // owned by Recv

	mu           sync.Mutex
	node         *xds.Node
	request      *xds.Request       // of the last Send; nil: none yet
	hasNamed     bool               // some request had names, so a request without names subscribes to nothing
	namesChanged bool               // the names have changed since the last response
	changes      int                // how often the names have changed
	abort        context.CancelFunc // ends the present poll; nil: none
	lastVersion  string             // version of the last response
}

// Send sets the request of the next poll, which starts at once if the names have changed.
func (s *stream) Send(r *xds.Request) error {
	if err := s.ended(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *r
	next.Names = slices.Sorted(slices.Values(r.Names))
	// "Only the first message on a stream is guaranteed to carry the node identifier". Each poll is
	// independent, so each has the node.
	if r.Node != nil {
		s.node = r.Node
	}
	s.hasNamed = s.hasNamed || len(next.Names) > 0
	was := s.request
	s.request = &next
	if was != nil && slices.Equal(was.Names, next.Names) {
		return nil
	}
	s.namesChanged = was != nil
	s.changes++
	if s.abort != nil {
		s.abort()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// ended returns the reason why the stream has ended; nil: it is open.
func (s *stream) ended() error {
	if cause := context.Cause(s.ctx); cause != nil {
		return fmt.Errorf("%s: %w", s.transport.uri, cause)
	}
	return nil
}

// Recv polls until there is a response.
func (s *stream) Recv() (*xds.Response, error) {
	for {
		if err := s.waitForPoll(); err != nil {
			return nil, err
		}
		r, err := s.poll()
		if errors.Is(err, errNamesChanged) {
			continue
		}
		if err != nil {
			if over := s.ended(); over != nil {
				return nil, over
			}
			s.end(err)
			return nil, err
		}
		refresh := s.transport.options.Refresh
		s.nextPoll = time.Now().Add(refresh + rand.N(refresh/10+1))
		if r != nil {
			return r, nil
		}
	}
}

// waitForPoll waits until the next poll is due.
func (s *stream) waitForPoll() error {
	timer := time.NewTimer(time.Until(s.nextPoll))
	defer timer.Stop()
	elapsed := timer.C
	for {
		if err := s.ended(); err != nil {
			return err
		}
		select {
		case <-s.ctx.Done():
			continue
		case <-s.wake:
		case <-elapsed:
			elapsed = nil
		}
		if s.isSubscribed() {
			return nil
		}
	}
}

// isSubscribed reports whether there is anything to poll for. A request without names subscribes to all
// resources, unless an earlier request had names.
func (s *stream) isSubscribed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.request != nil && (len(s.request.Names) > 0 || !s.hasNamed)
}

// errNamesChanged is the error of a poll whose names are not current any more.
var errNamesChanged = errors.New("other names were asked for")

// poll polls once. It returns nil if resources have not changed.
func (s *stream) poll() (*xds.Response, error) {
	s.mu.Lock()
	sent, want := s.changes, *s.request
	want.Node, want.Type = s.node, s.only
	if s.namesChanged {
		// The version belongs to other names. With it, a server could answer that nothing has changed.
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
	case s.changes != sent:
		return nil, errNamesChanged
	case err != nil:
		return nil, err
	}
	select { // a signal that this poll has already followed
	case <-s.wake:
	default:
	}
	if want.Error != nil && s.request.Nonce == want.Nonce {
		s.request.Error = nil // the server has received it
	}
	moved := s.namesChanged
	s.namesChanged = false
	if r == nil || r.Version != "" && (r.Version == want.Version || r.Version == s.lastVersion && !moved) {
		return nil, nil
	}
	s.lastVersion = r.Version
	return r, nil
}
