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

// maxOwners is of how many addresses at least it is known how fast their requests come.
const maxOwners = 10_000

// counts is how many requests one of some bytes counts as.
func counts(bytes int) int { return 1 + bytes>>16 }

// rate returns the part that the connection from an address has in the pace of all that comes
// from there. It is known by the address that it has in memory, as in [admission.enter]. A
// node has no pace of its own: which one it is, its client says, and may say anything.
func (s *Server) rate(peer net.Addr) *rate.Shared { return s.rates.Of(fair.Owner(peer), peer) }

// rateOf is the same of a connection that is not known by that, but by its port.
func (s *Server) rateOf(peer net.Addr) *rate.Shared {
	return s.rates.Of(fair.Owner(peer), connOf(peer))
}

// rush notes that requests of an address wait.
func (s *Server) rush(peer net.Addr) {
	const line = "an address sends requests too fast: they wait"
	s.tally[tooCrowded].Add(1)
	from := "unknown"
	if peer != nil {
		from = peer.String()
	}
	s.warn(&Stream{Peer: peer}, line, line, []slog.Attr{slog.String("peer", from), slog.Int("per_second", s.bounds.AddressRate), limitAttr(limits[tooCrowded])})
}

// due is how long a poll has to wait that comes on a connection, and counts as n requests: for
// what it is more than a small one, those wait that follow.
func (s *Server) due(conn *rate.Shared, n int, peer net.Addr) time.Duration {
	now := time.Now()
	wait := conn.Take(now, 1)
	conn.Take(now, n-1)
	if wait > 0 {
		s.rush(peer)
	}
	return wait
}

// pause returns after a time, or when somebody is gone, or something else is; nil: it never is.
func pause(d time.Duration, gone, other <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-gone:
	case <-other:
	}
}

// A queued body is not read to its end before its poll is due: its first bytes are, for they
// take no room, and of a client of HTTP/1.1 it is not noticed before the end that it is gone.
type queued struct {
	io.ReadCloser
	server *Server
	ctx    context.Context //nolint:containedctx // of the request whose body it is
	peer   net.Addr
	early  int // bytes that may be read before it is due
	due    bool
}

// Read implements [io.Reader].
func (q *queued) Read(p []byte) (int, error) {
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

// wait returns when the poll is due, or with an error when its client is gone.
func (q *queued) wait() error {
	q.due = true
	if wait := q.server.due(q.server.rateOf(q.peer), 1, q.peer); wait > 0 {
		pause(wait, q.ctx.Done(), q.server.drain.began)
	}
	if err := q.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}
