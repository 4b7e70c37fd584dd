package server

import (
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A stream joins a client's requests and a watch's changes in a session.
// Except where noted, its goroutine (the gRPC handler's) owns it.
type stream struct {
	server  *Server
	rpc     grpc.ServerStream
	info    Stream
	also    *xds.Type // what info.Type becomes if the first request wants it; nil: nothing
	decoder wire.Decoder

	inbox   chan *message // from read, which closes it
	failure error         // of read; set before it closes inbox

	// From the first request on; nil before.
	watch Watch
	told  *account // nil: delta

	// The first request, while it is not known what its node may see. Meanwhile no
	// other is read.
	first *xds.Request

	session *protocol.Session // nil until that is known
	bell    <-chan struct{}
	deaf    time.Time // until then no change makes the session say anything; zero: one may

	// One response is sent at a time, by the goroutine that made it, which lives as
	// long as the write. While it is blocked, changes coalesce in the session.
	queue   []*xds.Response // taken from the session, not yet sent
	sent    chan error      // from send, with one slot, so that it never waits; nil: nothing is being sent
	writeBy time.Time       // when what is being written has taken too long
	left    uint64          // what progress said when that was set

	progress progress // of what was sent
	claim    *claim   // from the first request of a type until all that was due is written; nil: nothing is due
	silence  *silence // until the first request; nil: it has come
	leaving  leave

	seat    *seat            // among all streams
	lost    loss             // from who takes a seat or room away; from step, too
	asks    asks             // from who inspects it
	held    int              // bytes, of names and the node
	charged int              // bytes that are counted among those of all streams, by load
	load    *fair.Load[loss] // nil: none ever were
	types   int              // that were opened

	timer *time.Timer // nil: no deadline
	armed time.Time   // when timer fires

	ended       bool // the client sends no more
	missed      bool // the session may have more to say
	hurried     bool // the client sent more requests than are taken
	nodeChanged bool
	known       bool // of the clients that are connected
	opened      bool // the observer was told so
}

// A claim is a stream's ticket. It says nothing before its turn.
type claim struct {
	ticket *ticket
	turn   <-chan struct{} // of the ticket; nil: it is not waited for
	by     time.Time       // when it is given up, though its turn has not come or answers are open
	since  time.Time       // when it was taken
}

// waits reports whether a turn has not come.
func (c *claim) waits() bool { return c != nil && c.turn != nil }

// A silence is what a stream has on which no request has come.
type silence struct {
	seat   *seat
	by     time.Time // when the first request must have come
	last   time.Time // the same, however steadily it comes
	coming int       // how much of it had come when by was set
}

// serve runs a stream until it ends.
func (s *Server) serve(rpc grpc.ServerStream, v xds.Variant, only, also *xds.Type) error {
	lost := newLoss()
	seat, silent, err := s.admit(rpc.Context(), lost)
	if err != nil {
		return s.guarded(&Stream{Type: only}, func() error { s.crowded(rpc.Context(), err); return err })
	}
	st := &stream{
		server: s, rpc: rpc, also: also, seat: seat, lost: lost, inbox: make(chan *message),
		info:    Stream{Variant: v, Type: only},
		decoder: s.decoder(v),
		asks:    asks{wake: lost},
	}
	st.info.asks = &st.asks
	by := time.Now().Add(s.firstTimeout)
	st.silence = &silence{seat: silent, by: by, last: by.Add((firstTimeouts - 1) * s.firstTimeout)}
	defer func() { st.speaks(); s.dismiss(st.seat) }()
	plain(rpc.Context())
	st.info.ID = s.streams.Add(1)
	if max := s.age.Max; max > 0 {
		st.leaving.sooner(time.Now().Add(max+jitter(max/2)), errOld, s.age.Grace)
	}
	go st.read()
	err = s.guarded(&st.info, st.loop)
	err = s.guarded(&st.info, func() error { s.rejects(rpc.Context(), &st.info, err); return err })
	return st.close(err)
}

// decoder returns a decoder that knows the limits.
func (s *Server) decoder(v xds.Variant) wire.Decoder {
	return wire.Decoder{Variant: v, MaxNames: s.limits.MaxNames, MaxNode: s.bounds.Node, MaxTypeURL: maxTypeURL}
}

// absentKey is the key in a node's metadata by which it says how it wants to be
// told of names that do not exist. "resource" is how an older version of the
// protocol has it: "the server will send a Resource whose name field matches the
// name that the client subscribed to and whose resource field is unset".
const absentKey = "xds.absent"

// open begins to watch. "Only the first request on a stream is guaranteed to carry
// the node identifier."
func (s *stream) open(node *xds.Node) error {
	if err := s.server.checkID(node); err != nil {
		return err
	}
	var err error
	if s.watch, err = s.server.watch(s.rpc.Context(), node); err != nil {
		return err
	}
	s.bell = s.watch.C()
	if node == nil {
		node = &noNode
	}
	if err := s.server.seats.name(s.seat, node.ID); err != nil {
		return err
	}
	s.held = size(node) // an observer may ask for it as long as the stream lives
	s.info.open(s.rpc.Context(), node)
	s.info.of(s.watch)
	s.known = true
	s.server.logConnected(&s.info)
	if o := s.server.observer; o != nil {
		s.opened = true
		o.Opened(&s.info)
	}
	return nil
}

// checkID refuses an id of a node that is too long. Polls are logged as streams are.
func (s *Server) checkID(node *xds.Node) error {
	limits := s.limits
	if node != nil && len(node.ID) > limits.MaxNameLen { // which is remembered beyond the stream
		return exceeds(tooLarge, xds.LimitNameLength, codes.ResourceExhausted, "limit exceeded: a node id of %d bytes, more than %d", len(node.ID), limits.MaxNameLen)
	}
	return nil
}

// begin begins the session, if it is known what the node may see.
func (s *stream) begin() error {
	view, _, err := s.watch.Next()
	if err != nil {
		return deny(err)
	}
	if view == nil {
		s.server.logWaits(&s.info)
		return s.charge(s.held + holds(s.first))
	}
	node, limits := s.info.Node, s.server.limits
	limits.Bodyless = wire.Metadata(node.Metadata, absentKey) == "resource"
	limits.Refused = func(t *xds.Type) bool { return s.server.refusedBefore(s.info.Node.ID, t.URL) }
	if w, ok := s.watch.(Recalling); ok {
		limits.Recent = w.Recent
	}
	if s.info.Variant == xds.SotW {
		s.told = &account{told: s.server.told, node: node.ID, owner: fair.Owner(s.info.Peer)}
		limits.Told = s.recall
	}
	limits.Spread = s.info.ID
	s.session = protocol.NewSession(s.info.Variant, s.info.Type, view, limits)
	req := *s.first
	s.first = nil
	if err := s.refresh(); err != nil {
		return err
	}
	return s.hand(req)
}

// holds is about how much memory a request takes, without its node.
func holds(r *xds.Request) int {
	n := weight(r.Names) + weight(r.Subscribe) + weight(r.Unsubscribe) + len(r.Version) + len(r.Nonce)
	for _, v := range r.Initial {
		n += len(v.Name) + len(v.Version) + 64
	}
	return n
}

// close gives back all that the stream has, and returns what its client is told:
// err, unless that is nil and something panics.
func (s *stream) close(err error) error {
	s.disarm()
	s.asks.end()
	s.leave()
	if s.load != nil {
		s.server.held.leave(s.load)
	}
	if s.told != nil {
		s.told.end(time.Now())
	}
	if s.watch != nil {
		err = merge(err, s.server.guarded(&s.info, func() error { s.watch.Close(); return nil }))
	}
	if s.known {
		err = merge(err, s.server.guarded(&s.info, func() error { s.server.logLeft(&s.info, err); return nil }))
	}
	if o := s.server.observer; o != nil && s.opened {
		err = merge(err, s.server.guarded(&s.info, func() error { o.Closed(&s.info, err); return nil }))
	}
	return err
}

func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(max(d, 1)))) }
