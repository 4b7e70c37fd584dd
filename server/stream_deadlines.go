package server

import (
	"time"

	"google.golang.org/grpc/codes"
)

// firstTimeouts is how often the time for a first request may pass while that comes: by
// default 5 minutes, in which 32 MiB come at 112 KB a second.
const firstTimeouts = 20

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
	if s.silence != nil {
		earlier(s.silence.by)
	}
	if s.claim != nil {
		earlier(s.claim.by)
	}
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
	if f := s.silence; f != nil && !now.Before(f.by) {
		n := s.server.coming(s.rpc.Context())
		switch {
		case n <= f.coming:
			return reject(tooLate, codes.DeadlineExceeded, "no request came for %v", s.server.firstTimeout)
		case !now.Before(f.last):
			return reject(tooLate, codes.DeadlineExceeded, "the first request was not complete after %v", firstTimeouts*s.server.firstTimeout)
		}
		f.coming, f.by = n, first(now.Add(s.server.firstTimeout), f.last)
	}
	s.leaving.advance(now)
	if s.claim != nil && !now.Before(s.claim.by) {
		s.leave()
	}
	return nil
}

// writing reports whether something of what was sent has not left yet.
func (s *stream) writing() bool { return s.sent != nil || !s.progress.done() }

func first(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
