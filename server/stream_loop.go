package server

import (
	"cmp"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/status"
)

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
		if err := s.stepped(); err != nil {
			return err
		}
		if s.leaving.over(time.Now(), s.answered(time.Time{}), s.sent != nil) {
			return s.leaving.why
		}
		if s.ended && s.sent == nil && s.claim == nil {
			return nil // after what was due has left
		}
	}
}

// stepped returns when the step is over, with the error that ends the stream. What was taken
// away meanwhile ends it, too.
func (s *stream) stepped() error {
	var lost error
	leaves, shed := false, false // step may be looking
	for n := range s.lost {
		switch n.what {
		case taken:
			lost = n.why
		case drains:
			leaves = true
		case sheds:
			shed = true
		case asked:
			s.asks.woken()
		case stepped:
			if leaves {
				s.drains()
			}
			if shed {
				s.sheds()
			}
			return cmp.Or(n.why, lost)
		}
	}
	return lost
}

// drains has the stream leave within the drain time.
func (s *stream) drains() {
	s.leaving.sooner(time.Now().Add(jitter(s.server.drainTime)), errDraining, 0)
}

// sheds has the stream leave now.
func (s *stream) sheds() { s.leaving.sooner(time.Now(), errSurplus, s.server.age.Grace) }

// await returns when there is something to do: for a request, if it returns one, or
// nothing at all after all. An error ends the stream.
func (s *stream) await() (req *message, nothing bool, err error) {
	if s.asks.open() {
		return nil, false, nil // they came after the last step had answered others
	}
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
		if c := s.claim; c.waits() {
			c.turn, c.by = nil, time.Now().Add(placeTime)
		}
	case err := <-s.sent:
		nothing, err := s.written(err)
		return nil, nothing, err
	case <-fires:
		s.armed = time.Time{}
		err = s.expired(time.Now())
	case n := <-s.lost:
		switch n.what {
		case taken:
			err = n.why
		case drains:
			s.drains()
		case sheds:
			s.sheds()
		case asked:
			s.asks.woken()
		}
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
	return !s.missed && len(s.queue) == 0 && s.claim == nil && !s.ended && !s.leaving.begun, nil
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
	case s.claim.waits():
		return s.claim.turn
	case s.sent != nil || s.leaving.begun || !s.deaf.IsZero():
		return nil
	}
	return s.bell
}
