package server

import (
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// step handles a request, if req is not nil, and does all other work that is due. Then it sends one
// response, if one is due. To send, it uses only fields that do not change meanwhile.
func (s *stream) step(req *message) {
	growStack()
	var r *xds.Response
	err := s.server.guarded(&s.info, func() (err error) {
		defer s.logUnlocked()
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
			s.inspections.answer(func(func(*protocol.Session)) error { return ErrNotBegun })
		}
		return err
	})
	sent := s.sent
	s.notices <- notice{err, noticeStepDone}
	if r != nil {
		s.send(r, sent)
	}
}

// growStack grows the stack of a new goroutine to the size that a step needs. At this time the
// stack has no frames that must be copied. This saves a tenth of the cost of a push.
//
//go:noinline
func growStack() {
	var room [stepStack]byte
	runtime.KeepAlive(&room)
}

// stepStack is enough for a step with one change of a few names, in bytes.
const stepStack = 8 << 10

// settle brings the session up to date, does its pending work, and frees memory that an idle stream need not keep. It
// returns the response to send now.
func (s *stream) settle() (next *xds.Response, _ error) {
	if err := s.refresh(); err != nil {
		return nil, err
	}
	for i := range s.session.Interests() {
		s.held += weight(i.Added) - weight(i.Removed)
		s.watch.Interested(i.Type, i.Wildcard, i.Added, i.Removed)
		if s.history != nil {
			s.history.interested(i)
		}
	}
	names, bytes := s.session.GivenUp() // unsubscribed names whose removal is not sent yet
	if held, max := s.held+bytes+64*names, s.server.bounds.Held; held > max {
		return nil, limitError(tooMany, limitHeld, codes.ResourceExhausted, "limit exceeded: names and a node of %d bytes on one stream, more than %d", held, max)
	} else if err := s.charge(held); err != nil {
		return nil, err
	}
	s.moreToSend = s.sent != nil || len(s.queue) > 0
	if !s.moreToSend && !s.claim.waits() && !s.leaving.begun {
		for r := range s.session.Responses() {
			s.queue = append(s.queue, r)
		}
		s.handleEvents()
		if err := s.session.Err(); err != nil {
			return nil, rejected(err)
		}
	}
	s.quietUntil = s.session.Waits()
	if !s.quietUntil.After(time.Now()) {
		s.quietUntil = time.Time{}
	}
	s.inspections.answer(func(f func(*protocol.Session)) error {
		return s.server.guarded(&s.info, func() error { f(s.session); return nil })
	})
	s.rest()
	if s.sent == nil && len(s.queue) > 0 {
		next = s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1) // frees the response after its write
		s.sent, s.writeBy = make(chan error, 1), time.Now().Add(s.server.writeTimeout)
		s.left = s.progress.left.Load()
	}
	if c := s.claim; c != nil && !c.waits() && s.answered(c.since) {
		s.leave()
	}
	return next, nil
}

// rest ends the work with an up-to-date session.
func (s *stream) rest() {
	if !s.shares() {
		s.session.Release()
		return
	}
	s.unit.poke(s.unit.siblings.EndStep(s.session))
}

// refresh tells the session the current time and the newest view. The session needs both before each input. The stream
// then has the lock of its unit.
func (s *stream) refresh() error {
	s.lock()
	if s.shares() {
		return s.refreshAll()
	}
	s.session.Advance(time.Now())
	view, touched, err := s.watch.Next()
	if err != nil {
		return deny(err)
	}
	if view == nil { // the node now sees a group whose content is not known
		return errNotKnown
	}
	s.session.Change(view, touched)
	return nil
}

// handleEvents handles the events of the session. The first request of a type needs a ticket for its answer.
func (s *stream) handleEvents() {
	for e := range s.session.Events() {
		if e.Kind == protocol.Opened {
			s.types++
			s.takeTicket()
		}
		if e.Kind == protocol.Acked || e.Kind == protocol.Nacked {
			s.server.seats.settle(s.seat)
		}
		if s.history != nil {
			s.remember(e)
		}
		var later func(func())
		if s.locked {
			later = s.later
		}
		s.server.event(&s.info, e, later)
	}
}

// remember records which versions the client may state after a reconnect.
func (s *stream) remember(e protocol.Event) {
	switch e.Kind {
	case protocol.Subscribed:
		s.history.subscribed(e)
	case protocol.Sent:
		i := slices.IndexFunc(s.queue, func(r *xds.Response) bool { return r.Nonce == e.Nonce })
		s.history.sent(e, s.queue[i].Changes)
	case protocol.Acked:
		s.history.acked(e)
	}
}

// recall returns the resources of a client that states a version. The argument table is the content
// of the table with this version, or nil.
func (s *stream) recall(t *xds.Type, version string, table *protocol.World) *protocol.World {
	return s.history.recall(time.Now(), t, version, table)
}

// charge counts the memory of the stream's names. An error ends the stream.
func (s *stream) charge(held int) error {
	if held == s.charged {
		return nil
	}
	s.charged = held
	var err error
	s.load, err = s.server.held.set(s.load, s.info.Peer, s.notices, held)
	return err
}

// takeTicket takes a ticket for the first answers, unless the stream already has a ticket.
func (s *stream) takeTicket() {
	if s.claim != nil {
		return
	}
	t, now := s.server.first.enter(s.info.Peer, s.queueKey()), time.Now()
	s.claim = &claim{ticket: t, turn: t.turn, by: now.Add(placeTime), since: now}
	if s.claim.waits() {
		s.claim.by = now.Add(queueTime)
		s.later(s.server.logQueues)
	}
}

// queueKey returns the key of the stream's tickets in the queue: its node. Each stream without a node id has its own key.
func (s *stream) queueKey() any {
	if id := s.info.Node.ID; id != "" {
		return id
	}
	return s.info.ID
}

// answered reports whether the client has answered all responses since a time.
func (s *stream) answered(since time.Time) bool {
	return s.session == nil || s.session.Answered(since)
}

// leave gives back the ticket, if the stream has one.
func (s *stream) leave() {
	if s.claim != nil {
		s.server.first.leave(s.claim.ticket)
	}
	s.claim = nil
}

// send writes a response while the loop continues.
func (s *stream) send(r *xds.Response, sent chan<- error) {
	sent <- s.server.guarded(&s.info, func() error {
		m := s.progress.marked(s.server.encode(s.info.Variant, r))
		defer m.data.Free()
		return s.rpc.SendMsg(m)
	})
}
