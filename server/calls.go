package server

import (
	"context"

	"google.golang.org/grpc/codes"
)

// awaitRequest waits until read has received the request of a unary call. GRPC has no timeout for this. Until then the
// call counts as a silent stream, with the same limit and timeout.
func (s *Server) awaitRequest(ctx context.Context, read func() error) error {
	plain(ctx)
	lost := newNotices()
	seat := s.silent.enter(peerOf(ctx), lost)
	if seat == nil {
		s.logNoSeat(ctx, s.silent.full)
		return s.silent.full
	}
	defer s.silent.leave(seat)
	done := make(chan error, 1)
	go func() { done <- read() }() // the goroutine ends when gRPC ends the call
	err := readError(s.awaitArrival(ctx, done, lost))
	s.logRejection(ctx, &Stream{}, err)
	return err
}

// awaitArrival waits for a request. It returns an error if the request does not arrive in time or the seat is lost.
func (s *Server) awaitArrival(ctx context.Context, done <-chan error, lost notices) error {
	t := s.timers.take(s.firstTimeout)
	defer s.timers.give(t)
	had := 0
	for range firstTimeouts {
		select {
		case err := <-done:
			return err
		case l := <-lost:
			return l.why
		case <-t.C:
		}
		n := s.requestProgress(ctx)
		if n <= had {
			return reject(tooLate, codes.DeadlineExceeded, "no request came for %v", s.firstTimeout)
		}
		had = n
		t.Reset(s.firstTimeout)
	}
	return reject(tooLate, codes.DeadlineExceeded, "the request was not complete after %v", firstTimeouts*s.firstTimeout)
}
