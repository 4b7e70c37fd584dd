package listen

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	old.(*unixListener).UnixListener.Close() // leaves the file
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

// OpenWhenFree waits while another listener has the address, and ends with its context.
func TestOpenWhenFree(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "xds.sock")
			synctest.Test(t, func(t *testing.T) {
				address := "127.0.0.1:0"
				if network == "unix" {
					address = "unix://" + socket
				}
				old := mustOpen(t, address)
				if network == "tcp" {
					address = old.Addr().String()
				}
				at, err := Parse(address)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error)
				go func() {
					_, err := at.OpenWhenFree(ctx)
					ended <- err
				}()
				time.Sleep(time.Minute)
				cancel()
				if err := <-ended; !errors.Is(err, ErrInUse) {
					t.Errorf("after the end of the context: %v", err)
				}
				opened := make(chan net.Listener)
				go func() {
					l, err := at.OpenWhenFree(t.Context())
					if err != nil {
						t.Error(err)
					}
					opened <- l
				}()
				time.Sleep(10 * time.Minute)
				select {
				case <-opened:
					t.Fatal("two listeners have the address")
				default:
				}
				old.Close()
				began := time.Now()
				l := <-opened
				defer l.Close()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("opened after %v", took)
				}
			})
		})
	}
}

// OpenWhenFree returns other errors at once.
func TestOpenWhenFreeReturnsOtherErrors(t *testing.T) {
	at, err := Parse("unix://" + filepath.Join(t.TempDir(), "none", "xds.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at.OpenWhenFree(t.Context()); err == nil || errors.Is(err, ErrInUse) {
		t.Error(err)
	}
}

// A listener whose file was replaced leaves the file of the newer one.
func TestReplacedSocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "xds.sock")
	old := mustOpen(t, "unix:"+path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, "unix:"+path)
	old.Close()
	if err := dial(t, l); err != nil {
		t.Error(err)
	}
}
