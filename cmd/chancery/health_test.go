package main

import (
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
