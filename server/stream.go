package server

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/guard"
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
	only    *xds.Type // nil: aggregated
	also    *xds.Type // what only becomes if the first request wants it; nil: nothing
	decoder wire.Decoder

	inbox   chan *message // from read, which closes it
	failure error         // of read; set before it closes inbox
	ended   bool          // the client sends no more

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
	missed  bool            // the session may have more to say

	progress progress // of what was sent

	// From the first request of a type until all that was due is written, the
	// stream has a ticket, and says nothing before its turn.
	ticket *ticket
	turn   <-chan struct{} // of the ticket; nil: it is not waited for
	turnBy time.Time       // when it is given up, though its turn has not come or answers are open
	since  time.Time       // when it was taken

	firstBy time.Time // when the first request must have come; zero: it has
	coming  int       // how much had come on the connection when that was set

	seat    *seat           // among all streams
	silence *seat           // among those on which no request has come; nil: one has
	lost    *loss           // of one of them
	drain   <-chan struct{} // nil when draining
	leaving leave

	held    int  // bytes, of names
	charged int  // bytes that are counted among those of all streams
	types   int  // that were opened
	hurried bool // the client sent more requests than are taken

	timer *time.Timer // nil: no deadline
	armed time.Time   // when timer fires

	stepped chan error // from step

	nodeChanged bool
	known       bool // of the clients that are connected
	opened      bool // the observer was told so
}

