package server

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A stream connects the requests of a client and the changes of a watch with a session. The
// goroutine of the gRPC handler owns the stream, except where noted.
type stream struct {
	server  *Server
	rpc     grpc.ServerStream
	info    Stream
	also    *xds.Type // another type that the first request may choose; nil: no choice
	decoder wire.Decoder

	inbox   chan *message // filled and closed by read
	failure error         // why read ended; set before read closes inbox

	// Set by the first request.
	watch   Watch
	history *streamHistory // nil: delta

	// The first request, while the content for its node is not known. No other request is read meanwhile.
	first *xds.Request

	session    *protocol.Session // nil until the content is known
	unit       *unit             // with the other streams of the client; nil: not known, or aggregated
	locked     bool              // the stream has the lock of its unit
	lines      []func()          // of the log, for later
	poked      atomic.Bool       // notices has a notice of poke
	stirred    bool              // the notice came: a step is due
	bell       <-chan struct{}
	quietUntil time.Time // no change can make the session send anything before this time; zero: a change may

	// One response is sent at a time. The goroutine of a step sends it, and lives as long as the write. While the
	// write is blocked, changes collect in the session.
	queue   []*xds.Response // taken from the session, not yet sent
	sent    chan error      // result of send, with one slot, so that send never blocks; nil: nothing is being sent
	writeBy time.Time       // deadline of the write
	left    uint64          // value of progress.left when writeBy was set

	progress progress   // of the sent data
	claim    *claim     // from the first request of a type until its answers are written; nil: none
	silence  *firstWait // nil after the first request
	leaving  departure

	seat        *seat               // among all streams
	running     atomic.Int32        // serve and read
	notices     notices             // notices from other goroutines
	inspections inspections         // calls of Inspect
	held        int                 // bytes of names and node
	charged     int                 // bytes counted in load
	load        *fair.Load[notices] // nil: nothing was counted yet
	types       int                 // number of opened types

	timer *time.Timer // nil: no deadline
	armed time.Time   // when timer fires

	ended       bool // the client sends no more requests
	moreToSend  bool // the session may have more to send
	rateLogged  bool // exceeding the rate was logged
	nodeChanged bool
	counted     bool // counted in server.clients
	opened      bool // Opened of the observer was called
}

// A claim is a stream's ticket for its first answers. The stream sends nothing before its turn.
type claim struct {
	ticket *ticket
	turn   <-chan struct{} // of the ticket; nil: the turn has come
	by     time.Time       // when the stream gives up the wait, or gives back the place
	since  time.Time       // when the ticket was taken
}

// waits reports whether the turn has not come yet.
func (c *claim) waits() bool { return c != nil && c.turn != nil }

// firstWait is the state of a stream before its first request.
type firstWait struct {
	seat   *seat
	by     time.Time // deadline of the first request, extended while it arrives
	last   time.Time // the last possible deadline
	coming int       // progress of the request when by was set
}

// serve runs a stream until it ends.
func (s *Server) serve(rpc grpc.ServerStream, v xds.Variant, only, also *xds.Type) error {
	if rpc.Context().Err() != nil { // the connection has gone: its first request is dropped unread (SAFE-14)
		return status.FromContextError(rpc.Context().Err()).Err()
	}
	lost := newNotices()
	seat, silent, err := s.admit(rpc.Context(), lost)
	if err != nil {
		return s.guarded(&Stream{Type: only}, func() error { s.logNoSeat(rpc.Context(), err); return err })
	}
	st := &stream{
		server: s, rpc: rpc, also: also, seat: seat, notices: lost, inbox: make(chan *message),
		info:        Stream{Variant: v, Type: only, permit: s.limits.Retry},
		decoder:     s.decoder(v),
		inspections: inspections{wake: lost},
	}
	st.info.inspections = &st.inspections
	by := time.Now().Add(s.firstTimeout)
	st.silence = &firstWait{seat: silent, by: by, last: by.Add((firstTimeouts - 1) * s.firstTimeout)}
	st.running.Store(2)
	defer func() { st.endFirstWait(); st.release(); s.drain.leave() }()
	plain(rpc.Context())
	st.info.ID = s.streams.Add(1)
	if max := s.age.Max; max > 0 {
		st.leaving.plan(time.Now().Add(max+jitter(max/2)), errOld, s.age.Grace)
	}
	go st.read()
	err = s.guarded(&st.info, st.loop)
	err = s.guarded(&st.info, func() error { s.logRejection(rpc.Context(), &st.info, err); return err })
	return st.close(err)
}

