package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/internal/listen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 18002}
	public   = &net.TCPAddr{IP: net.IPv4zero, Port: 18002}
	socket   = &net.UnixAddr{Name: "x"}
)

// ask returns the status and the body of the answer to a request.
func ask(h http.Handler, method, target, host, peer string) (int, string) {
	r := httptest.NewRequest(method, target, nil)
	r.Host, r.RemoteAddr = host, peer
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func metrics(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1\n") }

func TestPathsAndMethods(t *testing.T) {
	s := &Server{Metrics: http.HandlerFunc(metrics)}
	for _, at := range []net.Addr{loopback, public, socket} {
		h := s.Handler(at)
		for _, c := range []struct {
			method, path string
			code         int
			body         string
		}{
			{"GET", "/metrics", 200, "up 1\n"},
			{"GET", "/healthz", 200, "ok"},
			{"HEAD", "/healthz", 200, "ok"},
			{"GET", "/healthz?verbose", 200, "ok"},
			{"GET", "/readyz", 200, "ok"},
			{"GET", "/readyz?verbose", 200, "readyz check passed\n"},
			{"GET", "/", 404, ""},
			{"GET", "/healthz/", 404, ""},
			{"GET", "/healthz/x", 404, ""},
			{"GET", "/readyz/", 404, ""},
			{"GET", "/readyz/loaded", 404, ""},
			{"GET", "/metrics/", 404, ""},
			{"GET", "/config_dump", 404, ""},
			{"POST", "/healthz", 405, ""},
			{"POST", "/readyz", 405, ""},
			{"DELETE", "/metrics", 405, ""},
		} {
			code, body := ask(h, c.method, c.path, "localhost:18002", "127.0.0.1:5000")
			if code != c.code || c.body != "" && body != c.body {
				t.Errorf("%v: %s %s: %d %q, want %d %q", at, c.method, c.path, code, body, c.code, c.body)
			}
		}
	}
	if code, _ := ask(new(Server).Handler(public), "GET", "/metrics", "x", "10.0.0.1:1"); code != 404 {
		t.Errorf("no metrics: %d", code)
	}
}

func TestReadyzListsChecks(t *testing.T) {
	var s Server
	var loaded, draining error = errors.New("nothing was loaded"), nil
	s.Check("loaded", func() error { return loaded })
	s.Check("not draining", func() error { return draining })
	h := s.Handler(public)
	check := func(target string, code int, body string) {
		t.Helper()
		if c, b := ask(h, "GET", target, "10.1.2.3:18002", "10.0.0.1:5000"); c != code || b != body {
			t.Errorf("%s: %d %q, want %d %q", target, c, b, code, body)
		}
	}
	check("/readyz", 503, "[-]loaded failed: nothing was loaded\n[+]not draining ok\nreadyz check failed\n")
	check("/healthz", 200, "ok")
	loaded = nil
	check("/readyz", 200, "ok")
	check("/readyz?verbose", 200, "[+]loaded ok\n[+]not draining ok\nreadyz check passed\n")
	draining = errors.New("one\ntwo")
	check("/readyz?verbose", 503, "[+]loaded ok\n[-]not draining failed: one …\nreadyz check failed\n")
	draining = errors.New(strings.Repeat("é", 150))
	check("/readyz", 503, "[+]loaded ok\n[-]not draining failed: "+strings.Repeat("é", 100)+" …\nreadyz check failed\n")
	draining = errors.New("x" + strings.Repeat("é", 150))
	check("/readyz", 503, "[+]loaded ok\n[-]not draining failed: x"+strings.Repeat("é", 99)+" …\nreadyz check failed\n")
}

func TestProfilesForLoopbackOnly(t *testing.T) {
	for _, c := range []struct {
		at         net.Addr
		host, peer string
		want       int
	}{
		{loopback, "localhost:18002", "127.0.0.1:5000", 200},
		{loopback, "localhost:18002", "[::1]:5000", 200},
		{loopback, "localhost:18002", "[::ffff:127.0.0.1]:5000", 200},
		{loopback, "localhost:18002", "10.0.0.1:5000", 404},
		{loopback, "localhost:18002", "", 404},
		{public, "localhost:18002", "127.0.0.1:5000", 404},
		{public, "10.0.0.2:18002", "10.0.0.1:5000", 404},
		{socket, "anything", "@", 200},
	} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
			if code, _ := ask(new(Server).Handler(c.at), "GET", path, c.host, c.peer); code != c.want {
				t.Errorf("%+v: %s: %d", c, path, code)
			}
		}
	}
}

func TestLoopbackRejectsForeignHosts(t *testing.T) {
	for host, want := range map[string]int{
		"localhost": 200, "localhost:18002": 200, "LOCALHOST:1": 200, "localhost.": 200, "127.0.0.1:18002": 200, "127.0.0.1": 200,
		"127.1.2.3:1": 200, "[::1]:18002": 200, "[::1]": 200, "": 200,
		"evil.example:18002": 403, "localhost.evil.example": 403, "0.0.0.0:18002": 403, "10.0.0.1:18002": 403, "[::]:1": 403,
		"127.0.0.1.evil.example": 403, "notlocalhost": 403,
	} {
		for _, path := range []string{"/healthz", "/readyz", "/debug/pprof/"} {
			if code, _ := ask(new(Server).Handler(loopback), "GET", path, host, "127.0.0.1:5000"); code != want {
				t.Errorf("host %q: %s: %d, want %d", host, path, code, want)
			}
		}
		// On other addresses, any host is accepted.
		for _, at := range []net.Addr{public, socket} {
			if code, _ := ask(new(Server).Handler(at), "GET", "/healthz", host, "10.0.0.1:5000"); code != 200 {
				t.Errorf("host %q at %v: %d", host, at, code)
			}
		}
	}
}

