package client

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// handshakeInterval is the shortest time between two handshakes with a server (CLI-4).
const handshakeInterval = time.Second

// pacedCredentials delay the handshake of a connection until [handshakeInterval] after the one before. After a
// GOAWAY, gRPC connects again without a backoff for as long as a stream waits for a connection: to a server that
// sends a GOAWAY on each connection, dozens of times a second.
type pacedCredentials struct {
	credentials.TransportCredentials

	mu   sync.Mutex
	next time.Time // when the next handshake may begin
}

func (c *pacedCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(c.reserve(time.Now())):
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// reserve returns how long the next handshake must wait.
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

// Clone returns credentials with a pace of their own.
func (c *pacedCredentials) Clone() credentials.TransportCredentials {
	return &pacedCredentials{TransportCredentials: c.TransportCredentials.Clone()}
}
