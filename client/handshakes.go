package client

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/internal/limit/inbound"
)

// handshakeInterval is the shortest time between two handshakes with a server (CLI-4).
const handshakeInterval = time.Second

// pacedCredentials limit the memory of the server's frames, and delay each handshake until [handshakeInterval] after the one before. While a stream waits for a
// connection, gRPC connects again after a GOAWAY without a backoff. A server that sends a GOAWAY on each connection
// would get dozens of handshakes a second.
type pacedCredentials struct {
	credentials.TransportCredentials

	mu   sync.Mutex
	next time.Time // the earliest time of the next handshake
}

func (c *pacedCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(c.reserve(time.Now())):
	}
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	return inbound.ClientConn(conn), info, nil
}

// reserve takes the next free time for a handshake, and returns the delay until then.
func (c *pacedCredentials) reserve(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.Before(now) {
		c.next = now
	}
	wait := c.next.Sub(now)
	c.next = c.next.Add(handshakeInterval)
	return wait
}

// Clone implements [credentials.TransportCredentials]. The clone does not share the times of the handshakes.
func (c *pacedCredentials) Clone() credentials.TransportCredentials {
	return &pacedCredentials{TransportCredentials: c.TransportCredentials.Clone()}
}
