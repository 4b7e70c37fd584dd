//go:build !linux

package identity

import (
	"errors"
	"net"
)

// peerOf fails: the peer of a unix socket is only known on Linux.
func peerOf(net.Conn) (Process, error) { return Process{}, errors.ErrUnsupported }
