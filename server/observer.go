package server

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A Stream describes the stream of an event for an [Observer]. A Stream does not change, and all
// events of a stream have the same pointer. [Stream.Inspect] gives access to the state of the
// client. Do not keep a Stream after Closed, because it keeps the memory of the stream in use.
type Stream struct {
	ID      uint64    // unique in the server; 1 for the first stream
	Node    *xds.Node // never nil; empty if the client sent none. Do not change it
	Variant xds.Variant
	Type    *xds.Type // nil: aggregated
	Peer    net.Addr  // nil if unknown
	Since   time.Time // when the first request arrived
	Poll    bool      // true for a poll (REST-JSON or Fetch): one request, no stream

	Identity fmt.Stringer // identity proven by the connection, from an [IdentityWatch]; nil: none

	inspections *inspections              // nil: the stream cannot be inspected
	permit      func(*xds.Type, int) bool // of retries; nil: there are none
}

// MayRetry takes a retry of refused content of a type and this size from the budget of the server. It reports
// false if the budget is used up, or if the server does not retry: see [WithRetryRefused].
func (s *Stream) MayRetry(t *xds.Type, bytes int) bool {
	return s != nil && s.permit != nil && s.permit(t, bytes)
}

// Retries reports whether the server retries refused content: see [WithRetryRefused].
func (s *Stream) Retries() bool { return s != nil && s.permit != nil }

func (s *Stream) open(ctx context.Context, node *xds.Node) {
	s.Node, s.Since = node, time.Now()
	if p, ok := peer.FromContext(ctx); ok {
		s.Peer = p.Addr
	}
}

// of sets the identity of the client, if the watch knows it.
func (s *Stream) of(w Watch) {
	if i, ok := w.(IdentityWatch); ok {
		s.Identity = i.Identity()
	}
}

// noNode is the node of a client that sent none.
var noNode xds.Node

// An Observer gets the events of all streams, for example to count them or to list refusals. The
// goroutines of the streams call its methods, in order for each stream. The methods must be safe
// for concurrent use. A slow method delays its stream.
type Observer interface {
	// Opened is called after the first request of a stream has arrived.
	Opened(*Stream)

	// Event is called for each event. The text of a NACK is safe to show: it has no dumps of
	// resources, and the text about a secret is withheld. An observer that needs no texts
	// implements [CodesOnly]. Making texts safe takes at most a tenth of one core. Above that, a
	// placeholder replaces the text.
	Event(*Stream, protocol.Event)

	// Closed is called after a stream has ended. The error is the status for the client, or nil if
	// the client ended the stream.
	Closed(s *Stream, err error)
}

// CodesOnly marks an [Observer] that gets NACKs with their status codes and without their texts. Removing secrets from
// texts is expensive. If all observers are CodesOnly, the server does it only for lines of the log.
type CodesOnly interface {
	Observer

	// CodesOnly does nothing.
	CodesOnly()
}

// observed returns the text of a NACK for the observer. The argument again is true if the node has
// refused the type before.
func (s *Server) observed(again bool, shown func() string) string {
	if _, without := s.observer.(CodesOnly); without || s.observer == nil {
		return ""
	}
	return s.texts.look(again, shown)
}

// event handles an event of a session. It logs the event with later, if that is not nil.
func (s *Server) event(st *Stream, e protocol.Event, later func(line func())) {
	var why string
	shown := func() string { return "" }
	switch e.Kind {
	case protocol.Nacked:
		again := s.refused.has(st.Node.ID, e.Type.URL)
		s.refused.add(st.Node.ID, e.Type.URL, time.Now())
		if s.shared != nil {
			s.shared.Refused(st.Node.ID, e.Type.URL)
		}
		if e.Error != nil {
			why, shown = s.reason(st.Node, e)
			e.Error = &xds.Status{Code: e.Error.Code, Message: s.observed(again, shown)}
		}
	case protocol.Acked, protocol.Recovered:
		if e.Settled && !e.Refuses {
			s.forgetRefusal(st.Node.ID, e.Type.URL)
		}
	}
	if later == nil {
		s.logEvent(st, e, why, shown)
	} else {
		s.logLater(st, e, why, shown, later)
	}
	if s.observer != nil {
		s.observer.Event(st, e)
	}
}

// logLater logs an event with later. It is a function of its own, so that other events do not escape to the heap.
func (s *Server) logLater(st *Stream, e protocol.Event, why string, shown func() string, later func(line func())) {
	e.Accepted = protocol.Acceptance{} // valid until the next input
	later(func() { s.logEvent(st, e, why, shown) })
}

func (s *Server) logEvent(st *Stream, e protocol.Event, why string, shown func() string) {
	switch e.Kind {
	case protocol.Nacked:
		s.logNack(st, e, why, shown)
	case protocol.Acked:
		s.logAck(st, e)
	case protocol.Recovered:
		s.logRecovered(st, e)
	case protocol.Waived:
		s.logWaived(st, e)
	}
}
