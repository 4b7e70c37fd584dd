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

// read receives requests until the stream ends. It runs in its own goroutine. It hands a request
// over before it reads the next request, so a flood of requests stays with the client.
func (s *stream) read() {
	defer s.release()
	defer close(s.inbox)
	if p := panics.Do(s.requests); p != nil {
		s.server.panicked(&Stream{ID: s.info.ID}, p) // the other fields belong to the stream's goroutine
		s.failure = errInternal
	}
}

// requests applies the rate limits after a request and before it reads the next request. So waiting
// requests take no memory here, and the first request of a stream never waits.
func (s *stream) requests() {
	var own rate.Pace
	from := peerOf(s.rpc.Context())
	rushed := false
	all := s.server.rate(from)
	for {
		m := new(message)
		s.failure = s.server.readable(m, s.rpc.RecvMsg(m))
		if s.failure != nil {
			return
		}
		n := m.data.Len()
		s.server.countWhole(n)
		now := time.Now()
		wait := own.Take(now, requestUnits(n), s.server.bounds.Rate)
		m.late = wait > 0
		if w := all.Take(now, requestUnits(n)); w > 0 {
			wait = max(wait, w)
			if !rushed {
				rushed = true
				s.server.logAddressRate(from)
			}
		}
		select {
		case s.inbox <- m:
		case <-s.rpc.Context().Done():
			s.server.countWhole(-n)
			s.failure = status.FromContextError(s.rpc.Context().Err()).Err()
			return
		}
		wait -= time.Since(now)
		if wait > 0 {
			pause(wait, s.rpc.Context().Done(), nil)
		}
	}
}

// receive decodes a request and passes it to the session.
func (s *stream) receive(m *message) error {
	defer s.server.countWhole(-m.data.Len()) // the size before decode frees it
	if m.late && !s.rateLogged {
		s.logRate()
	}
	s.endFirstWait()
	if s.session == nil && s.rpc.Context().Err() != nil { // no client is left to admit (SAFE-14)
		m.data.Free()
		return status.FromContextError(s.rpc.Context().Err()).Err()
	}
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
		first := req // a copy, so that later requests do not escape to the heap
		s.first = &first
		return s.begin()
	}
	if req.Node != nil {
		s.nodeChange(req.Node)
	}
	if err := s.refresh(); err != nil {
		return err
	}
	return s.handle(req)
}

// endFirstWait ends the time without a request.
func (s *stream) endFirstWait() {
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

// logRate logs once that the client exceeds its rate.
func (s *stream) logRate() {
	s.rateLogged = true
	s.server.tally[tooFast].Add(1)
	s.server.warnClient(s.rpc.Context(), &s.info, "client sends requests too fast: they wait", slog.Int("per_second", s.server.bounds.Rate), limitAttr(limitNames[tooFast]))
}

// handle passes a request to an up-to-date session.
func (s *stream) handle(req xds.Request) error {
	if err := s.catchUp(req); err != nil {
		return err
	}
	if err := s.session.Receive(req); err != nil {
		return rejected(err)
	}
	types := s.types
	s.handleEvents()
	if s.types > types { // the session may keep the client's initial versions until the client is up to date
		for _, v := range req.Initial {
			s.held += len(v.Name) + len(v.Version)
		}
	}
	return nil
}

// catchUp brings the source up to date for a client that states versions which the session does not know.
func (s *stream) catchUp(req xds.Request) error {
	if s.server.newest == nil {
		return nil
	}
	brings, known := s.session.Brings(req)
	if !brings {
		return nil
	}
	s.unlock() // this may take long
	err := s.server.newest(s.rpc.Context(), known)
	s.lock()
	if err != nil {
		if s.rpc.Context().Err() != nil {
			return status.FromContextError(s.rpc.Context().Err()).Err()
		}
		return errBehind
	}
	return s.refresh()
}
