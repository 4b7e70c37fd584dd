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

// seats limits how many streams or polls may be open. When all seats are taken, a new stream displaces the newest
// stream of the connection with most streams, of the address that has most. Streams whose client has not answered yet
// give way first (SAFE-14).
type seats struct {
	max  int
	full error             // for a stream that gets no seat
	lost error             // for a stream that loses its seat
	many func(n int) error // for a stream of a node that already has too many streams (n)

	byConn bool // an address with most makes room for itself: on its connection with most

	mu     sync.Mutex // held for memory only
	shares fair.Shares[notices]
	nodes  map[nodeAtAddress]int // number of streams
}

// A nodeAtAddress is a node at an address. Clients may invent node ids, so a node at one address does not use up the seats of
// the same id at another.
type nodeAtAddress struct{ owner, node string }

// A seat is the seat of a stream. The goroutine of the stream owns it.
type seat struct {
	place *fair.Place[notices]
	node  string
	named bool // the node is counted in seats.nodes

	settled bool // the client has answered

	free net.Addr // non-nil: the free seat of this connection ([silentStreams])
}

// notices is a channel that tells a stream about events from other goroutines: the loss of its seat or memory, a drain, and
// calls of Leave and Inspect.
type notices chan notice

// A notice is one such event.
type notice struct {
	why  error
	what byte
}

// Kinds of notices.
const (
	noticeLost     = iota // the stream lost its seat or memory, and must end
	noticeStepDone        // the step of the stream is done; a non-nil error ends the stream
	noticeDrain           // the server is drained: end in an orderly way
	noticeLeave           // Leave or Disconnect was called: end like an old stream
	noticeInspect         // Inspect was called
	noticePoke            // another stream of the unit has changed
)

// newNotices has room for two notices that end the stream, one of Leave, one of Inspect and one of poke.
func newNotices() notices { return make(notices, 5) }

// lose reports the loss of a seat or memory. If the channel is full, the stream ends anyway.
func (l notices) lose(why error) { l.notify(notice{why, noticeLost}) }

func (l notices) notify(n notice) {
	select {
	case l <- n:
	default:
	}
}

func newSeats(max int, full, lost error) *seats {
	return &seats{max: max, full: full, lost: lost, shares: fair.Shares[notices]{Max: max}, nodes: map[nodeAtAddress]int{}}
}

// enter takes a seat for a stream or poll from an address. It returns nil if no seat is free for
// it.
func (s *seats) enter(peer net.Addr, lost notices) *seat {
	owner, of := s.holder(peer)
	s.mu.Lock()
	defer s.mu.Unlock()
	place, other := s.shares.Enter(owner, of, lost)
	if place == nil {
		return nil
	}
	if other.OK {
		other.Item.lose(s.lost)
	}
	return &seat{place: place}
}

// holder returns the owner of a seat, and its group.
func (s *seats) holder(conn net.Addr) (owner string, of any) {
	if s.byConn {
		of = conn
	}
	return fair.Owner(conn), of
}

// name sets the node of a seat. It returns an error if the node has too many seats: when three
// quarters of all seats are taken, a node at one address may not have more than half of all seats.
// Streams without a node id are not counted.
func (s *seats) name(of *seat, id string) error {
	if id == "" {
		return nil
	}
	node := nodeAtAddress{of.place.Owner(), id}
	s.mu.Lock()
	defer s.mu.Unlock()
	of.node, of.named = id, true
	s.nodes[node]++
	if n := s.nodes[node]; s.shares.Len() > s.max-s.max/4 && n > s.max/2 {
		return s.many(n)
	}
	return nil
}

// settle records that the client has answered: its stream gives way after those of clients that have not.
func (s *seats) settle(of *seat) {
	if of.settled {
		return
	}
	of.settled = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares.Settle(of.place)
}

// room reports whether a stream of a connection would get a seat.
func (s *seats) room(conn net.Addr) bool {
	owner, of := s.holder(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shares.Room(owner, of)
}

// leave gives a seat back.
func (s *seats) leave(of *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares.Leave(of.place)
	if !of.named {
		return
	}
	node := nodeAtAddress{of.place.Owner(), of.node}
	s.nodes[node]--
	if s.nodes[node] == 0 {
		delete(s.nodes, node)
	}
}

// drain sends a drain notice to all seats.
func (s *seats) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.shares.All() {
		l.notify(notice{errDraining, noticeDrain})
	}
}

// taken returns the number of taken seats.
func (s *seats) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shares.Len()
}

// admit takes two seats for a new stream: one among all streams, and one among the silent streams.
// A refusal must be cheap, because a flood of streams may be refused.
func (s *Server) admit(ctx context.Context, lost notices) (seat, silence *seat, err error) {
	from := peerOf(ctx)
	silence = s.silent.enter(from, lost)
	if silence == nil {
		return nil, nil, s.silent.full
	}
	seat = s.seats.enter(from, lost)
	if seat == nil {
		s.silent.leave(silence)
		return nil, nil, s.seats.full
	}
	if !s.drain.enter() { // after the seat was taken: a drain sends a notice to every seat
		s.seats.leave(seat)
		s.silent.leave(silence)
		return nil, nil, errDraining
	}
	return seat, silence, nil
}

// peerOf returns the address of a call, or nil if it is unknown.
func peerOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// logNoSeat counts and logs a stream that got no seat.
func (s *Server) logNoSeat(ctx context.Context, err error) {
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

// manyOfNode returns the error of a stream whose node has too many streams.
func manyOfNode(n int) error {
	return reject(tooManyStreams, codes.ResourceExhausted, "limit exceeded: the node has %d streams, more than half of the maximum of this server, and few are free", n)
}

// manyPollsOfNode returns the error of a poll whose node has too many polls.
func manyPollsOfNode(n int) error {
	return reject(tooManyPolls, codes.Unavailable, "limit exceeded: the node has %d polls that are held, more than half of the maximum of this server, and few are free; try again later", n)
}

// errLostSilent ends a stream that lost its seat before its first request.
var errLostSilent = reject(tooSilent, codes.ResourceExhausted, "limit exceeded: too many streams are open on which no request has come, and most of them are of this address")

// errLost ends a stream that lost its seat.
var errLost = reject(tooManyStreams, codes.ResourceExhausted, "limit exceeded: the maximum number of streams is open, and most of them are of this address")

// errLostPoll is logged for a poll that lost its seat. Its client gets the answer that nothing is new, which is true.
var errLostPoll = reject(tooManyPolls, codes.Unavailable, "limit exceeded: the maximum number of polls is held, and most of them are of this address")
