package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/limit/rate"
)

// maxOwners is the minimum number of addresses whose request rates are remembered.
const maxOwners = 10_000

// requestUnits returns how many requests a request of a given size counts as.
func requestUnits(bytes int) int { return 1 + bytes>>16 }

// rate returns the share of a connection in the rate of its address. It identifies the connection by its net.Addr
// pointer, as [admission.enter] does. There is no rate for each node, because clients may invent node ids.
func (s *Server) rate(peer net.Addr) *rate.Shared { return s.rates.Of(fair.Owner(peer), peer) }

// rateOf does the same as rate, for a connection that is identified by its port.
func (s *Server) rateOf(peer net.Addr) *rate.Shared {
	return s.rates.Of(fair.Owner(peer), connOf(peer))
}

// logAddressRate logs that requests of an address wait.
func (s *Server) logAddressRate(peer net.Addr) {
	const line = "an address sends requests too fast: they wait"
	s.tally[tooFastAddress].Add(1)
	from := "unknown"
	if peer != nil {
		from = peer.String()
	}
	s.warn(&Stream{Peer: peer}, line, line, []slog.Attr{slog.String("peer", from), slog.Int("per_second", s.bounds.AddressRate), limitAttr(limitNames[tooFastAddress])})
}

// delayOf returns how long a poll that counts as n requests has to wait on its connection. Only its first unit delays the
// poll itself; the others delay later polls.
func (s *Server) delayOf(conn *rate.Shared, n int, peer net.Addr) time.Duration {
	now := time.Now()
	wait := conn.Take(now, 1)
	conn.Take(now, n-1)
	if wait > 0 {
		s.logAddressRate(peer)
	}
	return wait
}

// pause waits for a time, or until one of the channels is closed. The channels may be nil.
func pause(d time.Duration, gone, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-gone:
	case <-other:
	}
}

// A queuedBody is the body of a poll that waits for its rate. The first bytes of the body are read
// before the wait, because they need little memory. In HTTP/1.1 the server cannot notice a lost
// client before it has read the whole body.
type queuedBody struct {
	io.ReadCloser
	server *Server
	ctx    context.Context //nolint:containedctx // of the request whose body it is
	peer   net.Addr
	early  int // bytes that may be read before the wait
	due    bool
}

// Read implements [io.Reader].
func (q *queuedBody) Read(p []byte) (int, error) {
	if q.due {
		return q.ReadCloser.Read(p)
	}
	if q.early == 0 {
		if err := q.wait(); err != nil {
			return 0, err
		}
		return q.ReadCloser.Read(p)
	}
	n, err := q.ReadCloser.Read(p[:min(len(p), q.early)])
	q.early -= n
	if err != nil {
		if gone := q.wait(); gone != nil {
			err = gone
		}
	}
	return n, err
}

// wait waits until the rate permits the poll. It returns an error if the client has gone.
func (q *queuedBody) wait() error {
	q.due = true
	if wait := q.server.delayOf(q.server.rateOf(q.peer), 1, q.peer); wait > 0 {
		pause(wait, q.ctx.Done(), q.server.drain.began)
	}
	if err := q.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}
