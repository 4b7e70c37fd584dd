package server

import (
	"cmp"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/status"
)

// loop handles one event after the other. When it returns, gRPC cancels the context of the stream, which ends read and
// send.
//
// Each step runs in a new goroutine, so that its large stack is freed afterwards. An idle stream
// has two small stacks: the stack of this goroutine and the stack of read.
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
		if err := s.awaitStep(); err != nil {
			return err
		}
		s.lock()
		answered := s.answered(time.Time{})
		s.unlock()
		if s.leaving.done(time.Now(), answered, s.sent != nil) {
			return s.leaving.why
		}
		if s.ended && s.sent == nil && s.claim == nil {
			return nil // all responses are written
		}
	}
}

// awaitStep waits until the step is done, and returns the error that ends the stream. It collects notices that arrive
// meanwhile.
func (s *stream) awaitStep() error {
	var lost error
	// Applied later, because step may read leaving.
	drains := false
	var leave error
	for {
		n := <-s.notices
		switch n.what {
		case noticeLost:
			lost = n.why
		case noticeDrain:
			drains = true
		case noticeLeave:
			leave = n.why
		case noticeInspect:
			s.inspections.noticed()
		case noticePoke:
			s.stirred = true
			s.poked.Store(false)
		case noticeStepDone:
			if drains {
				s.startDrain()
			}
			if leave != nil {
				s.startLeaving(leave)
			}
			return cmp.Or(n.why, lost)
		}
	}
}

// startDrain makes the stream leave within the drain time.
func (s *stream) startDrain() {
	s.leaving.plan(time.Now().Add(jitter(s.server.drainTime)), errDraining, 0)
}

// startLeaving makes the stream leave now.
func (s *stream) startLeaving(why error) { s.leaving.plan(time.Now(), why, s.server.age.Grace) }

// await waits for the next event. It returns the request if the event is a request. The result
// nothing is true if the event needs no step. An error ends the stream.
func (s *stream) await() (req *message, nothing bool, err error) {
	if s.inspections.pending() || s.stirred {
		s.stirred = false
		return nil, false, nil // a notice came after the last step
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
		err = status.FromContextError(s.rpc.Context().Err()).Err()
	case req, more = <-inbox:
	case <-s.doorbell():
		if c := s.claim; c.waits() {
			c.turn, c.by = nil, time.Now().Add(placeTime)
		}
	case err = <-s.sent:
		nothing, err = s.written(err)
		return nil, nothing, err
	case <-fires:
		s.armed = time.Time{}
		err = s.expired(time.Now())
	case n := <-s.notices:
		switch n.what {
		case noticeLost:
			err = n.why
		case noticeDrain:
			s.startDrain()
		case noticeLeave:
			s.startLeaving(n.why)
		case noticeInspect:
			s.inspections.noticed()
		case noticePoke:
			s.poked.Store(false)
		}
	}
	switch {
	case more:
	case errors.Is(s.failure, io.EOF):
		s.inbox, s.ended = nil, true
	default:
		err = readError(s.failure)
	}
	return req, false, err
}

// written handles the end of a write. It reports whether no step is needed. A step during the write, such as one after the
// last request, has set moreToSend.
func (s *stream) written(err error) (nothing bool, _ error) {
	s.sent = nil
	if err != nil {
		err = s.unsent(err)
	}
	return !s.moreToSend && len(s.queue) == 0, err
}

// unsent returns the error of a response that could not be sent. If gRPC cannot read a request,
// gRPC ends the stream, and sending fails as well. Then the error of the request is the cause.
func (s *stream) unsent(err error) error {
	if s.inbox == nil || s.rpc.Context().Err() == nil {
		return err
	}
	for m := range s.inbox { // read ends with the stream
		s.server.countWhole(-m.data.Len())
	}
	if why, ok := errors.AsType[*rejection](readError(s.failure)); ok {
		return why
	}
	return err
}

// doorbell returns the channel that signals the next step: the turn of the stream if the stream
// waits for its turn, and otherwise the changes of the watch. The channel is nil while a change
// cannot make the stream send anything. The next step handles such changes.
func (s *stream) doorbell() <-chan struct{} {
	switch {
	case s.claim.waits():
		return s.claim.turn
	case s.sent != nil || s.leaving.begun || !s.quietUntil.IsZero():
		return nil
	}
	return s.bell
}
