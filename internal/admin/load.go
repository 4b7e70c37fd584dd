package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxHeavy is how many answers that may be large are made and sent at once: such an answer
	// of 10,000 clients has 20 MB.
	maxHeavy = 8

	// maxMade is how many others are made at once: each looks at all clients, or asks one.
	maxMade = 8
)

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
		leave, err := s.heavy.wait(r.Context())
		if err != nil {
			return err
		}
		defer leave()
		return f(w, r)
	}
}

// brief is for answers that cost much to make, and are short: few are made at a time. One that
// nobody reads holds up no others.
func (s *Server) brief(d *door, f func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		made := &made{ResponseWriter: w}
		err := func() error {
			leave, err := d.wait(r.Context())
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
