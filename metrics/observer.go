package metrics

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
)

var _ server.CodesOnly = (*Metrics)(nil)

// CodesOnly implements [server.CodesOnly].
func (m *Metrics) CodesOnly() {}

// Opened implements [server.Observer].
func (m *Metrics) Opened(s *server.Stream) {
	m.streams.open[s.Variant].Inc()
	m.streams.opened[s.Variant].Inc()
}

// Closed implements [server.Observer].
func (m *Metrics) Closed(s *server.Stream, err error) {
	m.streams.open[s.Variant].Dec()
	c := status.Code(err)
	if int(c) >= len(m.streams.closed) {
		c = codes.Unknown
	}
	m.streams.closed[c].Inc()
	m.streams.refusals.forget(s)
}

// propagation returns the time from the newest commit until the client accepted it. It returns false if the response
// was sent before the commit, or the stream began after it.
func (m *Metrics) propagation(s *server.Stream, e protocol.Event) (time.Duration, bool) {
	if m.newest == nil {
		return 0, false
	}
	c, ok := m.newest()
	if !ok || !s.Since.Before(c.Time) {
		return 0, false
	}
	took := time.Since(c.Time)
	return took, e.Took <= took
}

// Event implements [server.Observer].
func (m *Metrics) Event(s *server.Stream, e protocol.Event) {
	t := &m.streams.byType[index(e.Type)]
	if int(e.Kind) < len(kinds) && kinds[e.Kind] != "" {
		t.requests[s.Variant][e.Kind].Inc()
	}
	switch {
	case e.Retry && e.Kind == protocol.Acked:
		t.retries[1].Inc()
	case e.Retry && e.Kind == protocol.Nacked:
		t.retries[0].Inc()
	}
	switch e.Kind {
	case protocol.Sent:
		t.responses[s.Variant].Inc()
		t.sent.Add(float64(e.Count))
		t.removed.Add(float64(e.Removed))
		if e.Beats == 0 {
			t.bytes.Observe(float64(e.Bytes))
		}
	case protocol.Nacked:
		t.answered.Observe(e.Took.Seconds())
		m.streams.refusals.nacked(s, e.Type, e.Refuses)
	case protocol.Acked:
		t.answered.Observe(e.Took.Seconds())
		if took, ok := m.propagation(s, e); ok {
			t.reached.Observe(took.Seconds())
		}
	case protocol.Recovered:
		m.streams.refusals.recovered(s, e.Type)
	}
}
