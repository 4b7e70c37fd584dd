package server

import (
	"log/slog"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/limit/rate"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// read receives requests until there are no more. It runs in a goroutine of its
// own; a request is handed over before the next is read, so that a flood stays
// with the client.
func (s *stream) read() {
	defer close(s.inbox)
	if p := panics.Do(s.requests); p != nil {
		s.server.panicked(&Stream{ID: s.info.ID}, p) // the rest is not ours to read
		s.failure = errInternal
	}
}

// requests waits for the rates after a request, before the next is read: what was read does
// not wait, so that it takes no room, and the first one of a stream never does.
func (s *stream) requests() {
	var own rate.Pace
	from := peerOf(s.rpc.Context())
	rushed := false
	all := s.server.rate(from)
	for {
		m := new(message)
		if s.failure = s.server.readable(m, s.rpc.RecvMsg(m)); s.failure != nil {
			return
		}
		n := m.data.Len()
		s.server.kept(n)
		now := time.Now()
		wait := own.Take(now, counts(n), s.server.bounds.Rate)
		m.late = wait > 0
		if w := all.Take(now, counts(n)); w > 0 {
			if wait = max(wait, w); !rushed {
				rushed = true
				s.server.rush(from)
			}
		}
		select {
		case s.inbox <- m:
		case <-s.rpc.Context().Done():
			s.server.kept(-n)
			s.failure = status.FromContextError(s.rpc.Context().Err()).Err()
			return
		}
		if wait -= time.Since(now); wait > 0 {
			pause(wait, s.rpc.Context().Done(), nil)
		}
	}
}

// receive hands a request to the session.
func (s *stream) receive(m *message) error {
	defer s.server.kept(-m.data.Len()) // as large as it was when it was read
	if m.late && !s.hurried {
		s.hurry()
	}
	s.speaks()
	req, err := decode(&s.decoder, m)
	if err != nil {
		return rejected(err)
	}
	if s.session == nil {
		if s.also != nil && s.also.Is(req.Type) {
			s.info.Type = s.also
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
	if err := s.refresh(); err != nil {
		return err
	}
	return s.hand(req)
}

// speaks ends the stream's silence.
func (s *stream) speaks() {
	if s.silence != nil {
		s.server.silent.leave(s.silence.seat)
		s.silence = nil
	}
}

// decode consumes m.
func decode(d *wire.Decoder, m *message) (xds.Request, error) {
	b := m.data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	m.data.Free()
	return d.Decode(b.ReadOnlyData())
}

// hurry notes, once, that the client sends too many requests.
func (s *stream) hurry() {
	s.hurried = true
	s.server.tally[tooFast].Add(1)
	s.server.complain(s.rpc.Context(), &s.info, "client sends requests too fast: they wait", slog.Int("per_second", s.server.bounds.Rate), limitAttr(limits[tooFast]))
}

// hand hands a request to a session that is up to date.
func (s *stream) hand(req xds.Request) error {
	if err := s.catchUp(req); err != nil {
		return err
	}
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

// catchUp returns when the source is as new as what a client states to have may be.
func (s *stream) catchUp(req xds.Request) error {
	if s.server.newest == nil {
		return nil
	}
	brings, known := s.session.Brings(req)
	if !brings {
		return nil
	}
	if err := s.server.newest(s.rpc.Context(), known); err != nil {
		if s.rpc.Context().Err() != nil {
			return status.FromContextError(s.rpc.Context().Err()).Err()
		}
		return errBehind
	}
	return s.refresh()
}
