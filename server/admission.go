package server

import (
	"container/list"
	"math"
	"net"
	"sync"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// An admission limits how many streams get their first responses at a time. When a whole fleet reconnects at once,
// the limit serves most clients early and bounds the memory of encoded responses that are not sent yet. Without
// the limit, every client would wait until all are served.
//
// A free place goes to the address with the fewest places. Within this address it goes to the
// connection with the fewest places, and within this connection to the node with the fewest places.
// If the numbers are equal, the longest wait wins. Streams of a node are served in the order of
// their requests. So a client with a thousand streams or invented nodes cannot delay the others.
// The lock is held for memory operations only.
type admission struct {
	mu   sync.Mutex
	free int  // free places; zero while a stream waits
	root line // of addresses
	n    int  // waiting tickets
	now  int  // counts all changes, as a clock
}

// A line has the streams of an address, a connection or a node that wait or have places. The line
// of an address consists of lines of connections, and a line of a connection consists of lines of
// nodes.
//
// Invariant: each line has a place or a waiting stream. Empty lines are deleted.
type line struct {
	fair.Rank // in up.waiting, while a stream of the line waits

	up      *line // nil: this line is the root
	key     any   // its key in up.lines
	lines   map[any]*line
	waiting fair.Ranking[*line] // lines with a waiting stream; the next turn comes first
	tickets list.List           // of a node: waiting tickets, oldest first
	places  int                 // places that its streams have
	since   int                 // when the line last got a place, or began to wait
}

// Before implements [fair.Ranked].
func (l *line) Before(o *line) bool {
	if l.places != o.places {
		return l.places < o.places
	}
	return l.since < o.since
}

// A ticket is a stream's place, or its position in the queue.
type ticket struct {
	of   *line
	at   *list.Element // in of.tickets; nil: the ticket does not wait
	turn chan struct{} // closed when the ticket gets a place; nil: it got a place immediately
	left bool          // the ticket was given back
}

// newAdmission returns an admission with a number of places. A negative number means no limit.
func newAdmission(places int) *admission {
	if places < 0 {
		places = math.MaxInt
	}
	return &admission{free: places}
}

// enter takes a ticket for a stream of a node on a connection. It identifies the connection by its net.Addr
// pointer, because all connections of a unix socket have the same text. Each ticket must be given back with
// leave.
func (a *admission) enter(conn net.Addr, node any) *ticket {
	owner := fair.Owner(conn)
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &ticket{of: a.root.below(owner).below(conn).below(node)}
	if a.free > 0 {
		a.free--
		a.settle(t.of, 1)
		return t
	}
	t.turn = make(chan struct{})
	t.at = t.of.tickets.PushBack(t)
	a.n++
	a.settle(t.of, 0)
	return t
}

// leave gives back a ticket, and the ticket's place, if any. A second call does nothing.
func (a *admission) leave(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case t.left:
	case t.at != nil:
		a.take(t)
		a.settle(t.of, 0)
	default:
		a.free++
		a.settle(t.of, -1)
		a.call()
	}
	t.left = true
}

// call gives a free place to the next waiting ticket, if there is one.
func (a *admission) call() {
	l := &a.root
	for l.waiting.Len() > 0 {
		l = l.waiting.First()
	}
	first := l.tickets.Front()
	if first == nil {
		return
	}
	t := first.Value.(*ticket)
	a.free--
	a.take(t)
	a.settle(l, 1)
	close(t.turn)
}

// take removes a ticket from the queue.
func (a *admission) take(t *ticket) {
	t.of.tickets.Remove(t.at)
	t.at = nil
	a.n--
}

// waiting returns the number of waiting streams.
func (a *admission) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// settle updates a line and the lines above it after a change of its places or its waiting tickets.
func (a *admission) settle(l *line, more int) {
	a.now++
	for ; l.up != nil; l = l.up {
		l.places += more
		if more > 0 || !l.Ranked() {
			l.since = a.now
		}
		waits := l.tickets.Len() > 0 || l.waiting.Len() > 0
		if waits {
			l.up.waiting.Put(l)
		} else {
			l.up.waiting.Remove(l)
		}
		if !waits && l.places == 0 {
			delete(l.up.lines, l.key)
		}
	}
}

// below returns the line with a key inside this line. It creates the line if it does not exist.
func (l *line) below(key any) *line {
	b := l.lines[key]
	if b == nil {
		b = &line{up: l, key: key}
		if l.lines == nil {
			l.lines = map[any]*line{}
		}
		l.lines[key] = b
	}
	return b
}
