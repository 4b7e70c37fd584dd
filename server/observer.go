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

// A Stream says whose stream an event is of. It does not change and is the same
// pointer in all events of the stream. [Stream.Inspect] asks what its client has. Who keeps it
// beyond the stream's end keeps all that the stream had.
type Stream struct {
	ID      uint64    // unique in the server, from 1 in the order of arrival
	Node    *xds.Node // never nil; empty if the client does not say. It must not be changed
	Variant xds.Variant
	Type    *xds.Type // nil: aggregated
	Peer    net.Addr  // nil if not known
	Since   time.Time // when its first request came
	Poll    bool      // it is no stream, but a poll (REST-JSON or Fetch), which asks once

	Identity fmt.Stringer // what its connection proves, if its watch is [Identified]; nil: nothing

	asks *asks // nil: nothing of it can be inspected
}

func (s *Stream) open(ctx context.Context, node *xds.Node) {
	s.Node, s.Since = node, time.Now()
	if p, ok := peer.FromContext(ctx); ok {
		s.Peer = p.Addr
	}
}

// of notes whose stream it is, if its watch knows that.
func (s *Stream) of(w Watch) {
	if i, ok := w.(Identified); ok {
		s.Identity = i.Identity()
	}
}

// noNode is what a client is that does not say.
var noNode xds.Node

// An Observer is told what happens on the streams. Its methods are called by
// the goroutines of the streams, for each stream in order: they must be safe
// for concurrent use, and a slow one holds up its stream.
type Observer interface {
	// Opened is called when the first request of a stream has come.
	Opened(*Stream)

	// Event is called for each step. The text of a NACK is in its presentable
	// form: without dumps of resources, and withheld for secrets. See [Textless]. What it may
	// show is looked for during a tenth of one core's time at most: beyond that the text says
	// that it was not looked at.
	Event(*Stream, protocol.Event)

	// Closed is called when the stream has ended; err is what the client was
	// told, nil if it ended the stream in order.
	Closed(s *Stream, err error)
}

// A Textless observer is given NACKs with their codes only. What their texts show nobody may
// see, such as passwords, takes long to find, and is looked for when there is a line of the
// log to write.
type Textless interface {
	Observer

	// Textless does nothing.
	Textless()
}

// observed is the text of a NACK for the observer; again: of a node that has refused the type
// before.
func (s *Server) observed(again bool, shown func() string) string {
	if _, without := s.observer.(Textless); without || s.observer == nil {
		return ""
	}
	return s.texts.look(again, shown)
}

// event records what a session tells.
func (s *Server) event(st *Stream, e protocol.Event) {
	switch e.Kind {
	case protocol.Nacked:
		again := s.refused.has(st.Node.ID, e.Type.URL)
		s.refused.add(st.Node.ID, e.Type.URL, time.Now())
		if s.shared != nil {
			s.shared.Refused(st.Node.ID, e.Type.URL)
		}
		var why string
		shown := func() string { return "" }
		if e.Error != nil {
			why, shown = s.reason(st.Node, e)
			e.Error = &xds.Status{Code: e.Error.Code, Message: s.observed(again, shown)}
		}
		s.logNack(st, e, why, shown)
	case protocol.Acked:
		if e.Settled && !e.Refuses {
			if since, ok := s.refused.remove(refusal{st.Node.ID, e.Type.URL}); ok {
				s.logRecovered(st, e, since)
			}
			if s.shared != nil {
				s.shared.Accepted(st.Node.ID, e.Type.URL)
			}
		}
		s.logAck(st, e)
	case protocol.Waived:
		s.logWaived(st, e)
	}
	if s.observer != nil {
		s.observer.Event(st, e)
	}
}
