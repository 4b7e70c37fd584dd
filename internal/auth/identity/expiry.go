package identity

import (
	"crypto/x509"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Expiring returns the credentials of a gRPC server that do as c, and close a connection a
// little before the client's certificate expires: its streams end, and the client connects again,
// with the new certificate that it has by then. A client would else open its next stream on the
// old connection, whose certificate is what it was, for ever.
func Expiring(c credentials.TransportCredentials) credentials.TransportCredentials {
	return expiring{c}
}

type expiring struct {
	credentials.TransportCredentials
}

// ServerHandshake implements [credentials.TransportCredentials].
func (e expiring) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := e.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
		conn = closeIn(conn, lifetime(t.State.VerifiedChains, time.Now()))
	}
	return conn, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (e expiring) Clone() credentials.TransportCredentials {
	return expiring{e.TransportCredentials.Clone()}
}

// maxEarly is how long before a certificate expires its connection is closed at most.
const maxEarly = 5 * time.Minute

// lifetime is how long a connection may last: almost to the end of its certificate, and not as
// long as others whose certificates were issued at the same time, so that a fleet does not
// connect again all at once. A stream that ended before would come back on the same connection.
func lifetime(chains [][]*x509.Certificate, now time.Time) time.Duration {
	left := end(chains).Sub(now)
	early := min(left/10, maxEarly) / 2
	if early <= 0 {
		return max(left, 0)
	}
	return left - early - rand.N(early)
}

// A mortal is a connection that is closed by itself.
type mortal struct {
	net.Conn
	timer *time.Timer
}

func closeIn(c net.Conn, d time.Duration) net.Conn {
	return mortal{c, time.AfterFunc(d, func() { _ = c.Close() })}
}

// Close implements [net.Conn].
func (m mortal) Close() error {
	m.timer.Stop()
	return m.Conn.Close()
}
