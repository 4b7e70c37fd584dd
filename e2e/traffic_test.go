package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// An upstream is an HTTP server that answers with its name, after the delay in the request:
// /?after=5ms.
type upstream struct {
	name string
	port int
}

func newUpstream(t *testing.T, name string) upstream {
	t.Helper()
	return newSlowUpstream(t, name, nil)
}

// newSlowUpstream is healthy only when ready is closed.
func newSlowUpstream(t *testing.T, name string, ready <-chan struct{}) upstream {
	t.Helper()
	u := harness.NewUpstream(t, name, ready)
	return upstream{u.Name, u.Port}
}

// An answer is the response to a request through the data plane.
type answer struct {
	from       string // the upstream
	generation string // of the route configuration
}

// A caller sends one request through the data plane.
type caller func(context.Context) (answer, error)

// via returns a caller of Envoy's listener on the port. It reuses connections.
func via(t *testing.T, port int) caller {
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(tr.CloseIdleConnections)
	return calls(tr, port)
}

// anew returns a caller that connects for each request. After a change of a listener, Envoy serves
// open connections by the old listener.
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

// refused is a condition: the port accepts no connections any more. Open connections may continue
// for a while, because Envoy drains them.
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
type load = harness.Load

// perSecond is the rate of a load.
const perSecond = 200

// loaded sends steady traffic until the test ends. forgive, if not nil, may
// excuse an error.
func loaded(t *testing.T, call caller, forgive func(error) bool) *load {
	t.Helper()
	return loadedAt(t, perSecond, call, forgive)
}

// loadedAt is loaded at that many requests a second.
func loadedAt(t *testing.T, perSecond int, call caller, forgive func(error) bool) *load {
	t.Helper()
	return harness.NewLoad(t, perSecond, func(ctx context.Context) error {
		_, err := call(ctx)
		return err
	}, forgive)
}

func freePort(t *testing.T) int {
	t.Helper()
	return harness.FreePort(t)
}

func eventually(t *testing.T, within time.Duration, what string, condition func() error) time.Duration {
	t.Helper()
	return harness.Eventually(t, within, what, condition)
}
