package server

import (
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// step handles a request, if there is one, and does whatever is due. What is to be
// sent then it sends: it touches nothing that changes by then.
func (s *stream) step(req *message) {
	growStack()
	var r *xds.Response
	err := s.server.guarded(&s.info, func() (err error) {
		switch {
		case req != nil:
			err = s.receive(req)
		case s.first != nil:
			err = s.begin()
		}
		switch {
		case err != nil:
		case s.session != nil:
			r, err = s.settle()
		default:
			s.asks.answer(func(func(*protocol.Session)) error { return ErrNotBegun })
		}
		return err
	})
	sent := s.sent
	s.lost <- notice{err, stepped}
	if r != nil {
		s.send(r, sent)
	}
}

// growStack makes the stack of a new goroutine as large as a step needs. It would grow later
// all the same, and then each frame on it had to be moved: a tenth of what a push costs.
//
//go:noinline
func growStack() {
	var room [stepStack]byte
	runtime.KeepAlive(&room)
}

// stepStack is more than a step needs whose session has one change of a few names, in bytes.
const stepStack = 8 << 10

// settle brings the session up to date, carries out what it wants done and
// lets go of what an idle stream must not hold. It returns what is to be sent now.
func (s *stream) settle() (next *xds.Response, _ error) {
	if err := s.refresh(); err != nil {
		return nil, err
	}
	for i := range s.session.Interests() {
		s.held += weight(i.Added) - weight(i.Removed)
		s.watch.Interested(i.Type, i.Wildcard, i.Added, i.Removed)
		if s.told != nil {
			s.told.interested(i)
		}
	}
	names, bytes := s.session.GivenUp() // and not told yet what becomes of them
	if held, max := s.held+bytes+64*names, s.server.bounds.Held; held > max {
		return nil, exceeds(tooMany, limitHeld, codes.ResourceExhausted, "limit exceeded: names and a node of %d bytes on one stream, more than %d", held, max)
	} else if err := s.charge(held); err != nil {
		return nil, err
	}
	if s.missed = s.sent != nil || len(s.queue) > 0; !s.missed && !s.claim.waits() && !s.leaving.begun {
		for r := range s.session.Responses() {
			s.queue = append(s.queue, r)
		}
		s.tell()
	}
	if s.deaf = s.session.Waits(); !s.deaf.After(time.Now()) {
		s.deaf = time.Time{}
	}
	s.asks.answer(func(f func(*protocol.Session)) error {
		return s.server.guarded(&s.info, func() error { f(s.session); return nil })
	})
	s.session.Release()
	if s.sent == nil && len(s.queue) > 0 {
		next = s.queue[0]
		if s.queue = s.queue[1:]; len(s.queue) == 0 {
			s.queue = nil
		}
		s.sent, s.writeBy = make(chan error, 1), time.Now().Add(s.server.writeTimeout)
		s.left = s.progress.left.Load()
	}
	if c := s.claim; c != nil && s.sent == nil && !c.waits() && s.answered(c.since) {
		s.leave()
	}
	return next, nil
}

// refresh tells the session the time and the newest view, which it wants to
// know before each input.
func (s *stream) refresh() error {
	s.session.Advance(time.Now())
	view, touched, err := s.watch.Next()
	if err != nil {
		return deny(err)
	}
	if view == nil { // it sees other groups than before, and nobody knows what is in them
		return errNotKnown
	}
	s.session.Change(view, touched)
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
		if e.Kind == protocol.Acked && !e.Refuses {
			h, ok := s.watch.(Holding)
			e.Refuses = ok && h.Holds(e.Type)
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

// charge counts what the stream holds by names among what all do. An error ends it.
func (s *stream) charge(held int) error {
	if held == s.charged {
		return nil
	}
	s.charged = held
	var err error
	s.load, err = s.server.held.set(s.load, s.info.Peer, s.lost, held)
	return err
}

// queueUp gets the stream a ticket, unless it has one.
func (s *stream) queueUp() {
	if s.claim != nil {
		return
	}
	t, now := s.server.first.enter(s.info.Peer, s.line()), time.Now()
	s.claim = &claim{ticket: t, turn: t.turn, by: now.Add(placeTime), since: now}
	if s.claim.waits() {
		s.claim.by = now.Add(queueTime)
		s.server.logQueues()
	}
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
	if s.claim != nil {
		s.server.first.leave(s.claim.ticket)
	}
	s.claim = nil
}

// send writes a response, beside the loop.
func (s *stream) send(r *xds.Response, sent chan<- error) {
	sent <- s.server.guarded(&s.info, func() error {
		m := s.progress.marked(s.server.encode(s.info.Variant, r))
		defer m.data.Free()
		return s.rpc.SendMsg(m)
	})
}
