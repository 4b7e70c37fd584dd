package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// maxHeavy limits the large answers that are built and sent at once. One of 10,000 clients has 20 MB.
	maxHeavy = 8

	// maxHeld limits them on one HTTP/2 connection.
	maxHeld = 4

	// maxMade limits the other answers that are built at once: each looks at all clients, or asks one.
	maxMade = 8

	// maxWriters limits concurrent changes of endpoints: they wait for the disk together.
	maxWriters = 64
)

// doors has the doors for one purpose. Unix sockets have their own, so that network callers cannot block a
// local operator.
type doors struct{ unix, other door }

func newDoors(n int) doors { return doors{make(door, n), make(door, n)} }

// of returns the door for a request.
func (d *doors) of(r *http.Request) door {
	if _, unix := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); unix {
		return d.unix
	}
	return d.other
}

// wait enters a door, after a while if necessary.
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

// big limits handlers with large answers. An answer counts until it is sent.
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

// hold counts the large answers of an HTTP/2 connection: a peer may ask for many at once and read none.
// Unix connections have no address to tell them apart.
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

// brief limits handlers whose short answers are expensive to build. An answer that the peer does not read
// does not block others.
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

// Write implements [http.ResponseWriter]. It keeps b, because each answer is one write.
func (m *made) Write(b []byte) (int, error) {
	m.body = b
	return len(b), nil
}
