package server

import (
	"time"

	"google.golang.org/grpc/codes"
)

// firstTimeouts is how often the timeout of the first request is extended while the request arrives. With the default
// of 15 s, 32 MiB may take 5 minutes, which is 112 KB a second.
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
		s.lock()
		earlier(s.session.Deadline())
		s.unlock()
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
	earlier(s.quietUntil)
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

// disarm gives the timer back to the pool, if there is one.
func (s *stream) disarm() {
	if s.timer != nil {
		s.server.timers.give(s.timer)
		s.timer = nil
	}
}

// expired returns the error that ends the stream if one of its own deadlines has passed. The session handles its own
// deadlines.
func (s *stream) expired(now time.Time) error {
	if s.writing() && !now.Before(s.writeBy) {
		left := s.progress.left.Load()
		if left == s.left {
			return reject(tooSlow, codes.DeadlineExceeded, "the client has read nothing for %v", s.server.writeTimeout)
		}
		s.left, s.writeBy = left, now.Add(s.server.writeTimeout) // the client reads slowly
	}
	if f := s.silence; f != nil && !now.Before(f.by) {
		n := s.server.requestProgress(s.rpc.Context())
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

// writing reports whether sent data has not left yet.
func (s *stream) writing() bool { return s.sent != nil || !s.progress.done() }

func first(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
