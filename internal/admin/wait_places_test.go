package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// taken returns the number of waits.
func (w *places) taken() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unix.Len() + w.other.Len()
}

// waits begins requests from an address, one after the other, and returns the answers as they come.
func waits(ctx context.Context, h http.Handler, from net.Addr, n int, path string) (ended chan *httptest.ResponseRecorder) {
	ended = make(chan *httptest.ResponseRecorder, n)
	for range n {
		ctx := context.WithValue(ctx, http.LocalAddrContextKey, from)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
		r.Host, r.RemoteAddr = "localhost", from.String()
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			ended <- w
		}()
		synctest.Wait() // one after the other
	}
	return ended
}

// One caller cannot keep others from waiting, with however many and long waits.
func TestWaitsShareTheirPlaces(t *testing.T) {
	for _, path := range []string{"/api/v1/wait?node=none&timeout=1h", "/api/v1/wait/synced?node=none&timeout=24h"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(newFleet())
				h := s.Handler(loopback)
				// The race detector of Go breaks at hours of a synctest clock with many timers.
				s.waiting.restless, s.waitingSynced.restless = 10*time.Second, 10*time.Second
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				waits := func(from net.Addr, n int) chan *httptest.ResponseRecorder { return waits(ctx, h, from, n, path) }
				at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9} }
				replaced := func(w *httptest.ResponseRecorder) {
					t.Helper()
					body := w.Body.String()
					if strings.Contains(path, "synced") {
						lines := strings.Split(strings.TrimSpace(body), "\n")
						var last api.WaitLine
						if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Result == nil || last.Result.Class != api.WaitTimeout ||
							last.Result.Why != "not synced: another request has taken the place of this one" || last.Result.Hint != "repeat the command" {
							t.Errorf("%s %v", body, err)
						}
					} else if w.Code != http.StatusTooManyRequests || !strings.Contains(body, "another request has taken the place of this one") {
						t.Errorf("%d %s", w.Code, body)
					}
				}
				refused := func(from net.Addr) {
					t.Helper()
					if w := <-waits(from, 1); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "32 at most") {
						t.Errorf("%d %s", w.Code, w.Body)
					}
				}
				greedy := waits(at("10.0.0.1"), maxReaders)
				refused(at("10.0.0.1"))
				if len(greedy) != 0 {
					t.Fatal("a wait of the greedy address has ended")
				}
				other := waits(at("10.0.0.2"), 1)
				replaced(<-greedy)
				local := waits(&net.UnixAddr{Name: "admin", Net: "unix"}, maxReaders)
				if len(greedy)+len(other)+len(local) != 0 {
					t.Fatal("waits on unix sockets have no places of their own")
				}
				refused(&net.UnixAddr{Name: "admin", Net: "unix"})
				time.Sleep(9 * time.Second)
				refused(at("10.0.0.1"))
				time.Sleep(time.Second)
				waits(at("10.0.0.1"), 1) // the oldest makes room
				replaced(<-greedy)
				waits(&net.UnixAddr{Name: "admin", Net: "unix"}, 1)
				replaced(<-local)
				if len(greedy)+len(other)+len(local) != 0 {
					t.Error("more than one wait made room")
				}
			})
		})
	}
}

// enterer returns a function that begins a wait from an address; the context is nil if it is refused.
func enterer(t *testing.T, places int) func(ip string) context.Context {
	w := newPlaces(places, "wait")
	w.restless = restless
	return func(ip string) context.Context {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = ip + ":9"
		r, leave, err := w.enter(r)
		if err != nil {
			return nil
		}
		t.Cleanup(leave)
		return r.Context()
	}
}

// gone reports which waits have lost their places.
func gone(all ...context.Context) (is []bool) {
	for _, c := range all {
		is = append(is, errors.Is(context.Cause(c), errReplaced))
	}
	return is
}

// Of an address, only the oldest wait makes room for a new one, and not for other addresses with waits.
func TestOldestWaitMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enter := enterer(t, 3)
		b := enter("b")
		time.Sleep(time.Minute)
		a1 := enter("a")
		time.Sleep(time.Minute)
		a2 := enter("a")
		time.Sleep(8 * time.Minute) // b has waited for 10 minutes, a1 for 9
		if enter("a") != nil || !slices.Equal(gone(b, a1, a2), []bool{false, false, false}) {
			t.Error("a wait of another address makes room, or a young one")
		}
		if enter("b") == nil || !slices.Equal(gone(b, a1, a2), []bool{true, false, false}) {
			t.Error("the wait of b does not make room")
		}
		time.Sleep(time.Minute)
		if enter("a") == nil || !slices.Equal(gone(a1, a2), []bool{true, false}) {
			t.Error("the oldest wait of a does not make room")
		}
	})
}

// An address without a wait gets the place of the oldest wait, if no address has more than one.
func TestOldestWaitOfAllMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enter := enterer(t, 2)
		a := enter("a")
		time.Sleep(time.Minute)
		b := enter("b")
		if enter("c") != nil {
			t.Error("a young wait makes room")
		}
		time.Sleep(9 * time.Minute)
		if enter("c") == nil || !slices.Equal(gone(a, b), []bool{true, false}) {
			t.Error("the oldest wait does not make room")
		}
	})
}

// A wait that has ended frees its place.
func TestEndedWaitFreesItsPlace(t *testing.T) {
	w := newPlaces(1, "wait")
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	for range 3 {
		in, leave, err := w.enter(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.enter(r); err == nil || in.Context().Err() != nil {
			t.Error("two waits have the place")
		}
		leave()
		if in.Context().Err() == nil || gone(in.Context())[0] {
			t.Error("the context of the ended wait is not done")
		}
	}
}
