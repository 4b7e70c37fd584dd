package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An Upstream is an HTTP server that answers with its name, after the delay in the request: /?after=5ms.
type Upstream struct {
	Name string
	Port int
}

// NewUpstream starts an Upstream. It is healthy once ready is closed; if ready is nil, at once.
func NewUpstream(t testing.TB, name string, ready <-chan struct{}) Upstream {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" && ready != nil {
			select {
			case <-ready:
			case <-r.Context().Done():
			}
		}
		if d, err := time.ParseDuration(r.URL.Query().Get("after")); err == nil {
			time.Sleep(d)
		}
		io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return Upstream{name, s.Listener.Addr().(*net.TCPAddr).Port}
}

// A Load is steady traffic in the background.
type Load struct {
	Stop       func() // ends the load and waits for open requests
	OK, Failed atomic.Int64

	mu       sync.Mutex
	failures []string // the first few
}

// NewLoad sends perSecond requests a second until the test ends. It catches up after a delay of the machine,
// with at most 100 requests at once, because Envoy refuses requests above 1,024. An error for which forgive
// returns true is not counted; forgive may be nil.
func NewLoad(t testing.TB, perSecond int, call func(context.Context) error, forgive func(error) bool) *Load {
	t.Helper()
	l := &Load{}
	start := time.Now()
	quit, done := make(chan struct{}), make(chan struct{})
	l.Stop = sync.OnceFunc(func() { close(quit); <-done })
	go func() {
		defer close(done)
		var calls sync.WaitGroup
		defer calls.Wait()
		slots := make(chan struct{}, 100)
		due := time.NewTimer(0)
		defer due.Stop()
		for n := time.Duration(1); ; n++ {
			select {
			case <-quit:
				return
			case <-due.C:
			}
			due.Reset(time.Until(start.Add(n * time.Second / time.Duration(perSecond))))
			slots <- struct{}{}
			calls.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				began := time.Since(start)
				err := call(ctx)
				switch {
				case err == nil:
					l.OK.Add(1)
				case forgive != nil && forgive(err):
				default:
					l.Failed.Add(1)
					l.mu.Lock()
					if len(l.failures) < 5 {
						l.failures = append(l.failures, fmt.Sprintf("%.3f s after the load began: %v", began.Seconds(), err))
					}
					l.mu.Unlock()
				}
			})
		}
	}()
	t.Cleanup(l.Stop)
	return l
}

// Unharmed ends the load and fails the test if a request failed.
func (l *Load) Unharmed(t testing.TB) {
	t.Helper()
	l.Stop()
	if n := l.Failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed, the first of them:\n%s", n, n+l.OK.Load(), strings.Join(l.failures, "\n"))
	}
	if l.OK.Load() == 0 {
		t.Error("no request got through")
	}
}
