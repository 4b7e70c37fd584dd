package listen

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, address string) (net.Listener, error) {
	t.Helper()
	a, err := Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Open(t.Context())
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return l, err
}

func mustOpen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := open(t, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func refuses(t *testing.T, address, want string) {
	t.Helper()
	if _, err := open(t, address); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("open %s: %v, want an error with %q", address, err, want)
	}
}

func dial(t *testing.T, l net.Listener) error {
	t.Helper()
	c, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err == nil {
		c.Close()
	}
	return err
}

func TestTCP(t *testing.T) {
	l := mustOpen(t, "127.0.0.1:0")
	if err := dial(t, l); err != nil {
		t.Error(err)
	}
	if !Loopback(l.Addr()) {
		t.Error("not judged to be loopback")
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	refuses(t, "127.0.0.1:"+port, "listen on 127.0.0.1:"+port+": port "+port+" is in use already")
	refuses(t, "192.0.2.1:0", "this machine does not have the address 192.0.2.1")
	refuses(t, "no-such-name.invalid:0", "listen on no-such-name.invalid:0: lookup no-such-name.invalid")
	if l := mustOpen(t, "localhost:0"); !Loopback(l.Addr()) {
		t.Errorf("localhost is %v", l.Addr())
	}
	if l := mustOpen(t, ":0"); Loopback(l.Addr()) {
		t.Errorf("all addresses are judged to be loopback: %v", l.Addr())
	}
}

func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "xds.sock")
	l := mustOpen(t, "unix://"+path)
	if err := dial(t, l); err != nil {
		t.Error(err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("mode %v", info.Mode())
	}
	refuses(t, "unix:"+path, "the socket is in use by another process")
	if err := dial(t, l); err != nil {
		t.Errorf("after another process tried: %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the file is left after close: %v", err)
	}
}

// A killed daemon leaves the file of its socket.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "xds.sock")
	old := mustOpen(t, "unix:"+path)
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	if err := dial(t, mustOpen(t, "unix:"+path)); err != nil {
		t.Error(err)
	}
}

func TestOtherFilesAreNotReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, "unix:"+path, "the file exists and is not a socket")
	refuses(t, "unix:"+dir, "the file exists and is not a socket")
	// The target of a link is not replaced either.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	refuses(t, "unix:"+link, "the file exists and is not a socket")
	if b, err := os.ReadFile(path); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	refuses(t, "unix:"+filepath.Join(dir, "none", "xds.sock"), "no such file or directory")
}
