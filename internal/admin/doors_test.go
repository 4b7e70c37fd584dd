package admin

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A request takes no place of others while its body arrives.
func TestSlowBodiesTakeNoPlace(t *testing.T) {
	s := registering(t)
	s.Token = func() (string, error) { return secret, nil }
	dial, end := serves(t, s, "127.0.0.1:0", 200)
	defer end()
	s.Handler(loopback)
	var tried int
	for _, rt := range s.routes() {
		if rt.in == nil || strings.HasSuffix(rt.path, "/endpoints") || strings.HasSuffix(rt.path, "/revisions") { // streams
			continue
		}
		tried++
		var slow []net.Conn
		for range maxWriters + 1 {
			c := dial()
			slow = append(slow, c)
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: 99\r\n\r\n{", rt.method, rt.path, secret)
		}
		c := dial()
		slow = append(slow, c)
		if got := says(t, c, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{}", rt.method, rt.path, secret)); strings.HasPrefix(got, "503") {
			t.Errorf("%s %s: %.200s", rt.method, rt.path, got)
		}
		c = dial()
		slow = append(slow, c)
		if got := says(t, c, "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+secret+"\r\n\r\n"); !strings.HasPrefix(got, "200") {
			t.Errorf("%s %s: status: %.200s", rt.method, rt.path, got)
		}
		for _, c := range slow {
			c.Close()
		}
	}
	if tried < 15 {
		t.Errorf("%d routes with a body", tried)
	}
}

// A commit takes no place of others while it arrives. A large one takes a place of large ones.
func TestSlowCommitsTakeNoPlace(t *testing.T) {
	for name, begins := range map[string]string{"small": commitOf("", "slow"), "large": commitOf("", "slow") + strings.Repeat(" ", largeCommit)} {
		t.Run("SAFE-9 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := committing(t).Handler(loopback)
				commits := func(body io.Reader) int {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/revisions", body)
					r.Header.Set("Content-Type", linesOfJSON)
					r.Header.Set("Authorization", "Bearer secret")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Code
				}
				codes := make(chan int, maxCommits)
				var slow []*io.PipeWriter
				for range maxCommits {
					in, out := io.Pipe()
					slow = append(slow, out)
					go func() { codes <- commits(in) }()
					_, _ = io.WriteString(out, begins)
				}
				synctest.Wait()
				if code := commits(strings.NewReader(commitOf("", "a"))); code != http.StatusOK {
					t.Error(code)
				}
				for _, out := range slow {
					_ = out.Close()
					if code := <-codes; code != http.StatusOK {
						t.Errorf("slow: %d", code)
					}
				}
			})
		})
	}
}

// Callers behind one address are different owners if they have different client certificates.
func TestOwnerOf(t *testing.T) {
	t.Run("SAFE-9", func(t *testing.T) {
		owner := func(name string) string {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = "10.0.0.1:7"
			if name != "" {
				r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{DNSNames: []string{name}}}}}
			}
			return ownerOf(r)
		}
		if owner("a") == owner("b") || owner("a") == owner("") || owner("") != "10.0.0.1" {
			t.Error(owner("a"), owner("b"), owner(""))
		}
	})
}

// A large body in memory counts against the budget until its request is answered.
func TestBodiesCountAgainstBudget(t *testing.T) {
	t.Run("SAFE-9", func(t *testing.T) {
		s := newServer(newFleet())
		s.Handler(loopback)
		const size = 1 << 20
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat(" ", size)))
		_, done, err := s.received(httptest.NewRecorder(), r)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.bodies.Used(); n < size {
			t.Errorf("%d bytes count", n)
		}
		done()
		if n := s.bodies.Used(); n != 0 {
			t.Errorf("%d bytes count after the answer", n)
		}
	})
}

// The places for answers are shared by address.
func TestPlacesAreSharedByAddress(t *testing.T) {
	from := func(s *Server, path, addr string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host, r.RemoteAddr = "localhost", addr
		w := httptest.NewRecorder()
		s.Handler(loopback).ServeHTTP(w, r)
		return w.Code
	}
	for _, path := range []string{"/api/v1/status", "/api/v1/clients", "/api/v1/groups"} {
		synctest.Test(t, func(t *testing.T) {
			f := &slowFleet{fleet: newFleet()}
			s := newServer(f.fleet)
			s.Tracker = f
			ended := make(chan int, 200)
			for range cap(ended) {
				go func() { ended <- from(s, path, "10.0.0.1:7") }()
			}
			synctest.Wait()
			began := time.Now()
			code := from(s, path, "10.0.0.2:7")
			if took := time.Since(began); code != http.StatusOK || took > 1500*time.Millisecond {
				t.Errorf("%s: %d after %v", path, code, took)
			}
			for range cap(ended) {
				<-ended
			}
		})
	}
}

// A free place goes to the owner with the fewest callers inside, in the order of arrival. The place of a caller
// that has given up is free.
func TestSharedDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &sharedDoor{max: 4}
		var mu sync.Mutex // guards order
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		noted := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(order)
		}
		enter := func(owner string, stay time.Duration) {
			go func() {
				leave, err := d.wait(t.Context(), owner)
				if err != nil {
					note(owner + " gave up")
					return
				}
				note(owner)
				time.Sleep(stay)
				leave()
			}()
			synctest.Wait()
		}
		enter("a", 2*time.Second)
		enter("a", 3*time.Second)
		enter("a", 4*time.Second) // waits: others may take the two free places
		enter("a", 4*time.Second)
		enter("b", 4*time.Second)
		enter("b", 4*time.Second)
		enter("c", 10*time.Second)
		if got := noted(); got != "[a a b c]" {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := noted(); got != "[a a b c a b a gave up]" {
			t.Error(got)
		}
		d.mu.Lock()
		if d.inside != 0 || len(d.held) != 0 || len(d.waiting) != 0 {
			t.Errorf("%+v", d.held)
		}
		d.mu.Unlock()
		enter("d", time.Minute)
		enter("d", time.Minute)
		mu.Lock()
		order = nil
		mu.Unlock()
		enter("d", time.Minute) // does not get in
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := noted(); got != "[d gave up]" {
			t.Error(got)
		}
		for range 4 {
			enter("", time.Second) // without an address: all places
		}
		d.mu.Lock()
		if d.inside != 4 {
			t.Error(d.inside)
		}
		d.mu.Unlock()
		time.Sleep(time.Minute)
	})
}

// One address does not keep others from streams of endpoints or events.
func TestLongRequestsShareTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFleet())
		h := s.Handler(loopback)
		greedy := waits(t.Context(), h, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}, maxReaders, "/api/v1/events")
		others := waits(t.Context(), h, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 7}, 2, "/api/v1/events")
		if len(greedy) != 2 || len(others) != 0 || s.readers.taken() != maxReaders {
			t.Errorf("%d requests of the greedy address have ended, %d of the other, %d go on", len(greedy), len(others), s.readers.taken())
		}
	})
}
