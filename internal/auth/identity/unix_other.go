//go:build !linux

package identity

import (
	"errors"
	"net"
)

// peerOf does not know how other systems say it.
func peerOf(net.Conn) (Process, error) { return Process{}, errors.ErrUnsupported }
