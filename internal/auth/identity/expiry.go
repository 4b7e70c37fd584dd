package identity

import (
	"crypto/x509"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// Expiring wraps the credentials of a gRPC server. It closes a connection a little before the
// client's certificate expires. Then the streams of the connection end, and the client connects again
// with its new certificate. Without Expiring, a client could open new streams on the old connection
// for ever, and the server would not check the expired certificate again.
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

// maxEarly is the longest time by which a connection is closed before its certificate expires.
const maxEarly = 5 * time.Minute

// lifetime returns how long a connection may last: almost until the client's certificate expires. The
// time is random, so that clients with certificates of the same time do not all reconnect at once.
// The whole connection must be closed, because a client opens a stream that ended again on the same
// connection.
func lifetime(chains [][]*x509.Certificate, now time.Time) time.Duration {
	left := end(chains).Sub(now)
	early := min(left/10, maxEarly) / 2
	if early <= 0 {
		return max(left, 0)
	}
	return left - early - rand.N(early)
}

// A mortal is a connection that a timer closes.
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
