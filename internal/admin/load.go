package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// maxHeavy is how many answers that may be large are made and sent at once: such an answer
	// of 10,000 clients has 20 MB.
	maxHeavy = 8

	// maxHeld is how many of these one connection of HTTP/2 has.
	maxHeld = 4

	// maxMade is how many others are made at once: each looks at all clients, or asks one.
	maxMade = 8

	// maxWriters is how many change endpoints at once: they wait for the disk together.
	maxWriters = 64
)

// doors are those of one purpose: unix sockets have their own, so that nobody who asks over the
// network keeps the operator of this machine from asking.
type doors struct{ unix, other door }

func newDoors(n int) doors { return doors{make(door, n), make(door, n)} }

// of is the door of a request.
func (d *doors) of(r *http.Request) door {
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		return d.unix
	}
	return d.other
}

// wait enters a door, if need be after a while.
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

// big is for answers that may be large: few are made at a time, and until one is sent it counts.
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

// hold counts a large answer of a connection: one of HTTP/2 may ask for many at once and read none,
// and must leave room for others. Connections of unix sockets have no names to tell them apart.
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
		if s.held[r.RemoteAddr]--; s.held[r.RemoteAddr] == 0 {
			delete(s.held, r.RemoteAddr)
		}
	}, nil
}

// brief is for answers that cost much to make, and are short: few are made at a time. One that
// nobody reads holds up no others.
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

// made is an answer that is not sent yet.
type made struct {
	http.ResponseWriter
	code int
	body []byte
}

// WriteHeader implements [http.ResponseWriter].
func (m *made) WriteHeader(code int) { m.code = code }

// Write implements [http.ResponseWriter]. It keeps what it gets: an answer is written at once.
func (m *made) Write(b []byte) (int, error) {
	m.body = b
	return len(b), nil
}
