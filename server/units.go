package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A unit has the per-type streams of one connection and node: they are one client (ADS-11). Their sessions
// depend on each other. So the part of a step that uses a session holds the lock. At its end it notifies the streams
// that may have something to send. Each stream still reads, writes and logs on its own.
type unit struct {
	key  unitKey
	node *xds.Node

	mu       sync.Mutex
	siblings protocol.Siblings
	streams  map[*protocol.Session]*stream
}

// A unitKey identifies a unit. The connection is identified by its net.Addr pointer, as in admission.
type unitKey struct {
	conn    net.Addr
	node    string
	variant xds.Variant
}

// units are the units of all connections. The zero value is ready to use. A unit exists only while it has streams.
type units struct {
	mu  sync.Mutex
	all map[unitKey]*unitStreams
	max int // streams of a unit; maxUnit if zero
}

// unitStreams counts the streams that have joined a unit, or are about to.
type unitStreams struct {
	*unit
	n int
}

// maxUnit limits the streams of a unit, because a step after a commit costs time for each of them. With more streams,
// or streams with different nodes, the streams are not ordered, and the grace period protects removed resources.
const maxUnit = 2000

// enter returns the unit of a stream. Each enter needs a leave. It returns nil for a stream without a unit: the stream is
// aggregated, the client has no node id, or its connection is unknown.
func (us *units) enter(info *Stream) *unit {
	if info.Type == nil || info.Node.ID == "" || reflect.ValueOf(info.Peer).Kind() != reflect.Pointer {
		return nil
	}
	key := unitKey{info.Peer, info.Node.ID, info.Variant}
	us.mu.Lock()
	defer us.mu.Unlock()
	u := us.all[key]
	if u == nil {
		u = &unitStreams{unit: &unit{key: key, node: info.Node, streams: map[*protocol.Session]*stream{}}}
		if us.all == nil {
			us.all = map[unitKey]*unitStreams{}
		}
		us.all[key] = u
	}
	u.n++
	return u.unit
}

// leave undoes enter.
func (us *units) leave(u *unit) {
	us.mu.Lock()
	defer us.mu.Unlock()
	known := us.all[u.key]
	known.n--
	if known.n == 0 {
		delete(us.all, u.key)
	}
}

// join adds a stream with its session to its unit. It returns with the lock of the unit held.
func (s *stream) join() {
	u := s.server.units.enter(&s.info)
	if u == nil {
		return
	}
	s.unit = u
	s.lock()
	switch most := cmp.Or(s.server.units.max, maxUnit); {
	case len(u.streams) >= most:
		u.siblings.Separate()
		s.warnUnordered(fmt.Sprintf("the client has more than %d streams", most))
	case !reflect.DeepEqual(u.node, s.info.Node):
		u.siblings.Separate()
		s.warnUnordered("the node of the stream differs from that of the client's first stream")
	default:
		u.siblings.Join(s.session)
		u.streams[s.session] = s
		if u.siblings.Several() {
			s.warnUnordered("two streams of CDS or LDS are open")
		}
	}
}

// warnUnordered logs that the streams of a unit do not wait for each other.
func (s *stream) warnUnordered(why string) {
	s.later(func() {
		s.server.warn(&s.info, why, "streams of a client are not ordered: the grace period protects removed resources", []slog.Attr{
			slog.String("node", clip(s.info.Node.ID)), slog.String("peer", addr(s.info.Peer)), slog.String("why", why), slog.Uint64("stream", s.info.ID),
		})
	})
}

// leaveUnit removes a stream that ends from its unit.
func (s *stream) leaveUnit() {
	u := s.unit
	if u == nil {
		return
	}
	s.lock()
	if u.streams[s.session] != nil {
		delete(u.streams, s.session)
		u.poke(u.siblings.Leave(s.session, time.Now()))
	}
	s.unlock()
	s.server.units.leave(u)
	s.unit = nil
}

// lock takes the lock of the stream's unit, if it has one and the stream does not have its lock. It protects the
// session.
func (s *stream) lock() {
	if s.unit != nil && !s.locked {
		s.unit.mu.Lock()
		s.locked = true
	}
}

// unlock releases the lock, if the stream has it.
func (s *stream) unlock() {
	if s.locked {
		s.locked = false
		s.unit.mu.Unlock()
	}
}

// later logs a line when the stream does not have the lock, so that a slow log delays no other stream.
func (s *stream) later(line func()) {
	if s.locked {
		s.lines = append(s.lines, line)
		return
	}
	line()
}

// logUnlocked gives the lock back, and logs the lines of later.
func (s *stream) logUnlocked() {
	s.unlock()
	lines := s.lines
	s.lines = nil
	for _, line := range lines {
		line()
	}
}

// shares reports whether the session is in the unit, with or without siblings. The stream must have the lock.
func (s *stream) shares() bool { return s.unit != nil && s.unit.streams[s.session] != nil }

// refreshAll is refresh for the sessions of the unit. It returns only the failures of this stream.
func (s *stream) refreshAll() (err error) {
	u := s.unit
	u.siblings.Update(s.session, time.Now(), func(session *protocol.Session) (xds.View, []xds.Names) {
		st := u.streams[session]
		view, touched, failed := st.watch.Next()
		switch {
		case st != s && (failed != nil || view == nil):
			st.poke() // its own step handles the failure
			return nil, nil
		case failed != nil:
			err = deny(failed)
		case view == nil:
			err = errNotKnown
		}
		return view, touched
	})
	return err
}

// poke notifies the streams of sessions.
func (u *unit) poke(woken []*protocol.Session) {
	for _, session := range woken {
		u.streams[session].poke()
	}
}

// poke makes a stream do a step. Any goroutine may call it.
func (s *stream) poke() {
	if s.poked.CompareAndSwap(false, true) {
		s.notices.notify(notice{what: noticePoke})
	}
}
