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

// explain replaces error codes of the system by texts.
func (a Address) explain(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port %d is in use already", a.Port)
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
	return l, nil
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
	if err != nil {
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
		return errors.New("the socket is in use by another process")
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether the socket is in use: %w", err)
	}
	// Another process may have replaced the file since, and listen on it.
	if now, err := os.Lstat(path); err != nil || !os.SameFile(before, now) {
		return errors.New("the socket is in use by another process")
	}
	return os.Remove(path)
}
