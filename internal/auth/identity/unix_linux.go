package identity

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peerOf returns the process that opened the other end of a unix socket.
func peerOf(c net.Conn) (Process, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return Process{}, errors.ErrUnsupported
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return Process{}, err
	}
	var found *unix.Ucred
	if e := raw.Control(func(fd uintptr) { found, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return Process{}, e
	}
	if err != nil {
		return Process{}, err
	}
	if found.Pid == 0 && found.Uid == ^uint32(0) { // not a unix socket
		return Process{}, errors.ErrUnsupported
	}
	return Process{UID: found.Uid, GID: found.Gid, PID: found.Pid}, nil
}
