package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// seats are the streams, or the polls, that may be open at once. When all are taken, the
// newest of the address that has most gives up its own for who comes from another.
type seats struct {
	max  int
	full error             // for those for whom there is none
	lost error             // for those who have lost theirs
	many func(n int) error // for those of a node that has n, too many

	mu     sync.Mutex // held for memory only
	shares fair.Shares[loss]
	nodes  map[resident]int // streams of those whose node is known
}

// A resident is a node at an address. Which node it is, a client says, and may say anything:
// what it says at one address takes nothing from who is that node at another.
type resident struct{ owner, node string }

// A seat is what a stream has. Its goroutine owns it.
type seat struct {
	place *fair.Place[loss]
	node  string
	named bool // node is counted

	free net.Addr // it is the free one of this connection ([silences]), and nobody else gets it; nil: it is not
}

// A loss is how who has seats is told that one of them was taken away, and streams that the
// server drains.
type loss chan notice

// A notice says why somebody has to go.
type notice struct {
	why  error
	what byte
}

// What a notice tells.
const (
	taken   = iota // a seat, or room
	stepped        // a stream's own step is over; nil: it need not go
	drains         // the stream is to leave, but in order
	sheds          // the same, as one that is old
	asked          // somebody wants to look at the session (inspect.go)
)

// newLoss has room for one that asks, and one that sheds, beside two by which it ends.
func newLoss() loss { return make(loss, 4) }

// tell says that something was taken away. Of many notices some are enough.
func (l loss) tell(why error) { l.notify(notice{why, taken}) }

func (l loss) notify(n notice) {
	select {
	case l <- n:
	default:
	}
}

func newSeats(max int, full, lost error) *seats {
	return &seats{max: max, full: full, lost: lost, shares: fair.Shares[loss]{Max: max}, nodes: map[resident]int{}}
}

// enter finds a seat for who comes from an address; nil: there is none.
func (s *seats) enter(peer net.Addr, lost loss) *seat {
	owner := fair.Owner(peer)
	s.mu.Lock()
	defer s.mu.Unlock()
	place, other := s.shares.Enter(owner, lost)
	if place == nil {
		return nil
	}
	if other.OK {
		other.Item.tell(s.lost)
	}
	return &seat{place: place}
}

// name says whose a seat is. An error says that this node has enough: when three quarters
// of all are taken, none has more than half of all at its address. Nobody knows whether
// streams without an id are of one node.
func (s *seats) name(of *seat, id string) error {
	if id == "" {
		return nil
	}
	node := resident{of.place.Owner(), id}
	s.mu.Lock()
	defer s.mu.Unlock()
	of.node, of.named = id, true
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
	node := resident{of.place.Owner(), of.node}
	if s.nodes[node]--; s.nodes[node] == 0 {
		delete(s.nodes, node)
	}
}

// drain tells all who have seats, once.
func (s *seats) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.shares.All() {
		l.notify(notice{errDraining, drains})
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
func (s *Server) admit(ctx context.Context, lost loss) (seat, silence *seat, err error) {
	from := peerOf(ctx)
	if silence = s.silent.enter(from, lost); silence == nil {
		return nil, nil, s.silent.full
	}
	if seat = s.seats.enter(from, lost); seat == nil {
		s.silent.leave(silence)
		return nil, nil, s.seats.full
	}
	if !s.drain.enter() { // after it has a seat: whoever has one when a drain begins is told
		s.seats.leave(seat)
		s.silent.leave(silence)
		return nil, nil, errDraining
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

// dismiss undoes admit, but for the silence, which was given back.
func (s *Server) dismiss(seat *seat) {
	s.seats.leave(seat)
	s.drain.leave()
}

// crowded notes that there was no room for a stream.
func (s *Server) crowded(ctx context.Context, err error) {
	r, ok := errors.AsType[*rejection](err)
	if !ok {
		return
	}
	s.tally[r.fault].Add(1)
	who := Stream{Peer: peerOf(ctx)}
	s.warnOf(&who, r.Message(), "stream closed: client exceeded a limit or sent a malformed request", func() []slog.Attr {
		attrs := r.attrs()
		if who.Peer != nil {
			attrs = append(attrs, slog.String("peer", who.Peer.String()))
		}
		return attrs
	})
}

// manyOfNode ends a stream of a node that has too many.
func manyOfNode(n int) error {
	return reject(tooManyStreams, codes.ResourceExhausted, "limit exceeded: the node has %d streams, more than half of the maximum of this server, and few are free", n)
}

// manyPollsOfNode is the same of a poll.
func manyPollsOfNode(n int) error {
	return reject(tooManyPolls, codes.Unavailable, "limit exceeded: the node has %d polls that are held, more than half of the maximum of this server, and few are free; try again later", n)
}

// errLostSilent ends the newest stream without a request of the address that has most.
var errLostSilent = reject(tooSilent, codes.ResourceExhausted, "limit exceeded: too many streams are open on which no request has come, and most of them are of this address")

// errLost ends the newest stream of the address that has most.
var errLost = reject(tooManyStreams, codes.ResourceExhausted, "limit exceeded: the maximum number of streams is open, and most of them are of this address")

// errLostPoll is the same of a poll. Its client is told that nothing is new, which is so.
var errLostPoll = reject(tooManyPolls, codes.Unavailable, "limit exceeded: the maximum number of polls is held, and most of them are of this address")
