package server

import (
	"container/list"
	"math"
	"net"
	"sync"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// An admission bounds how many streams get first answers at a time. When a whole
// fleet comes back at once, most of it is then served early and the last no
// later, and what is encoded but not yet sent is little, where answering all at
// once would make everybody wait for the last.
//
// A place goes to the address that has fewest, there to the connection that has fewest,
// and there to the node; of equals, to the one that waits longest. The streams of a node
// are served in the order of their requests. So one that opens a thousand, or keeps its
// places long, or says that it is a thousand nodes, is one of many. The lock is held for
// memory only.
type admission struct {
	mu   sync.Mutex
	free int  // places; there is none while somebody waits
	root line // of addresses
	n    int  // tickets that wait
	now  int  // counts who came, went and was served
}

// A line is the streams of an address, of a connection, or of a node, that wait or have
// places. Above the lowest it consists of lines.
//
// Invariant: it has places, or somebody in it waits; so has each line that it is part of.
type line struct {
	fair.Rank // in up.waiting: somebody in it waits

	up      *line // nil: it is the root
	key     any   // by which up knows it
	lines   map[any]*line
	waiting fair.Ranking[*line] // those of lines in which somebody waits; whose turn is next comes first
	tickets list.List           // of a node: those that wait, the first first
	places  int                 // that its streams have
	since   int                 // when the turn came to it last, or when it began to wait
}

// Before implements [shares.Ranked].
func (l *line) Before(o *line) bool {
	if l.places != o.places {
		return l.places < o.places
	}
	return l.since < o.since
}

// A ticket is a stream's place, or its claim to one.
type ticket struct {
	of   *line
	at   *list.Element // of of.tickets; nil: it does not wait
	turn chan struct{} // closed when its turn has come; nil: it came at once
	left bool          // it no longer wants a place, nor has one
}

// newAdmission returns an admission with so many places, as many as are wanted if
// negative.
func newAdmission(places int) *admission {
	if places < 0 {
		places = math.MaxInt
	}
	return &admission{free: places}
}

// enter asks for a place for a stream of a node on the connection from an address. A
// connection is known by the address that it has in memory, not by what that says: on
// unix sockets that is the same for all. Whoever enters must leave.
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

// leave gives up a ticket, and with it the place if it has one. To leave again
// does nothing.
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

// call gives a place to whose turn it is, if somebody waits.
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

// take takes a ticket from those that wait.
func (a *admission) take(t *ticket) {
	t.of.tickets.Remove(t.at)
	t.at = nil
	a.n--
}

// waiting is how many streams wait for their turn.
func (a *admission) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// settle notes that a line's streams have more places, or that fewer or more of them wait,
// and has it and those that it is part of stand where they belong.
func (a *admission) settle(l *line, more int) {
	a.now++
	for ; l.up != nil; l = l.up {
		if l.places += more; more > 0 || !l.Ranked() {
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

// below returns the line of a key that is part of this one.
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
