package admin

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// A slow connection delivers a request slowly.
type slow struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (s slow) Write(b []byte) (int, error)        { return s.ResponseRecorder.Write(b) }
func (s slow) SetReadDeadline(t time.Time) error  { return s.Conn.SetReadDeadline(t) }
func (s slow) SetWriteDeadline(_ time.Time) error { return nil }
func (s slow) Read(b []byte) (int, error)         { return s.Conn.Read(b) }

// A request that is not complete in time gets an error without socket addresses.
func TestSlowRequest(t *testing.T) {
	s, _ := steering(t)
	in := iotest.ErrReader(&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded})
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/rollouts", io.MultiReader(strings.NewReader(`{"message":`), in))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer secret")
	if s.Handler(loopback).ServeHTTP(w, r); w.Code != http.StatusRequestTimeout || !strings.Contains(w.Body.String(), "too slow: not complete within 10s") {
		t.Error(w.Code, w.Body)
	}
}

// A commit that is slow or stalls is ended within a minute. A large commit with a steady rate succeeds.
func TestCommitStalls(t *testing.T) {
	big := commitOf("", "a") + strings.Repeat(" \n", 600<<10) // half a minute
	for _, c := range []struct {
		name, text string
		bytes      int // each second
		code       int
		within     time.Duration
	}{
		{"nothing", "", 1, http.StatusRequestTimeout, stallTime},
		{"a byte a second", commitOf("", "a", "b"), 1, http.StatusRequestTimeout, stallTime + time.Second},
		{"a line, and then nothing", commitOf("", "a")[:60], 1000, http.StatusRequestTimeout, stallTime + time.Second},
		{"at a rate", big, 40 << 10, http.StatusOK, commitTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := committing(t)
				h := s.Handler(loopback)
				ours, theirs := net.Pipe()
				var sending sync.WaitGroup
				sending.Go(func() {
					for text := c.text; text != ""; time.Sleep(time.Second) {
						n := min(len(text), c.bytes)
						if _, err := io.WriteString(theirs, text[:n]); err != nil {
							return
						}
						text = text[n:]
					}
					if c.code == http.StatusOK {
						theirs.Close()
					}
				})
				w := slow{httptest.NewRecorder(), ours}
				r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/api/v1/revisions", io.NopCloser(ours))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer secret")
				began := time.Now()
				h.ServeHTTP(w, r)
				if took := time.Since(began); w.Code != c.code || took > c.within {
					t.Error(fmt.Sprint(w.Code, " after ", took, ": ", w.Body.String()))
				}
				ours.Close()
				sending.Wait()
			})
		})
	}
}
