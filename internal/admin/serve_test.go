package admin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/listen"
)

// serves runs a server on an address, and returns a dialer and a function that ends the server.
func serves(t *testing.T, s *Server, at string, limit int) (dial func() net.Conn, end func() time.Duration) {
	t.Helper()
	a, err := listen.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = listen.NewLimit(limit).On(l)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	return func() net.Conn {
			c, err := net.Dial(l.Addr().Network(), l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}, func() time.Duration {
			began := time.Now()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
}

// says sends text over a connection and returns the status line and the body.
func says(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		return err.Error()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.Status + " " + string(b)
}

const status1 = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

func TestServe(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		s := newServer(newFleet())
		s.Token = func() (string, error) { return secret, nil }
		dial, end := serves(t, s, at, 16)
		want := "200"
		if !strings.HasPrefix(at, "unix:") {
			want = "401"
		}
		c := dial()
		if got := says(t, c, status1); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", at, got)
		}
		c.Close()
		// the access to the unix socket is proof enough
		c = dial()
		got := says(t, c, "POST /api/v1/reload HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 26\r\nConnection: close\r\n\r\n{\"allow_mass_delete\":true}")
		if want == "200" && !strings.Contains(got, `"removed":5`) {
			t.Errorf("%s: %s", at, got)
		}
		c.Close()
		end()
	}
}

// The end of the server ends waiting requests immediately.
func TestServeEnds(t *testing.T) {
	s := newServer(newFleet())
	s.Handler(loopback) // creates the doors
	dial, end := serves(t, s, "127.0.0.1:0", 64)
	var all []net.Conn
	for range 5 {
		for _, path := range []string{"/api/v1/events", "/api/v1/wait?node=x&timeout=1h", "/api/v1/wait/synced?node=x&timeout=1h"} {
			c := dial()
			defer c.Close()
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
			all = append(all, c)
		}
	}
	for until := time.Now().Add(10 * time.Second); (s.readers.taken() < 5 || s.waiting.taken() < 5 || s.waitingSynced.taken() < 5) && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if took := end(); took > time.Second {
		t.Errorf("took %v", took)
	}
	for i, c := range all {
		b, _ := io.ReadAll(c)
		if i%3 == 1 && !strings.Contains(string(b), "the server is ending") || i%3 == 2 && strings.Contains(string(b), "result") {
			t.Errorf("%q", b)
		}
	}
}

// Hostile requests do not affect others.
func TestHostileRequests(t *testing.T) {
	f := newFleet()
	s := newServer(f)
	dial, end := serves(t, s, "127.0.0.1:0", 32)
	defer end()
	for what, text := range map[string]string{
		"431 ": "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n",
		"400 ": "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"505 ": "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
	} {
		c := dial()
		if got := says(t, c, text); !strings.HasPrefix(got, what) {
			t.Errorf("%.40q: %.100s, want %s", text, got, what)
		}
		c.Close()
	}
	// more silent connections than the server allows
	var idle []net.Conn
	for range 1000 {
		idle = append(idle, dial())
	}
	for _, c := range idle {
		c.Close()
	}
	// event readers that read nothing affect neither the tracker nor each other
	var slow []net.Conn
	for range 5 {
		c := dial()
		fmt.Fprint(c, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		slow = append(slow, c)
	}
	text := strings.Repeat("x", 10_000)
	began := time.Now()
	for range 2000 {
		f.happens(api.Event{Kind: "ack", Text: text})
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("adding events took %v", took)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c := dial()
		got := says(t, c, status1)
		c.Close()
		if strings.HasPrefix(got, "200") {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not answered: %s", got)
		}
	}
	for _, c := range slow {
		c.Close()
	}
}

// Many concurrent requests of all kinds, for the race detector.
func TestConcurrentRequests(t *testing.T) {
	f := newFleet()
	s := newServer(f)
	h := s.Handler(loopback)
	var all sync.WaitGroup
	for range 4 {
		for _, what := range []string{"GET /api/v1/status", "GET /api/v1/clients", "GET /api/v1/groups", "GET /api/v1/events?stop", "GET /api/v1/wait?timeout=1ms", "PUT /api/v1/log", "POST /api/v1/reload"} {
			all.Go(func() {
				for range 20 {
					body := ""
					if strings.HasPrefix(what, "PUT") {
						body = `{"level":"warn"}`
					}
					if w := ask(h, what, body); w.Code != 200 {
						t.Errorf("%s: %d %s", what, w.Code, w.Body)
					}
				}
			})
		}
	}
	for range 100 {
		f.happens(api.Event{Kind: "ack"})
	}
	all.Wait()
}

// An event reader that reads nothing is disconnected. A reader without events is not disconnected.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		s := newServer(f)
		s.Handler(loopback)
		l := bufconn.Listen(1 << 16)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, l) }()
		var conns []net.Conn
		for range 2 {
			c, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprint(c, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
			conns = append(conns, c)
		}
		beats := make(chan int, 1)
		go func() { // the reader that reads
			n := 0
			for lines := bufio.NewScanner(conns[0]); lines.Scan(); {
				if lines.Text() == ":" {
					n++
				}
			}
			beats <- n
		}()
		time.Sleep(5 * time.Minute) // without events
		if s.readers.taken() != 2 {
			t.Errorf("%d readers after 5 minutes", s.readers.taken())
		}
		for range 30 {
			f.happens(api.Event{Kind: "ack", Text: strings.Repeat("x", 10_000)})
			time.Sleep(2 * time.Second)
		}
		if s.readers.taken() != 1 {
			t.Errorf("%d readers, want 1: the other one reads nothing", s.readers.taken())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := <-beats; n < 19 || n > 21 {
			t.Errorf("%d comments in 5 minutes", n)
		}
	})
}
