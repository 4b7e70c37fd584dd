package admin

import (
	"fmt"
	"net/http"
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

	// maxUnfinished is the number of bytes that the bodies of all requests may have in memory, without those
	// up to 64 KiB.
	maxUnfinished = 64 << 20

	// maxWriters is the maximum number of concurrent changes of endpoints. Concurrent changes share one
	// write to the disk.
	maxWriters = 64
)

// big limits the concurrency of a handler with large answers. An answer counts until the peer has
// received it.
func (s *Server) big(f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		done, err := s.hold(r)
		if err != nil {
			return err
		}
		defer done()
		leave, err := s.heavy.wait(r)
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
// only until it is built, so a peer that does not read its answer does not block others. A body is read before
// the request takes its place, so a peer that sends slowly does not block others, either.
func (s *Server) brief(d *doors, f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		made := &made{ResponseWriter: w}
		r, done, err := s.received(w, r)
		if err != nil {
			return err
		}
		defer done()
		err = func() error {
			leave, err := d.wait(r)
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
