// Package unfinished bounds the memory of requests that have begun to come and are not
// whole. It sits between a gRPC server and its connections, and looks at the frames that
// pass: gRPC gives a request of 32 MiB all the window it asks for, and says so to nobody.
//
// It changes no byte. What it can do is read a connection later, or close it.
package unfinished

import (
	"net"
	"slices"
	"sync"
	"time"
)

// A Budget is how many bytes such requests may hold, on all connections together. It
// counts those of which more than 64 KiB have come; of others there are as many as
// streams.
//
// A quarter of it is for all. When that is used up, the connections that have such requests
// take turns: they are not read, but for one, which may use the whole budget until it has
// none left. Create it with [NewBudget]. It is safe for concurrent use.
type Budget struct {
	max     int
	stall   time.Duration
	refused func(peer net.Addr, why Reason) // called without a lock

	mu      sync.Mutex // held for memory only
	used    int        // by requests that are not whole
	whole   int        // by those that are, and wait to be handled
	turn    *Conn      // may be read though there is no room; nil: nobody
	last    string     // whose the turn before was
	waiting []*Conn    // for their turn or for room, in the order of arrival
	holding map[*Conn]struct{}

	pressedAt time.Time // since when somebody waits, if somebody does
}

// A Reason is why a connection was closed.
type Reason string

// The reasons.
const (
	TooMuch Reason = "its requests that are not whole have more bytes than all may have"
	TooSlow Reason = "a request came too slowly"
	TooLong Reason = "there was no room for its request"
)

// How long, and how much.
const (
	tick    = time.Second
	atLeast = 64 << 10         // bytes that come within the stall time
	pressed = 1 << 20          // bytes that come within a tick while others wait
	maxWait = 30 * time.Second // for a turn
)

// NewBudget returns a budget of max bytes. A connection is closed on which a request has
// begun and less than 64 KiB of it come within the stall time, or, while others wait for
// room, less than 1 MiB within a second. refused is told of each connection that is
// closed, by any goroutine.
func NewBudget(max int, stall time.Duration, refused func(peer net.Addr, why Reason)) *Budget {
	return &Budget{max: max, stall: stall, refused: refused, holding: map[*Conn]struct{}{}}
}

// Whole is told that a request is whole, of bytes, and until when it takes memory: n is
// negative then.
func (b *Budget) Whole(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole += n
	b.serve()
}

// Used is how many bytes are counted now.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used + b.whole
}

// Progress is a number that grows while a request comes on the connection from an
// address, or would come if it were read; 0 if there is none under way.
func (b *Budget) Progress(peer net.Addr) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.holding {
		if c.RemoteAddr() == peer {
			return c.counted.total + c.held
		}
	}
	return 0
}

// room reports whether there is some for all.
func (b *Budget) room() bool { return b.used+b.whole < b.max/4 }

// note notes what a connection holds, and reports whether that is too much. The
// connection is watched as long as it holds something.
func (b *Budget) note(c *Conn, now state) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += now.large - c.counted.large
	c.counted = now
	switch _, held := b.holding[c]; {
	case now.large > 0 && !held:
		b.holding[c] = struct{}{}
		c.begin(time.Now())
		c.mark, c.markAt = c.seen, c.since
		c.timer = time.AfterFunc(tick, c.look)
	case now.large == 0 && held:
		b.release(c)
	}
	b.serve()
	return now.large > b.max
}

// release forgets a connection that holds nothing any more. b.mu is held.
func (b *Budget) release(c *Conn) {
	delete(b.holding, c)
	c.timer.Stop()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	if b.turn == c {
		b.turn, b.last = nil, c.owner
	}
}

// may reports whether a connection may be read now, and has it wait if not. b.mu is held.
func (b *Budget) may(c *Conn) bool {
	if _, held := b.holding[c]; !held || b.turn == c || b.room() {
		return true
	}
	if len(b.waiting) == 0 {
		b.pressedAt = time.Now()
	}
	if !slices.Contains(b.waiting, c) {
		b.waiting = append(b.waiting, c)
	}
	b.serve()
	return b.turn == c
}

// serve wakes those who wait: all if there is room, or the one whose turn it is. The turn
// goes from address to address. b.mu is held.
func (b *Budget) serve() {
	if b.room() {
		for _, c := range b.waiting {
			c.ring()
		}
		b.waiting = nil
		return
	}
	if b.turn != nil || len(b.waiting) == 0 || b.whole >= b.max/4 {
		return
	}
	next := 0
	for i, c := range b.waiting {
		if c.owner != b.last {
			next = i
			break
		}
	}
	b.turn = b.waiting[next]
	b.waiting = slices.Delete(b.waiting, next, next+1)
	b.turn.begin(time.Now())
	b.turn.ring()
}

// judge reports, at each tick, whether requests come too slowly on a connection. b.mu is
// held.
func (b *Budget) judge(c *Conn, now time.Time) (slow bool) {
	if slices.Contains(b.waiting, c) { // it is we who do not read
		c.held++
		c.begin(now)
		c.mark, c.markAt = c.seen, now
		return false
	}
	total := c.counted.total
	if len(b.waiting) == 0 {
		c.begin(now)
	} else if start := later(c.since, b.pressedAt); now.Sub(start) >= tick {
		if total-c.seen < pressed {
			return true
		}
		c.begin(now)
	}
	if total-c.mark >= atLeast {
		c.mark, c.markAt = total, now
	}
	return now.Sub(c.markAt) >= b.stall
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
