package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/internal/shares"
)

// seats are the streams, or the polls, that may be open at once. When all are taken, the
// newest of the address that has most gives up its own for who comes from another.
type seats struct {
	max  int
	full error             // for those for whom there is none
	lost error             // for those who have lost theirs
	many func(n int) error // for those of a node that has n, too many

	mu     sync.Mutex // held for memory only
	shares shares.Shares[*loss]
	nodes  map[string]int // streams by the id of their node, of those whose is known
}

// A seat is what a stream has. Its goroutine owns it.
type seat struct {
	place *shares.Place[*loss]
	node  string
	named bool // node is counted

	free net.Addr // it is the free one of this connection ([silences]), and nobody else gets it; nil: it is not
}

// A loss is how who has seats is told that one of them was taken away.
type loss struct {
	told chan struct{} // closed when that is so
	once sync.Once
	why  error // set before
}

func newLoss() *loss { return &loss{told: make(chan struct{})} }

func (l *loss) tell(why error) {
	l.once.Do(func() { l.why = why; close(l.told) })
}

func newSeats(max int, full, lost error) *seats {
	return &seats{max: max, full: full, lost: lost, shares: shares.Shares[*loss]{Max: max}, nodes: map[string]int{}}
}

// enter finds a seat for who comes from an address; nil: there is none.
func (s *seats) enter(peer net.Addr, lost *loss) *seat {
	owner := shares.Owner(peer)
	s.mu.Lock()
	defer s.mu.Unlock()
	place, other := s.shares.Enter(owner, lost)
	if place == nil {
		return nil
	}
	if other.OK {
		other.Thing.tell(s.lost)
	}
	return &seat{place: place}
}

// name says whose a seat is. An error says that this node has enough: when three quarters
// of all are taken, none has more than half of all. Nobody knows whether streams without
// an id are of one node.
func (s *seats) name(of *seat, node string) error {
	if node == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of.node, of.named = node, true
	s.nodes[node]++
	if n := s.nodes[node]; s.shares.Len() > s.max-s.max/4 && n > s.max/2 {
		return s.many(n)
	}
	return nil
}

// leave gives a seat back.
func (s *seats) leave(of *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares.Leave(of.place)
	if !of.named {
		return
	}
	if s.nodes[of.node]--; s.nodes[of.node] == 0 {
		delete(s.nodes, of.node)
	}
}

// taken is how many seats are.
func (s *seats) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shares.Len()
}

// admit finds room for a stream, among all and among those that are silent. It does
// little for who is refused, for that may be a crowd.
func (s *Server) admit(ctx context.Context, lost *loss) (seat, silence *seat, err error) {
	if !s.drain.enter() {
		return nil, nil, errDraining
	}
	from := peerOf(ctx)
	if silence = s.silent.enter(from, lost); silence == nil {
		s.drain.leave()
		return nil, nil, s.silent.full
	}
	if seat = s.seats.enter(from, lost); seat == nil {
		s.silent.leave(silence)
		s.drain.leave()
		return nil, nil, s.seats.full
	}
	return seat, silence, nil
}

// peerOf returns the address that a call comes from; nil: it is not known.
func peerOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// dismiss undoes admit. No silence is one that was given back.
func (s *Server) dismiss(seat, silence *seat) {
	s.seats.leave(seat)
	if silence != nil {
		s.silent.leave(silence)
	}
	s.drain.leave()
}

// crowded notes that there was no room for a stream.
func (s *Server) crowded(ctx context.Context, err error) {
	r, ok := errors.AsType[*rejection](err)
	if !ok {
		return
	}
	s.tally[r.fault].Add(1)
	attrs := []slog.Attr{slog.String("code", r.Code().String()), slog.String("error", r.Message())}
	var who Stream
	if p, ok := peer.FromContext(ctx); ok {
		who.Peer = p.Addr
		attrs = append(attrs, slog.String("peer", p.Addr.String()))
	}
	s.warn(&who, r.Message(), "client was refused: its stream ends", attrs)
}

// manyOfNode ends a stream of a node that has too many.
func manyOfNode(n int) error {
	return reject(tooManyStreams, codes.ResourceExhausted, "limit exceeded: the node has %d streams, more than half of all that this server takes, and there are few left", n)
}

// manyPollsOfNode is the same of a poll.
func manyPollsOfNode(n int) error {
	return reject(tooManyPolls, codes.Unavailable, "limit exceeded: the node has %d polls that are held, more than half of all that this server takes, and there are few left; try again later", n)
}

// errLostSilent ends the newest stream without a request of the address that has most.
var errLostSilent = reject(tooSilent, codes.ResourceExhausted, "limit exceeded: too many streams are open on which no request has come, and most of them are of this address")

// errLost ends the newest stream of the address that has most.
var errLost = reject(tooManyStreams, codes.ResourceExhausted, "limit exceeded: all streams that this server takes are open, and most of them are of this address")

// errLostPoll is the same of a poll. Its client is told that nothing is new, which is so.
var errLostPoll = reject(tooManyPolls, codes.Unavailable, "limit exceeded: all polls that this server takes are held, and most of them are of this address")