// serve runs a stream until it ends.
func (s *Server) serve(rpc grpc.ServerStream, v xds.Variant, only, also *xds.Type) error {
	lost := newLoss()
	seat, silence, err := s.admit(rpc.Context(), lost)
	if err != nil {
		return s.guarded(&Stream{Type: only}, func() error { s.crowded(rpc.Context(), err); return err })
	}
	st := &stream{
		server: s, rpc: rpc, only: only, also: also, seat: seat, silence: silence, lost: lost, drain: s.drain.began, inbox: make(chan *message), stepped: make(chan error),
		info:    Stream{Variant: v, Type: only},
		decoder: s.decoder(v),
	}
	defer func() { s.dismiss(st.seat, st.silence) }()
	plain(rpc.Context())
	st.info.ID = s.streams.Add(1)
	st.firstBy = time.Now().Add(s.firstTimeout)
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

// loop handles one event after the other. When it returns, gRPC cancels the
// stream's context, which ends reading and sending.
//
// The work is done by a goroutine that ends with it, and so does its deep
// stack: an idle stream keeps two small ones, this and read's.
func (s *stream) loop() error {
	for {
		req, nothing, err := s.await()
		if err != nil {
			return err
		}
		if nothing {
			continue
		}
		go s.step(req)
		if err := <-s.stepped; err != nil {
			return err
		}
		if s.leaving.over(time.Now(), s.answered(time.Time{}), s.sent != nil) {
			return s.leaving.why
		}
		if s.ended && s.sent == nil && s.ticket == nil {
			return nil // after what was due has left
		}
	}
}

// await returns when there is something to do: for a request, if it returns one, or
// nothing at all after all. An error ends the stream.
func (s *stream) await() (req *message, nothing bool, err error) {
	s.alarm()
	var fires <-chan time.Time
	if s.timer != nil {
		fires = s.timer.C
	}
	more := true
	inbox, gone := s.inbox, (<-chan struct{})(nil)
	if s.first != nil {
		inbox, gone = nil, s.rpc.Context().Done()
	}
	select {
	case <-gone:
		return nil, false, status.FromContextError(s.rpc.Context().Err()).Err()
	case req, more = <-inbox:
	case <-s.doorbell():
		if s.turn != nil {
			s.turn, s.turnBy = nil, time.Now().Add(placeTime)
		}
	case err := <-s.sent:
		nothing, err := s.written(err)
		return nil, nothing, err
	case <-fires:
		s.armed = time.Time{}
		err = s.expired(time.Now())
	case <-s.lost.told:
		err = s.lost.why
	case <-s.drain:
		s.drain = nil
		s.leaving.sooner(time.Now().Add(jitter(s.server.drainTime)), errDraining, 0)
	}
	if !more {
		if !errors.Is(s.failure, io.EOF) {
			return nil, false, unread(s.failure)
		}
		s.inbox, s.ended = nil, true
	}
	return req, false, err
}

// written notes that a response has left, or why it has not, and reports whether
// nothing happened meanwhile.
func (s *stream) written(err error) (nothing bool, _ error) {
	if s.sent = nil; err != nil {
		return false, s.unsent(err)
	}
	return !s.missed && len(s.queue) == 0 && s.ticket == nil && !s.ended && !s.leaving.begun, nil
}

// unsent returns why a response could not be sent: gRPC ends a stream by itself when it
// cannot read a request, and then no response leaves either.
func (s *stream) unsent(err error) error {
	if s.inbox == nil || s.rpc.Context().Err() == nil {
		return err
	}
	for m := range s.inbox { // read ends with the stream
		s.server.kept(-m.data.Len())
	}
	if why, ok := errors.AsType[*rejection](unread(s.failure)); ok {
		return why
	}
	return err
}

// doorbell returns what rings when something has changed, or the stream's turn has come
// if it waits for that; nil while no change can make it say anything: what changes
// meanwhile is seen at the next step.
func (s *stream) doorbell() <-chan struct{} {
	switch {
	case s.turn != nil:
		return s.turn
	case s.sent != nil || s.leaving.begun || !s.deaf.IsZero():
		return nil
	}
	return s.bell
}

// step handles a request, if there is one, and does whatever is due. What is to be
// sent then it sends: it touches nothing that changes by then.
func (s *stream) step(req *message) {
	var r *xds.Response
	err := s.server.guarded(&s.info, func() (err error) {
		switch {
		case req != nil:
			err = s.receive(req)
		case s.first != nil:
			err = s.begin()
		}
		if err == nil && s.session != nil {
			r, err = s.settle()
		}
		return err
	})
	sent := s.sent
	s.stepped <- err
	if r != nil {
		s.send(r, sent)
	}
}

// settle brings the session up to date, carries out what it wants done and
// lets go of what an idle stream must not hold. It returns what is to be sent now.
func (s *stream) settle() (next *xds.Response, _ error) {
	s.refresh()
	for i := range s.session.Interests() {
		s.held += weight(i.Added) - weight(i.Removed)
		s.watch.Interested(i.Type, i.Wildcard, i.Added, i.Removed)
		if s.told != nil {
			s.told.interested(i)
		}
	}
	names, bytes := s.session.GivenUp() // and not told yet what becomes of them
	if held, max := s.held+bytes+64*names, s.server.bounds.Held; held > max {
		return nil, reject(tooMany, codes.ResourceExhausted, "limit exceeded: names of %d bytes on one stream, more than %d", held, max)
	} else if err := s.charge(held); err != nil {
		return nil, err
	}
	if s.missed = s.sent != nil || len(s.queue) > 0; !s.missed && s.turn == nil && !s.leaving.begun {
		for r := range s.session.Responses() {
			s.queue = append(s.queue, r)
		}
		s.tell()
	}
	if s.deaf = s.session.Waits(); !s.deaf.After(time.Now()) {
		s.deaf = time.Time{}
	}
	s.session.Release()
	if s.sent == nil && len(s.queue) > 0 {
		next = s.queue[0]
		if s.queue = s.queue[1:]; len(s.queue) == 0 {
			s.queue = nil
		}
		s.sent, s.writeBy = make(chan error, 1), time.Now().Add(s.server.writeTimeout)
		s.left = s.progress.left.Load()
	}
	if s.sent == nil && s.turn == nil && s.answered(s.since) {
		s.leave()
	}
	return next, nil
}

// charge counts what the stream holds by names among what all do. When that is too much,
// who wants to hold more ends.
func (s *stream) charge(held int) error {
	more := held - s.charged
	if more == 0 {
		return nil
	}
	s.charged = held
	all, max := s.server.held.Add(int64(more)), int64(s.server.bounds.HeldInAll)
	if more > 0 && max > 0 && all > max {
		return reject(tooMany, codes.ResourceExhausted, "limit exceeded: names of %d bytes on all streams, more than %d", all, max)
	}
	return nil
}

// tell passes on what the session has to tell. The first request of a type is
// answered in turn with those of other streams.
func (s *stream) tell() {
	for e := range s.session.Events() {
		if e.Kind == protocol.Opened {
			s.types++
			s.queueUp()
		}
		if s.told != nil {
			s.remember(e)
		}
		s.server.event(&s.info, e)
	}
}

// remember notes what the client may state when it comes back.
func (s *stream) remember(e protocol.Event) {
	switch e.Kind {
	case protocol.Subscribed:
		s.told.subscribed(e)
	case protocol.Sent:
		i := slices.IndexFunc(s.queue, func(r *xds.Response) bool { return r.Nonce == e.Nonce })
		s.told.sent(time.Now(), e, s.queue[i].Changes)
	case protocol.Acked:
		s.told.acked(e)
	}
}

// recall returns what the client has that states a version; table is what the table
// of that version has.
func (s *stream) recall(t *xds.Type, version string, table *protocol.World) *protocol.World {
	return s.told.recall(time.Now(), t, version, table)
}

// queueUp gets the stream a ticket, unless it has one.
func (s *stream) queueUp() {
	if s.ticket != nil {
		return
	}
	s.ticket, s.since = s.server.first.enter(s.info.Peer, s.line()), time.Now()
	if s.turn = s.ticket.turn; s.turn == nil {
		s.turnBy = time.Now().Add(placeTime)
		return
	}
	s.turnBy = time.Now().Add(queueTime)
	s.server.tally[mustWait].Add(1)
}

// line is where the stream's tickets wait: with those of its node. Nobody knows
// whether streams without a node are of one.
func (s *stream) line() any {
	if id := s.info.Node.ID; id != "" {
		return id
	}
	return s.info.ID
}

// answered reports whether the client has answered what it was told since a time.
func (s *stream) answered(since time.Time) bool {
	return s.session == nil || s.session.Answered(since)
}

// leave gives up the ticket, if there is one.
func (s *stream) leave() {
	if s.ticket != nil {
		s.server.first.leave(s.ticket)
	}
	s.ticket, s.turn, s.turnBy = nil, nil, time.Time{}
}

// refresh tells the session the time and the newest view, which it wants to
// know before each input.
func (s *stream) refresh() {
	s.session.Advance(time.Now())
	view, touched := s.watch.Next()
	s.session.Change(view, touched)
}

// receive hands a request to the session.
func (s *stream) receive(m *message) error {
	defer s.server.kept(-m.data.Len()) // as large as it was when it was read
	if m.late && !s.hurried {
		s.hurry()
	}
	s.firstBy = time.Time{}
	if s.silence != nil {
		s.server.silent.leave(s.silence)
		s.silence = nil
	}
	req, err := decode(&s.decoder, m)
	if err != nil {
		return rejected(err)
	}
	if s.session == nil {
		if s.also != nil && s.also.Is(req.Type) {
			s.only, s.info.Type = s.also, s.also
		}
		if err := s.open(req.Node); err != nil {
			return err
		}
		first := req // so that others need not live on the heap
		s.first = &first
		return s.begin()
	}
	if req.Node != nil {
		s.nodeChange(req.Node)
	}
	s.refresh()
	return s.hand(req)
}

// hurry notes, once, that the client sends too many requests.
func (s *stream) hurry() {
	s.hurried = true
	s.server.tally[tooFast].Add(1)
	s.server.complain(s.rpc.Context(), &s.info, "client sends more requests than are taken: they wait", slog.Int("per_second", s.server.bounds.Rate))
}

// hand hands a request to a session that is up to date.
func (s *stream) hand(req xds.Request) error {
	if err := s.session.Receive(req); err != nil {
		return rejected(err)
	}
	types := s.types
	s.tell()
	if s.types > types { // what a client states at first may be kept until it is up to date
		for _, v := range req.Initial {
			s.held += len(v.Name) + len(v.Version)
		}
	}
	return nil
}

// absentKey is the key in a node's metadata by which it says how it wants to be
// told of names that do not exist. "resource" is how an older version of the
// protocol has it: "the server will send a Resource whose name field matches the
// name that the client subscribed to and whose resource field is unset".
const absentKey = "xds.absent"

// open begins to watch. "Only the first request on a stream is guaranteed to carry
// the node identifier."
func (s *stream) open(node *xds.Node) error {
	limits := s.server.limits
	if node != nil && len(node.ID) > limits.MaxNameLen { // which is remembered beyond the stream
		return reject(tooLarge, codes.ResourceExhausted, "limit exceeded: a node id of %d bytes, more than %d", len(node.ID), limits.MaxNameLen)
	}
	s.watch = s.server.watch(node)
	s.bell = s.watch.C()
	if node == nil {
		node = &noNode
	}
	if err := s.server.seats.name(s.seat, node.ID); err != nil {
		return err
	}
	s.info.open(s.rpc.Context(), node)
	s.known = true
	s.server.logConnected(&s.info)
	if o := s.server.observer; o != nil {
		s.opened = true
		o.Opened(&s.info)
	}
	return nil
}

// begin begins the session, if it is known what the node may see.
func (s *stream) begin() error {
	view, _ := s.watch.Next()
	if view == nil {
		s.server.logWaits(&s.info)
		return nil
	}
	node, limits := s.info.Node, s.server.limits
	limits.Bodyless = wire.Metadata(node.Metadata, absentKey) == "resource"
	limits.Refused = func(t *xds.Type) bool { return s.server.refused.has(s.info.Node.ID, t.URL) }
	if w, ok := s.watch.(Recalling); ok {
		limits.Recent = w.Recent
	}
	if s.info.Variant == xds.SotW {
		s.told = &account{told: s.server.told, node: node.ID}
		limits.Told = s.recall
	}
	limits.Spread = s.info.ID
	s.session = protocol.NewSession(s.info.Variant, s.only, view, limits)
	req := *s.first
	s.first = nil
	s.refresh()
	return s.hand(req)
}

// close gives back all that the stream has, and returns what its client is told:
// err, unless that is nil and something panics.
func (s *stream) close(err error) error {
	s.disarm()
	s.leave()
	_ = s.charge(0)
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

// alarm sets the timer to the next deadline.
func (s *stream) alarm() {
	next := s.leaving.deadline(time.Now())
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.session != nil {
		earlier(s.session.Deadline())
	}
	if s.writing() {
		earlier(s.writeBy)
	}
	earlier(s.firstBy)
	earlier(s.turnBy)
	earlier(s.deaf)
	switch {
	case next.IsZero():
		s.disarm()
	case s.timer == nil:
		s.timer = s.server.timers.take(time.Until(next))
	case !next.Equal(s.armed):
		s.timer.Reset(time.Until(next))
	}
	s.armed = next
}

// writing reports whether something of what was sent has not left yet.
func (s *stream) writing() bool { return s.sent != nil || !s.progress.done() }

// disarm gives the timer back, if there is one.
func (s *stream) disarm() {
	if s.timer != nil {
		s.server.timers.give(s.timer)
		s.timer = nil
	}
}

// expired returns the error that ends the stream if one of its own deadlines
// has passed. Those of the session are its business.
func (s *stream) expired(now time.Time) error {
	if s.writing() && !now.Before(s.writeBy) {
		left := s.progress.left.Load()
		if left == s.left {
			return reject(tooSlow, codes.DeadlineExceeded, "the client has read nothing for %v", s.server.writeTimeout)
		}
		s.left, s.writeBy = left, now.Add(s.server.writeTimeout) // it reads, if slowly
	}
	if !s.firstBy.IsZero() && !now.Before(s.firstBy) {
		n := s.server.coming(s.rpc.Context())
		if n <= s.coming {
			return reject(tooLate, codes.DeadlineExceeded, "no request came for %v", s.server.firstTimeout)
		}
		s.coming, s.firstBy = n, now.Add(s.server.firstTimeout)
	}
	s.leaving.advance(now)
	if !s.turnBy.IsZero() && !now.Before(s.turnBy) {
		s.leave()
	}
	return nil
}

// read receives requests until there are no more. It runs in a goroutine of its
// own; a request is handed over before the next is read, so that a flood stays
// with the client.
func (s *stream) read() {
	defer close(s.inbox)
	if p := guard.Do(s.requests); p != nil {
		s.server.panicked(&Stream{ID: s.info.ID}, p) // the rest is not ours to read
		s.failure = errInternal
	}
}

func (s *stream) requests() {
	var p pace
	for {
		m := new(message)
		if s.failure = s.rpc.RecvMsg(m); s.failure != nil {
			return
		}
		n := m.data.Len()
		s.server.kept(n)
		if wait := p.take(time.Now(), n, s.server.bounds.Rate); wait > 0 {
			m.late = true
			select {
			case <-time.After(wait):
			case <-s.rpc.Context().Done():
			}
		}
		select {
		case s.inbox <- m:
		case <-s.rpc.Context().Done():
			s.server.kept(-n)
			s.failure = status.FromContextError(s.rpc.Context().Err()).Err()
			return
		}
	}
}

// decode consumes m.
func decode(d *wire.Decoder, m *message) (xds.Request, error) {
	b := m.data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	m.data.Free()
	return d.Decode(b.ReadOnlyData())
}

// send writes a response, beside the loop.
func (s *stream) send(r *xds.Response, sent chan<- error) {
	sent <- s.server.guarded(&s.info, func() error {
		m := s.progress.marked(s.server.encode(s.info.Variant, r))
		defer m.data.Free()
		return s.rpc.SendMsg(m)
	})
}

func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(max(d, 1)))) }
