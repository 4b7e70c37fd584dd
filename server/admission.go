package server

import (
	"math"
	"sync"
)

// An admission bounds how many streams get first answers at a time. When a whole
// fleet comes back at once, most of it is then served early and the last no
// later, and what is encoded but not yet sent is little, where answering all at
// once would make everybody wait for the last.
//
// Nodes take turns, and the streams of a node do in the order of their requests:
// one that opens a thousand is not served a thousand times before others are
// once. The lock is held for memory only.
type admission struct {
	mu    sync.Mutex
	free  int              // places; there is none while somebody waits
	lines map[string]*line // by node: those that wait
	next  []*line          // whose turn is next
	n     int              // tickets that wait
}

// A line is the streams of one node that wait, the first first. It may be empty.
type line struct {
	node    string
	tickets []*ticket
}

// A ticket is a stream's place, or its claim to one.
type ticket struct {
	node string
	turn chan struct{} // closed when its turn has come; nil: it came at once
	left bool          // it no longer wants a place, nor has one
}

// newAdmission returns an admission with so many places, as many as are wanted if
// negative.
func newAdmission(places int) *admission {
	if places < 0 {
		places = math.MaxInt
	}
	return &admission{free: places, lines: map[string]*line{}}
}

// enter asks for a place for a stream of a node. Whoever enters must leave.
func (a *admission) enter(node string) *ticket {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &ticket{node: node}
	if a.free > 0 {
		a.free--
		return t
	}
	t.turn = make(chan struct{})
	l := a.lines[node]
	if l == nil {
		l = &line{node: node}
		a.lines[node] = l
		a.next = append(a.next, l)
	}
	l.tickets = append(l.tickets, t)
	a.n++
	return t
}

// leave gives up a ticket, and with it the place if it has one. To leave again
// does nothing.
func (a *admission) leave(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	if !t.called() {
		a.n-- // its line will pass over it
		return
	}
	if n := a.pop(); n != nil {
		close(n.turn)
		a.n--
		return
	}
	a.free++
}

// pop takes the ticket whose turn is next out of its line, nil if none waits.
func (a *admission) pop() *ticket {
	for len(a.next) > 0 {
		l := a.next[0]
		for len(l.tickets) > 0 && l.tickets[0].left {
			l.tickets = l.tickets[1:]
		}
		a.next = a.next[1:]
		if len(l.tickets) == 0 {
			delete(a.lines, l.node)
			continue
		}
		t := l.tickets[0]
		l.tickets = l.tickets[1:]
		a.next = append(a.next, l)
		return t
	}
	return nil
}

// waiting is how many streams wait for their turn.
func (a *admission) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// called reports whether the ticket's turn has come.
func (t *ticket) called() bool {
	if t.turn == nil {
		return true
	}
	select {
	case <-t.turn:
		return true
	default:
		return false
	}
}
