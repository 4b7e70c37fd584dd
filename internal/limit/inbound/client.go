package inbound

import (
	"errors"
	"net"
)

// A server's DATA frames may cost maxSurplus more than payloadShare times their payload.
const (
	payloadShare = 4
	maxSurplus   = 1 << 20
)

var errSmallFrames = errors.New("the server sends its responses in too small or padded frames")

// ClientConn wraps a client's connection, after the TLS handshake. Reads fail if the memory of the server's DATA frames
// is several times the size of its responses.
func ClientConn(c net.Conn) net.Conn { return &clientConn{Conn: c} }

type clientConn struct {
	net.Conn
	in      scanner
	surplus int // cost of the frames so far, beyond payloadShare times their payload
}

// Read implements [net.Conn].
func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		var body []byte
		_, body, rest, _, _, _ = c.in.next(rest)
		if c.in.typ != typeData || len(body) == 0 {
			continue
		}
		c.surplus = max(0, c.surplus+int(c.in.cost)-payloadShare*len(body))
		c.in.cost = 0
	}
	if c.surplus > maxSurplus {
		return 0, errSmallFrames
	}
	return n, err
}
