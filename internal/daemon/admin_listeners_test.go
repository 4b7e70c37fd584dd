package daemon

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// All listeners of the admin API share one limit of connections, also a listener that opens after the start.
func TestAdminListenersShareLimit(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	a := adminListeners{adminFlags: adminFlags{addresses: []string{"127.0.0.1:0"}}}
	if err := a.check(); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := a.open(log, 100); err != nil {
		t.Fatal(err)
	}
	defer a.close()
	freed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range []net.Listener{a.opened()[0], a.add(log, freed)} {
		caller, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer caller.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		if n := a.limit.Open(); n != i+1 {
			t.Errorf("after connection %d the limit counts %d", i+1, n)
		}
	}
}

// An address that another process uses ends the start if callers must authenticate: they would send their tokens
// to the other process.
func TestAuthenticatedAdminNeedsItsAddress(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("x", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", token} {
		a := adminListeners{adminFlags: adminFlags{addresses: []string{other.Addr().String()}, token: token, chosen: true}}
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
		if err := a.open(slog.New(slog.DiscardHandler), 100); (err != nil) != (token != "") {
			t.Errorf("with the token file %q: %v", token, err)
		}
		a.close()
	}
}
