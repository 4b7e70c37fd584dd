package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// socketMode allows the user and the group of the daemon to connect to a socket.
const socketMode fs.FileMode = 0o660

// Open listens on the address. The file of a unix socket has mode 0660, and is removed when the
// listener is closed. A file of an earlier process is replaced if no process listens on it.
func (a Address) Open(ctx context.Context) (net.Listener, error) {
	l, err := a.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", a, err)
	}
	return l, nil
}

func (a Address) open(ctx context.Context) (net.Listener, error) {
	if a.Network == "unix" {
		return openUnix(ctx, a.Path)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.String())
	return l, a.explain(err)
}

// ErrInUse is wrapped by the errors of [Address.Open] if another process listens on the address.
var ErrInUse = errors.New("in use")

// An inUse is the text of an error that wraps ErrInUse.
type inUse string

func (e inUse) Error() string { return string(e) }

func (e inUse) Unwrap() error { return ErrInUse }

const socketInUse inUse = "the socket is in use by another process"

// The shortest and the longest interval of [Address.OpenWhenFree]. An attempt costs a few system calls.
const retryFirst, retryLast = 250 * time.Millisecond, 5 * time.Second

// OpenWhenFree is [Address.Open] for an address that another process uses: it tries again until the address is
// free, at least every 5 s. If ctx ends first, it returns the last error, which wraps [ErrInUse].
func (a Address) OpenWhenFree(ctx context.Context) (net.Listener, error) {
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		l, err := a.Open(ctx)
		if !errors.Is(err, ErrInUse) {
			return l, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// explain replaces error codes of the system by texts.
func (a Address) explain(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return inUse(fmt.Sprintf("port %d is in use already", a.Port))
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("port %d needs the privilege CAP_NET_BIND_SERVICE: %w", a.Port, syscall.EACCES)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("this machine does not have the address %s", a.Host)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err // the rest repeats the address
	}
	return err
}

func openUnix(ctx context.Context, path string) (net.Listener, error) {
	l, err := bindUnix(ctx, path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(ctx, path); err != nil {
			return nil, err
		}
		l, err = bindUnix(ctx, path)
	}
	if errors.Is(err, syscall.EADDRINUSE) { // another process was faster
		return nil, socketInUse
	}
	if err != nil {
		if e, ok := errors.AsType[*net.OpError](err); ok {
			err = e.Err
		}
		return nil, err
	}
	// The umask may have removed the permission of the group.
	if err := os.Chmod(path, socketMode); err != nil {
		l.Close()
		return nil, err
	}
	return own(l.(*net.UnixListener), path)
}

// A unixListener removes the file of its socket when it is closed, unless another process has replaced the file.
type unixListener struct {
	*net.UnixListener

	path string
	file fs.FileInfo
}

func own(l *net.UnixListener, path string) (net.Listener, error) {
	file, err := os.Lstat(path)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return &unixListener{l, path, file}, nil
}

// Close implements [net.Listener]. It removes the file first: a process that finds no file can listen at once.
func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(l.file, now) {
		_ = os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

func bindUnix(ctx context.Context, path string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		// On some systems the file gets the mode of the socket. Then other users cannot connect at any
		// time.
		return conn.Control(func(fd uintptr) { restrict(fd, socketMode) })
	}}
	return c.Listen(ctx, "unix", path)
}

// removeStale removes the file of a socket if no process listens on it.
func removeStale(ctx context.Context, path string) error {
	before, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the other process has just closed its listener
		return nil
	case err != nil:
		return err
	}
	if before.Mode().Type() != fs.ModeSocket {
		return errors.New("the file exists and is not a socket")
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		c.Close()
		return socketInUse
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether the socket is in use: %w", err)
	}
	// Another process may have replaced the file since, and listen on it.
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !os.SameFile(before, now) {
		return socketInUse
	}
	return os.Remove(path)
}
