package inbound

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const hasRaw = true

func readNow(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

func again(err error) bool  { return err == syscall.EINTR }  //nolint:errorlint // a system call wraps no error
func blocks(err error) bool { return err == syscall.EAGAIN } //nolint:errorlint // a system call wraps no error

// closedByPeer reports whether the peer of a socket has closed it, also if unread bytes are left.
func closedByPeer(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}
