package server

import (
	"context"

	"google.golang.org/grpc/codes"
)

// request returns when read has read the request of a unary call, for which gRPC would wait
// for ever. Until it has come the call is one of the silent streams, and ends as they do.
func (s *Server) request(ctx context.Context, read func() error) error {
	plain(ctx)
	lost := newLoss()
	seat := s.silent.enter(peerOf(ctx), lost)
	if seat == nil {
		s.crowded(ctx, s.silent.full)
		return s.silent.full
	}
	defer s.silent.leave(seat)
	done := make(chan error, 1)
	go func() { done <- read() }() // gRPC ends it when the call ends
	err := unread(s.comes(ctx, done, lost))
	s.rejects(ctx, &Stream{}, err)
	return err
}

// comes returns when a request is done, or with an error when it has to be given up.
func (s *Server) comes(ctx context.Context, done <-chan error, lost loss) error {
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
		n := s.coming(ctx)
		if n <= had {
			return reject(tooLate, codes.DeadlineExceeded, "no request came for %v", s.firstTimeout)
		}
		had = n
		t.Reset(s.firstTimeout)
	}
	return reject(tooLate, codes.DeadlineExceeded, "the request was not complete after %v", firstTimeouts*s.firstTimeout)
}
