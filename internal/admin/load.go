package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// maxHeavy is the maximum number of large answers that are built and sent at the same time. An answer
	// with 10,000 clients has 20 MB.
	maxHeavy = 8

	// maxHeld is the maximum number of large answers in progress on one HTTP/2 connection.
	maxHeld = 4

	// maxMade is the maximum number of other answers that are built at the same time: each reads the
	// state of all clients, or inspects the streams of one.
	maxMade = 8

	// maxWriters is the maximum number of concurrent changes of endpoints. Concurrent changes share one
	// write to the disk.
	maxWriters = 64
)

// doors has the doors for one purpose. Unix sockets have a door of their own, so that network callers
// cannot block a local operator.
type doors struct{ unix, other door }

func newDoors(n int) doors { return doors{make(door, n), make(door, n)} }

// of returns the door for a request.
func (d *doors) of(r *http.Request) door {
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		return d.unix
	}
	return d.other
}

// wait enters a door. If the door is full, it waits up to askTime.
func (d door) wait(ctx context.Context) (leave func(), err error) {
	t := time.NewTimer(askTime)
	defer t.Stop()
	select {
	case d <- struct{}{}:
		return func() { <-d }, nil
	case <-ctx.Done():
		return nil, errEnding
	case <-t.C:
		return nil, &problem{http.StatusServiceUnavailable, "", fmt.Sprintf("too many answers of this kind are under way: %d at most", cap(d)), "try again later"}
	}
}

// big limits the concurrency of a handler with large answers. An answer counts until the peer has
// received it.
func (s *Server) big(f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		done, err := s.hold(r)
		if err != nil {
			return err
		}
		defer done()
		leave, err := s.heavy.of(r).wait(r.Context())
		if err != nil {
			return err
		}
		defer leave()
		return f(w, r)
	}
}

// hold counts the large answers in progress on an HTTP/2 connection, because a peer may request many
// at the same time and read none. Connections on unix sockets are not counted, because they have no
// address.
func (s *Server) hold(r *http.Request) (done func(), _ error) {
	if r.ProtoMajor < 2 || r.RemoteAddr == "" || r.RemoteAddr == "@" {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[r.RemoteAddr] >= maxHeld {
		return nil, &problem{http.StatusTooManyRequests, "", fmt.Sprintf("too many large answers on one connection: %d at most", maxHeld), "read one of them first"}
	}
	if s.held == nil {
		s.held = map[string]int{}
	}
	s.held[r.RemoteAddr]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[r.RemoteAddr]--
		if s.held[r.RemoteAddr] == 0 {
			delete(s.held, r.RemoteAddr)
		}
	}, nil
}

// brief limits the concurrency of a handler whose short answers are expensive to build. An answer counts
// only until it is built, so a peer that does not read its answer does not block others.
func (s *Server) brief(d *doors, f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		made := &made{ResponseWriter: w}
		err := func() error {
			leave, err := d.of(r).wait(r.Context())
			if err != nil {
				return err
			}
			defer leave()
			return f(made, r)
		}()
		if err != nil {
			return err
		}
		w.WriteHeader(made.code)
		_, _ = w.Write(made.body)
		return nil
	}
}

// A made is a complete answer in memory. It is sent after the handler has left the door.
type made struct {
	http.ResponseWriter
	code int
	body []byte
}

// WriteHeader implements [http.ResponseWriter].
func (m *made) WriteHeader(code int) { m.code = code }

// Write implements [http.ResponseWriter]. It keeps b without a copy, because a handler writes its
// whole answer with one call.
func (m *made) Write(b []byte) (int, error) {
	m.body = b
	return len(b), nil
}
