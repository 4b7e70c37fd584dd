package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An upstream is an HTTP server that says who it is, after the time that a
// request asks for: /?after=5ms.
type upstream struct {
	name string
	port int
}

func newUpstream(t *testing.T, name string) upstream {
	t.Helper()
	ready := make(chan struct{})
	close(ready)
	return newSlowUpstream(t, name, ready)
}

// newSlowUpstream is healthy only when ready is closed.
func newSlowUpstream(t *testing.T, name string, ready <-chan struct{}) upstream {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
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
	return upstream{name, s.Listener.Addr().(*net.TCPAddr).Port}
}

// An answer is what came back through the data plane.
type answer struct {
	from       string // the upstream
	generation string // of the route configuration
}

// A caller sends one request through the data plane.
type caller func(context.Context) (answer, error)

// via is a caller of Envoy's listener on the port, which keeps its connections.
func via(t *testing.T, port int) caller {
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(tr.CloseIdleConnections)
	return calls(tr, port)
}

// anew is a caller that connects for each request. When a listener changes,
// Envoy lets connections that stand end under the old one.
func anew(port int) caller { return calls(&http.Transport{DisableKeepAlives: true}, port) }

func calls(tr http.RoundTripper, port int) caller {
	return func(ctx context.Context) (answer, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
		if err != nil {
			return answer{}, err
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return answer{}, err
		}
		if resp.StatusCode != http.StatusOK {
			return answer{}, fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return answer{string(body), resp.Header.Get("x-generation")}, nil
	}
}

// asking is a caller whose requests are changed first.
func asking(t *testing.T, port int, change func(*http.Request)) caller {
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(tr.CloseIdleConnections)
	return calls(changed{tr, change}, port)
}

// changed sends requests after a change.
type changed struct {
	http.RoundTripper
	change func(*http.Request)
}

func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	c.change(r)
	return c.RoundTripper.RoundTrip(r)
}

// once is one request that has two seconds.
func (c caller) once() (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return c(ctx)
}

// gets is a condition for eventually: requests come back as that answer.
func (c caller) gets(want answer) func() error {
	return func() error {
		switch got, err := c.once(); {
		case err != nil:
			return err
		case got != want:
			return fmt.Errorf("answered by %q of generation %q", got.from, got.generation)
		}
		return nil
	}
}

// fails is a condition for eventually: requests are refused with that text.
func (c caller) fails(text string) func() error {
	return func() error {
		switch got, err := c.once(); {
		case err == nil:
			return fmt.Errorf("answered by %q of generation %q", got.from, got.generation)
		case !strings.Contains(err.Error(), text):
			return err
		}
		return nil
	}
}

// refused is a condition: nobody takes connections on the port any more. (Those
// that stand may go on for a while: Envoy drains them.)
func refused(port int) func() error {
	return func() error {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil
		}
		c.Close()
		return errors.New("somebody does")
	}
}

// A load is steady traffic in the background.
type load struct {
	stop func() // ends it and waits for what is under way

	ok, failed atomic.Int64
	mu         sync.Mutex
	failures   []string // the first few
}

// perSecond is the rate of a load.
const perSecond = 200

// loaded sends steady traffic until the test ends. forgive, if not nil, may
// excuse an error.
func loaded(t *testing.T, call caller, forgive func(error) bool) *load {
	t.Helper()
	return loadedAt(t, perSecond, call, forgive)
}

// loadedAt is loaded at that many requests a second. It makes up for those that
// a busy machine delayed, with at most 100 under way: Envoy refuses some when
// there are 1,024.
func loadedAt(t *testing.T, perSecond int, call caller, forgive func(error) bool) *load {
	t.Helper()
	l := &load{}
	start := time.Now()
	quit, done := make(chan struct{}), make(chan struct{})
	l.stop = sync.OnceFunc(func() { close(quit); <-done })
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
				_, err := call(ctx)
				switch {
				case err == nil:
					l.ok.Add(1)
				case forgive != nil && forgive(err):
				default:
					l.failed.Add(1)
					l.mu.Lock()
					if len(l.failures) < 5 {
						l.failures = append(l.failures, fmt.Sprintf("%.3f s after the load began: %v", began.Seconds(), err))
					}
					l.mu.Unlock()
				}
			})
		}
	}()
	t.Cleanup(l.stop)
	return l
}

// unharmed ends the load and fails the test if a request failed.
func (l *load) unharmed(t *testing.T) {
	t.Helper()
	l.stop()
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed, the first of them:\n%s", n, n+l.ok.Load(), strings.Join(l.failures, "\n"))
	}
	if l.ok.Load() == 0 {
		t.Error("no request got through")
	}
}

var nextPort atomic.Int64

// freePort returns a loopback port that nobody uses, from below the range that
// connections take theirs from, so that it stays free for whom it is meant,
// also while nobody listens.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := int(20000 + (int64(os.Getpid())*131+nextPort.Add(1))%12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// eventually waits until a condition holds and returns how long that took. It
// ends the test when the time is up.
func eventually(t *testing.T, within time.Duration, what string, condition func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := condition()
		took := time.Since(start)
		switch {
		case err == nil && took <= within:
			return took
		case err == nil:
			t.Fatalf("%s: only after %v, not within %v", what, took, within)
		case took > within:
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}