// release gives the seat back when both goroutines of the stream have ended: until then it takes memory (SAFE-14).
func (s *stream) release() {
	if s.running.Add(-1) == 0 {
		s.server.seats.leave(s.seat)
	}
}

// decoder returns a decoder with the server's limits.
func (s *Server) decoder(v xds.Variant) wire.Decoder {
	return wire.Decoder{Variant: v, MaxNames: s.limits.MaxNames, MaxNode: s.bounds.Node, MaxTypeURL: maxTypeURL}
}

// absentKey is a key in the metadata of a node. With the value "resource", the server reports
// missing names to this client as in an older version of the protocol: "the server will send a
// Resource whose name field matches the name that the client subscribed to and whose resource field
// is unset".
const absentKey = "xds.absent"

// open starts the watch. "Only the first request on a stream is guaranteed to carry the node identifier."
func (s *stream) open(node *xds.Node) error {
	if err := s.server.checkID(node); err != nil {
		return err
	}
	var err error
	s.watch, err = s.server.watchNode(s.rpc.Context(), node)
	if err != nil {
		return err
	}
	s.bell = s.watch.C()
	if node == nil {
		node = &noNode
	}
	if err := s.server.seats.name(s.seat, node.ID); err != nil {
		return err
	}
	s.held = size(node) // the node stays in memory as long as the stream, for observers
	s.info.open(s.rpc.Context(), node)
	s.info.of(s.watch)
	s.counted = true
	s.server.logConnected(&s.info)
	if o := s.server.observer; o != nil {
		s.opened = true
		o.Opened(&s.info)
	}
	return nil
}

// checkID refuses a node id that is too long. It applies to streams and polls.
func (s *Server) checkID(node *xds.Node) error {
	limits := s.limits
	if node != nil && len(node.ID) > limits.MaxNameLen { // the id is remembered after the stream has ended
		return limitError(tooLarge, xds.LimitNameLength, codes.ResourceExhausted, "limit exceeded: a node id of %d bytes, more than %d", len(node.ID), limits.MaxNameLen)
	}
	return nil
}

// begin starts the session, if the content for the node is known.
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
	if w, ok := s.watch.(HistoryWatch); ok {
		limits.Recent = w.Recent
	}
	if w, ok := s.watch.(WithholdingWatch); ok {
		limits.Withholds = w.Withholds
	}
	if w, ok := s.watch.(TryingWatch); ok {
		limits.Tried, limits.Hasten = w.Tried, w.Hasten
	}
	if s.info.Variant == xds.SotW {
		s.history = &streamHistory{history: s.server.history, node: node.ID, owner: fair.Owner(s.info.Peer)}
		limits.Told = s.recall
	}
	limits.Spread = s.info.ID
	s.session = protocol.NewSession(s.info.Variant, s.info.Type, view, limits)
	s.join()
	req := *s.first
	s.first = nil
	if err := s.refresh(); err != nil {
		return err
	}
	return s.handle(req)
}

// holds estimates the memory of a request, without its node.
func holds(r *xds.Request) int {
	n := weight(r.Names) + weight(r.Subscribe) + weight(r.Unsubscribe) + len(r.Version) + len(r.Nonce)
	for _, v := range r.Initial {
		n += len(v.Name) + len(v.Version) + 64
	}
	return n
}

// close releases the resources of the stream. It returns the error for the client: err or, if err
// is nil, the error of a panic during close.
func (s *stream) close(err error) error {
	s.disarm()
	s.leaveUnit()
	s.inspections.end()
	s.leave()
	if s.load != nil {
		s.server.held.leave(s.load)
	}
	if s.history != nil {
		s.history.end(time.Now())
	}
	if s.watch != nil {
		err = firstError(err, s.server.guarded(&s.info, func() error { s.watch.Close(); return nil }))
	}
	if s.counted {
		err = firstError(err, s.server.guarded(&s.info, func() error { s.server.logLeft(&s.info, err); return nil }))
	}
	if o := s.server.observer; o != nil && s.opened {
		err = firstError(err, s.server.guarded(&s.info, func() error { o.Closed(&s.info, err); return nil }))
	}
	return err
}

func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(max(d, 1)))) }
