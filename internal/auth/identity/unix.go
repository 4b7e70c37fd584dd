package identity

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// A Process is the process that opened the other end of a unix socket. The system reported it when
// the connection was opened. It implements [credentials.AuthInfo].
type Process struct {
	credentials.CommonAuthInfo
	UID, GID uint32 // without the process's further groups
	PID      int32  // the process may have ended, and another may have its ID
}

// AuthType implements [credentials.AuthInfo].
func (Process) AuthType() string { return "unix" }

// processOf returns the process at the other end of a connection; nil if it is not known.
func processOf(c net.Conn) *Process {
	p, err := peerOf(c)
	if err != nil {
		return nil
	}
	p.SecurityLevel = credentials.PrivacyAndIntegrity // the data of a unix socket do not leave the machine
	return &p
}

// UnixCredentials returns the credentials of a gRPC server on unix sockets: plain text, with the
// [Process] at the other end for [Finder.Find].
func UnixCredentials() credentials.TransportCredentials { return sockets{insecure.NewCredentials()} }

type sockets struct {
	credentials.TransportCredentials
}

// ServerHandshake implements [credentials.TransportCredentials].
func (s sockets) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ServerHandshake(raw)
	if p := processOf(raw); err == nil && p != nil {
		info = *p
	}
	return conn, info, err
}

// Clone implements [credentials.TransportCredentials].
func (s sockets) Clone() credentials.TransportCredentials {
	return sockets{s.TransportCredentials.Clone()}
}

// ConnContext is for an http.Server on unix sockets what [UnixCredentials] is for a gRPC server. It
// adds the [Process] to the context.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if p := processOf(c); p != nil {
		return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr(), AuthInfo: *p})
	}
	return ctx
}
