package admin

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// taken returns the number of waits.
func (w *waitPlaces) taken() int {
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
				h := newServer(newFleet()).Handler(loopback)
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
							last.Result.Why != "not synced: another wait has taken the place of this one" || last.Result.Hint != "repeat the command" {
							t.Errorf("%s %v", body, err)
						}
					} else if w.Code != http.StatusTooManyRequests || !strings.Contains(body, "another wait has taken the place of this one") {
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
				time.Sleep(10*time.Minute - time.Second)
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
