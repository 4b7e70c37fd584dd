package identity

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// A Process is who opened the other end of a unix socket, as the system says: at the time it
// connected. It is a [credentials.AuthInfo].
type Process struct {
	credentials.CommonAuthInfo
	UID, GID uint32 // its other groups are not known
	PID      int32  // may be another's by now
}

// AuthType implements [credentials.AuthInfo].
func (Process) AuthType() string { return "unix" }

// processOf returns who is at the other end of a connection; nil: that is not known.
func processOf(c net.Conn) *Process {
	p, err := peerOf(c)
	if err != nil {
		return nil
	}
	p.SecurityLevel = credentials.PrivacyAndIntegrity // nobody is between
	return &p
}

// UnixCredentials returns the credentials of a gRPC server on unix sockets: plain text, and
// who is at the other end ([Process]) for [Finder.Find].
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

// ConnContext is for an http.Server on unix sockets what [UnixCredentials] are for gRPC's.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if p := processOf(c); p != nil {
		return peer.NewContext(ctx, &peer.Peer{Addr: c.RemoteAddr(), AuthInfo: *p})
	}
	return ctx
}
