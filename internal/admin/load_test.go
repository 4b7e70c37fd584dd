package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
)

// A slowFleet is a tracker that answers slowly, and counts concurrent calls.
type slowFleet struct {
	*fleet
	now, most atomic.Int64
}

func (c *slowFleet) slowly() {
	n := c.now.Add(1)
	for {
		most := c.most.Load()
		if n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(time.Second)
	c.now.Add(-1)
}

func (c *slowFleet) SummaryOf(f clients.Filter) (api.Counts, []api.Refusal, []api.Trouble) {
	c.slowly()
	return c.fleet.SummaryOf(f)
}

func (c *slowFleet) GroupCounts() map[string]api.Counts {
	c.slowly()
	return c.fleet.GroupCounts()
}

func (c *slowFleet) Clients(f clients.Filter) api.ClientList {
	c.slowly()
	return c.fleet.Clients(f)
}

func (c *slowFleet) Client(node string) []api.Client {
	c.slowly()
	return c.fleet.Client(node)
}

// Only a few expensive answers are built at the same time, even if many are requested.
func TestExpensiveAnswersAreLimited(t *testing.T) {
	for _, path := range []string{"/api/v1/status", "/api/v1/refusals", "/api/v1/groups", "/api/v1/clients", "/api/v1/clients/edge-2"} {
		synctest.Test(t, func(t *testing.T) {
			f := &slowFleet{fleet: newFleet()}
			s := newServer(f.fleet)
			s.Tracker = f
			h := s.Handler(loopback)
			codes := make(chan int)
			for range 100 {
				go func() { codes <- ask(h, "GET "+path, "").Code }()
			}
			by := map[int]int{}
			for range 100 {
				by[<-codes]++
			}
			if by[200] < maxHeavy || by[200]+by[503] != 100 || f.most.Load() > maxHeavy {
				t.Errorf("%s: %v, %d at once", path, by, f.most.Load())
			}
		})
	}
}

// The memory of a large body counts until the request is handled, and no longer.
func TestLargeBodyIsReleased(t *testing.T) {
	t.Run("SAFE-9 an answer and a refusal", func(t *testing.T) {
		s := newServer(newFleet())
		h := s.Handler(loopback)
		for body, want := range map[string]int{
			`{"changes":[]` + strings.Repeat(" ", 100<<10) + `}`:  200,
			`{"changes":[]` + strings.Repeat(" ", maxAsked) + `}`: 400,
		} {
			if w := ask(h, "POST /api/v1/impact", body); w.Code != want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, want)
			}
			if n := s.bodies.Used(); n != 0 {
				t.Errorf("%d bytes count after the answer", n)
			}
		}
	})
}

// An answer that is not read does not block others.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(newFleet())
		done := make(chan bool)
		f := s.brief(&s.making, s.status)
		s.Handler(loopback)
		for range 3 * maxMade {
			go func() {
				defer func() { done <- true }()
				_ = f(stuck{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/api/v1/status", nil))
			}()
		}
		synctest.Wait()
		if w := ask(s.Handler(loopback), "GET /api/v1/status", ""); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for range 3 * maxMade {
			<-done
		}
	})
}

type stuck struct{ *httptest.ResponseRecorder }

func (stuck) Write(b []byte) (int, error) { time.Sleep(time.Minute); return len(b), nil }

// One HTTP/2 connection has a limited number of requests in progress.
func TestStreamsOfAConnection(t *testing.T) {
	dial, end := serves(t, newServer(newFleet()), "127.0.0.1:0", 16)
	defer end()
	c := dial()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			if n, ok := s.Value(http2.SettingMaxConcurrentStreams); !ok || n != maxStreams {
				t.Error("streams of a connection:", n, ok)
			}
			return
		}
	}
}

// An HTTP/2 connection has a limited number of large answers in progress, and unix sockets have their own
// limits.
func TestLargeAnswersPerConnection(t *testing.T) {
	s := newServer(newFleet())
	s.Handler(loopback)
	r := &http.Request{ProtoMajor: 2, RemoteAddr: "10.0.0.1:7"}
	var all []func()
	for range maxHeld {
		done, err := s.hold(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, done)
	}
	if _, err := s.hold(r); err == nil {
		t.Error("one more")
	}
	if _, err := s.hold(&http.Request{ProtoMajor: 2, RemoteAddr: "10.0.0.1:8"}); err != nil {
		t.Error("another connection:", err)
	}
	for _, done := range all {
		done()
	}
	if _, err := s.hold(r); err != nil || len(s.held) != 2 {
		t.Error(err, s.held)
	}
	over := r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(socket)))
	for range maxHeavy {
		if _, err := s.heavy.wait(over); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.heavy.wait(r); err != nil {
		t.Error("the unix socket shares a door with the network:", err)
	}
}