// Serve detects by itself that a listener is on the loopback or on a unix socket.
// A web page of another origin reads nothing, also from a listener that has no Host to check. Probes and
// Prometheus send no Origin.
func TestWebPagesReadNothing(t *testing.T) {
	s := &Server{Metrics: http.HandlerFunc(metrics), Ready: func(string, string, bool) (bool, string) { return true, "" }}
	for _, c := range []struct {
		what string
		at   net.Addr
		host string
		head http.Header
		want int
	}{
		{"kubelet", public, "10.1.2.3:18002", http.Header{"User-Agent": {"kube-probe/1.34"}, "Accept": {"*/*"}, "Connection": {"close"}}, 200},
		{"Prometheus by name", public, "chancery.mesh.svc:18002", http.Header{"User-Agent": {"Prometheus/3.7.0"}}, 200},
		{"a browser's address bar", loopback, "localhost:18002", http.Header{"Sec-Fetch-Site": {"none"}}, 200},
		{"a link of the page of profiles", loopback, "localhost:18002", http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		{"another origin", public, "10.1.2.3:18002", http.Header{"Origin": {"https://evil.example"}}, 403},
		{"another origin", loopback, "localhost:18002", http.Header{"Origin": {"https://evil.example"}}, 403},
		{"another origin", socket, "x", http.Header{"Origin": {"https://evil.example"}}, 403},
		{"another port", loopback, "localhost:18002", http.Header{"Origin": {"http://localhost:3000"}}, 403},
		{"DNS rebinding", public, "evil.example:18002", http.Header{"Origin": {"http://evil.example:18002"}}, 403},
		{"a sandbox", public, "10.1.2.3:18002", http.Header{"Origin": {"null"}}, 403},
		{"an image", public, "10.1.2.3:18002", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
	} {
		t.Run("SAFE-16 "+c.what, func(t *testing.T) {
			for _, path := range []string{"/metrics", "/healthz", "/readyz", "/ready?node=n", "/debug/pprof/"} {
				if path == "/debug/pprof/" && c.at != loopback {
					continue
				}
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Host, r.RemoteAddr, r.Header = c.host, "127.0.0.1:5000", c.head
				w := httptest.NewRecorder()
				s.Handler(c.at).ServeHTTP(w, r)
				if w.Code != c.want {
					t.Errorf("%v %s: %d, want %d", c.at, path, w.Code, c.want)
				}
			}
		})
	}
}

func TestServeOnTCPAndUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, at := range []string{"127.0.0.1:0", "unix:" + path} {
		a, err := listen.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		l, err := a.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- new(Server).Serve(ctx, l) }()
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, l.Addr().Network(), l.Addr().String())
		}}
		for _, path := range []string{"/healthz", "/debug/pprof/"} {
			resp, err := (&http.Client{Transport: transport}).Get("http://localhost" + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s: %s", at, path, resp.Status)
			}
		}
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if c, err := net.Dial(l.Addr().Network(), l.Addr().String()); err == nil {
			c.Close()
			t.Errorf("%s: still listening", at)
		}
	}
}

// quiet serves on a listener in memory, in a synctest bubble.
func quiet(t *testing.T, s *Server) (l *bufconn.Listener, end func() error) {
	s.Log = slog.New(slog.DiscardHandler)
	l = bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	synctest.Wait()
	return l, func() error {
		cancel()
		return <-done
	}
}

func TestShutdownWaitsForRequests(t *testing.T) {
	for _, c := range []struct {
		takes, want time.Duration
	}{
		{2 * time.Second, 2 * time.Second},
		{time.Hour, grace},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(c.takes):
				case <-r.Context().Done():
				}
				metrics(w, r)
			})}
			l, end := quiet(t, s)
			conn, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
			synctest.Wait()
			begin := time.Now()
			if err := end(); err != nil {
				t.Error(err)
			}
			// http.Server.Shutdown looks for idle connections at least every 500 ms.
			if took := time.Since(begin); took < c.want || took > c.want+600*time.Millisecond {
				t.Errorf("a request of %v: ended after %v, want %v", c.takes, took, c.want)
			}
			b, _ := io.ReadAll(conn)
			if got := strings.Contains(string(b), "up 1"); got != (c.takes < grace) {
				t.Errorf("a request of %v: answered %q", c.takes, b)
			}
		})
	}
}

func TestTimeoutsCloseConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, end := quiet(t, &Server{Metrics: http.HandlerFunc(metrics)})
		closes := func(what, sent string, after time.Duration) {
			t.Helper()
			conn, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, sent)
			begin := time.Now()
			if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(begin); took != after {
				t.Errorf("%s: closed after %v, want %v", what, took, after)
			}
		}
		closes("nothing sent", "", readTime)
		closes("half a header", "GET /metrics HTTP/1.1\r\nHost: ", readTime)
		closes("no other request", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", idleTime)
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

func TestServeEndsWithItsListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := new(Server).Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	// The context is done before Serve starts.
	l, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := new(Server).Serve(ctx, l); err != nil {
		t.Errorf("%v", err)
	}
}
