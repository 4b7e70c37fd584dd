package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/inspect"
)

// The health probe of an image without other programs.
func TestHealth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", "# nothing yet")
	port := freePort(t)
	d := serveDir(t, dir, "--metrics-listen", "0.0.0.0:"+port, "--drain-delay", "1m")
	of := "--metrics-listen=127.0.0.1:" + port
	chancery(t, 1, "the configuration is empty", "health", of)
	chancery(t, 0, "ok\n", "health", of, "--alive")

	write(t, dir, "a.yaml", cluster("a"))
	d.tells(port, "/readyz", "ok")
	chancery(t, 0, "ok\n", "health", of)
	chancery(t, 0, "ok\n", "health", "--metrics-listen", "0.0.0.0:"+port) // as --metrics-listen of serve

	d.signal(syscall.SIGTERM)
	d.logged("shutting down: closing streams")
	chancery(t, 1, "the server is shutting down", "health", of)
	chancery(t, 0, "ok\n", "health", of, "--alive")
	d.signal(syscall.SIGTERM)
}

func TestHealthOnSocket(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	dir := t.TempDir()
	write(t, dir, "a.yaml", cluster("a"))
	serveDir(t, dir, "--metrics-listen", socket)
	chancery(t, 0, "ok\n", "health", "--metrics-listen", socket)
}

// A stuck server delays the probe until its timeout, but no longer.
func TestHealthOfStuckServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	chancery(t, 1, "the server at "+l.Addr().String()+" did not answer in time (--timeout)", "health", "--timeout", "200ms", "--metrics-listen", l.Addr().String())
}

// The probe reads only the beginning of an endless answer.
func TestHealthOfEndlessAnswer(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			if _, err := w.Write([]byte(strings.Repeat("ok", inspect.MaxAnswer/4))); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	var stdout, stderr strings.Builder
	if code := run([]string{"health", "--metrics-listen", s.Listener.Addr().String()}, &stdout, &stderr); code != cli.OK || stdout.Len() != inspect.MaxAnswer+1 {
		t.Errorf("SAFE-1 %d: %d bytes, %s", code, stdout.Len(), &stderr)
	}
}

// Probes and Prometheus state any Host and no Origin. A web page states its Origin, and reads nothing.
func TestProbesStateAnyHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", cluster("a"))
	port := freePort(t)
	d := serveDir(t, dir, "--metrics-listen", "0.0.0.0:"+port)
	d.tells(port, "/readyz", "ok")
	for what, want := range map[string]string{
		"GET /readyz HTTP/1.1\r\nHost: 10.244.1.7:18002\r\nUser-Agent: kube-probe/1.34\r\nAccept: */*\r\nConnection: close\r\n":                                        "HTTP/1.1 200",
		"GET /metrics HTTP/1.1\r\nHost: chancery.mesh.svc:18002\r\nUser-Agent: Prometheus/3.7.0\r\nAccept: application/openmetrics-text;version=1.0.0\r\n":             "HTTP/1.1 200",
		"GET /metrics HTTP/1.1\r\nHost: chancery.mesh.svc:18002\r\nUser-Agent: Mozilla/5.0\r\nOrigin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n":           "HTTP/1.1 403",
		"GET /metrics HTTP/1.1\r\nHost: evil.example:18002\r\nUser-Agent: Mozilla/5.0\r\nOrigin: http://evil.example:18002\r\nReferer: http://evil.example:18002/\r\n": "HTTP/1.1 403",
	} {
		t.Run("SAFE-16 "+want, func(t *testing.T) {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			fmt.Fprint(c, what+"\r\n")
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Errorf("%q: %q, %v, want %q", what, got, err, want)
			}
		})
	}
}
