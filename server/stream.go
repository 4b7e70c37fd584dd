package server

import (
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A stream joins a client's requests and a watch's changes in a session.
// Except where noted, its goroutine (the gRPC handler's) owns it.
type stream struct {
	server *Server
	rpc    grpc.ServerStream
	info   Stream
	only   *xds.Type // nil: aggregated

	// From the first request on; nil before.
	session *protocol.Session
	watch   Watch
	bell    <-chan struct{}

	decoder wire.Decoder // owned by read
	inbox   chan input   // from read
	ended   bool         // the client sends no more

	// One response is sent at a time, by a goroutine of its own that lives as
	// long as the write. While it is blocked, changes coalesce in the session.
	queue   []*xds.Response // taken from the session, not yet sent
	sending bool
	sent    chan error // one slot, so that send never waits
	writeBy time.Time  // when the running send has taken too long

	drain   <-chan struct{}
	leaveBy time.Time // when draining: the end

	timer *time.Timer // nil until a deadline is known
	armed time.Time   // when timer fires; zero: stopped

	nodeChanged bool
}

// input is a request or the error that ends them.
type input struct {
	req xds.Request
	err error
}

// serve runs a stream until it ends.
func (s *Server) serve(rpc grpc.ServerStream, v xds.Variant, only *xds.Type) error {
	if !s.drain.enter() {
		return errDraining
	}
	defer s.drain.leave()
	st := &stream{
		server: s, rpc: rpc, only: only, drain: s.drain.began,
		info:    Stream{ID: s.streams.Add(1), Variant: v, Type: only},
		decoder: wire.Decoder{Variant: v, MaxNames: s.limits.MaxNames},
		inbox:   make(chan input), sent: make(chan error, 1),
	}
	go st.read()
	err := st.loop()
	st.close(err)
	return err
}

// loop handles one event after the other. When it returns, gRPC cancels the
// stream's context, which ends read and send.
func (s *stream) loop() (err error) {
	gone := s.rpc.Context().Done()
	for {
		s.settle()
		if s.ended && !s.sending {
			return nil // after what was due has left
		}
		select {
		case in := <-s.inbox:
			err = s.receive(in)
		case <-s.bell:
		case err = <-s.sent:
			s.sending = false
		case <-s.alarm():
			s.armed = time.Time{}
			err = s.expired(time.Now())
		case <-s.drain:
			s.drain = nil
			s.leaveBy = time.Now().Add(jitter(s.server.drainTime))
		case <-gone:
			err = status.FromContextError(s.rpc.Context().Err()).Err()
		}
		if err != nil {
			return err
		}
	}
}

// settle brings the session up to date, carries out what it wants done and
// lets go of what an idle stream must not hold.
func (s *stream) settle() {
	if s.session == nil {
		return
	}
	s.refresh()
	for i := range s.session.Interests() {
		s.watch.Interested(i.Type, i.Wildcard, i.Added, i.Removed)
	}
	if !s.sending && len(s.queue) == 0 {
		for r := range s.session.Responses() {
			s.queue = append(s.queue, r)
		}
	}
	for e := range s.session.Events() {
		s.server.event(&s.info, e)
	}
	s.session.Release()
	if !s.sending && len(s.queue) > 0 {
		r := s.queue[0]
		if s.queue = s.queue[1:]; len(s.queue) == 0 {
			s.queue = nil
		}
		s.sending, s.writeBy = true, time.Now().Add(s.server.writeTimeout)
		go s.send(r)
	}
}

// refresh tells the session the time and the newest view, which it wants to
// know before each input.
func (s *stream) refresh() {
	s.session.Advance(time.Now())
	s.session.Change(s.watch.Next())
}

// receive hands a request to the session.
func (s *stream) receive(in input) error {
	switch {
	case errors.Is(in.err, io.EOF):
		s.inbox, s.ended = nil, true
		return nil
	case in.err != nil:
		return in.err
	case s.session == nil:
		s.open(in.req.Node)
	case in.req.Node != nil:
		s.nodeChange(in.req.Node)
	}
	s.refresh()
	if err := s.session.Receive(in.req); err != nil {
		return rejected(err)
	}
	return nil
}

// open begins the session. "Only the first request on a stream is guaranteed
// to carry the node identifier."
func (s *stream) open(node *xds.Node) {
	s.watch = s.server.watch(node)
	s.bell = s.watch.C()
	if node == nil {
		node = &noNode
	}
	s.info.open(s.rpc.Context(), node)
	limits := s.server.limits
	limits.Refused = func(t *xds.Type) bool { return s.server.refused.has(s.info.Node.ID, t.URL) }
	view, _ := s.watch.Next()
	s.session = protocol.NewSession(s.info.Variant, s.only, view, limits)
	if o := s.server.observer; o != nil {
		o.Opened(&s.info)
	}
}

func (s *stream) close(err error) {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.session == nil {
		return
	}
	s.watch.Close()
	if o := s.server.observer; o != nil {
		o.Closed(&s.info, err)
	}
}

// alarm returns a channel that is ready when a deadline has come.
func (s *stream) alarm() <-chan time.Time {
	next := s.leaveBy
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.session != nil {
		earlier(s.session.Deadline())
	}
	if s.sending {
		earlier(s.writeBy)
	}
	switch {
	case next.Equal(s.armed):
	case next.IsZero():
		s.timer.Stop()
	case s.timer == nil:
		s.timer = time.NewTimer(time.Until(next))
	default:
		s.timer.Reset(time.Until(next))
	}
	if s.armed = next; next.IsZero() {
		return nil
	}
	return s.timer.C
}

// expired returns the error that ends the stream if one of its own deadlines
// has passed. Those of the session are its business.
func (s *stream) expired(now time.Time) error {
	switch {
	case s.sending && !now.Before(s.writeBy):
		s.server.blocked.Add(1)
		return status.Errorf(codes.DeadlineExceeded, "the client has read nothing for %v", s.server.writeTimeout)
	case !s.leaveBy.IsZero() && !now.Before(s.leaveBy):
		return errDraining
	}
	return nil
}

// read receives requests until there are no more. It runs in a goroutine of its
// own; a request is handed over before the next is read, so that a flood stays
// with the client.
func (s *stream) read() {
	var m message
	for {
		var in input
		if in.err = s.rpc.RecvMsg(&m); in.err == nil {
			in.req, in.err = decode(&s.decoder, &m)
		}
		select {
		case s.inbox <- in:
		case <-s.rpc.Context().Done():
			return
		}
		if in.err != nil {
			return
		}
	}
}

// decode consumes m.
func decode(d *wire.Decoder, m *message) (xds.Request, error) {
	b := m.data.MaterializeToBuffer(mem.DefaultBufferPool())
	req, err := d.Decode(b.ReadOnlyData())
	b.Free()
	m.data.Free()
	m.data = nil
	if err != nil {
		return req, rejected(err)
	}
	return req, nil
}

// send writes a response. It runs in a goroutine of its own and touches nothing
// that changes.
func (s *stream) send(r *xds.Response) {
	s.sent <- s.rpc.SendMsg(s.server.encode(s.info.Variant, r))
}

func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(max(d, 1)))) }
