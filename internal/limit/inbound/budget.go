// Package inbound bounds the memory of requests that have begun to come and are not
// whole, and how fast streams come and go. It sits between a gRPC server and its
// connections, and looks at the frames that pass: gRPC gives a request of 32 MiB all the
// window it asks for, takes streams as fast as they come, and says so to nobody.
//
// It changes no byte. What it can do is read a connection later, or close it.
package inbound

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	"github.com/chancery-xds/chancery/internal/limit/rate"
	"github.com/chancery-xds/chancery/internal/panics"
)

// A Budget is how many bytes such requests may hold, on all connections together. It
// counts those of connections that have more than 64 KiB of them; of others there is that
// much for each connection.
//
// A quarter of it is for all. When that is used up, the connections that have such requests
// take turns: they are not read, but for one, which may use the whole budget until it has
// none left. Create it with [NewBudget]. It is safe for concurrent use.
type Budget struct {
	max     int
	stall   time.Duration
	streams int
	pace    func(peer net.Addr) *rate.Shared

	refused  func(peer net.Addr, why Reason) // called without a lock
	hasty    func(peer net.Addr)             // the same
	panicked func(peer net.Addr, p *panics.Panic)

	mu      sync.Mutex // held for memory only
	used    int        // by requests that are not whole
	whole   int        // by those that are, and wait to be handled
	turn    *hold      // of the connection that may be read though there is no room; nil: none
	last    string     // whose the turn before was
	waiting []*hold    // for their turn or for room, in the order of arrival
	holding map[*Conn]*hold

	pressedAt time.Time // since when somebody waits, if somebody does
}

// A hold is what a budget knows of a connection for as long as it has requests that count.
// The budget's lock guards it.
type hold struct {
	conn  *Conn
	owner string        // whose the connection is, to take turns
	wake  chan struct{} // with one slot: there may be room, or nothing is held any more
	timer *time.Timer

	counted state
	ticks   int       // at which it was not read
	since   time.Time // since when it may be judged by others who wait
	seen    int       // counted.total at since
	markAt  time.Time // when the stall time began
	mark    int       // counted.total at markAt
}

// A Reason is why a connection was closed.
type Reason string

// The reasons.
const (
	TooMuch Reason = "its unfinished requests have more bytes than the limit for all clients"
	TooSlow Reason = "a request arrived too slowly"
	TooLong Reason = "there was no room for its request"
)

// How long, and how much.
const (
	tick    = time.Second
	atLeast = 64 << 10         // bytes that come within the stall time
	pressed = 1 << 20          // bytes that come within a tick while others wait
	maxWait = 30 * time.Second // for a turn
)

// Bounds are what a budget keeps to, and whom it tells.
type Bounds struct {
	Bytes int

	// Stall is in which time 64 KiB must come of requests that have begun, of each its share,
	// or the rest of it; and while others wait for room 1 MiB in each second. A connection on
	// which they do not is closed.
	Stall time.Duration

	// Streams is how many streams of a connection may end in a second, ten times as many at
	// once; negative: any number. A connection on which more do is read later.
	Streams int

	// Pace is that of all connections from an address, at which they take ten for each stream
	// that has ended; it is called by any goroutine.
	Pace func(peer net.Addr) *rate.Shared

	// Refused is told of each connection that is closed, and Hasty once of each that is read
	// later, by any goroutine.
	Refused func(peer net.Addr, why Reason)
	Hasty   func(peer net.Addr)

	// Panicked is told of each panic that has closed a connection, by any goroutine.
	Panicked func(peer net.Addr, p *panics.Panic)
}

// NewBudget returns a budget that keeps to bounds.
func NewBudget(b Bounds) *Budget {
	return &Budget{
		max: b.Bytes, stall: b.Stall, streams: b.Streams, pace: b.Pace, holding: map[*Conn]*hold{},
		refused: b.Refused, hasty: b.Hasty, panicked: b.Panicked,
	}
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

// Progress is a number that grows while a request comes on a stream of the connection
// from an address, or might come if the connection were read; 0 if neither is so. stream is
// its number in HTTP/2.
func (b *Budget) Progress(peer net.Addr, stream uint32) int {
	c, ticks := b.from(peer)
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in.came(stream) + ticks
}

// from returns the connection from an address, if it holds something, and how long it was
// not read.
func (b *Budget) from(peer net.Addr) (c *Conn, ticks int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c, h := range b.holding {
		if c.RemoteAddr() == peer {
			return c, h.ticks
		}
	}
	return nil, 0
}

// room reports whether there is some for all.
func (b *Budget) room() bool { return b.used+b.whole < b.max/4 }

// note notes what a connection holds, and reports whether that is too much. The
// connection is watched as long as it holds something.
func (b *Budget) note(c *Conn, now state) (over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.holding[c]
	if h == nil && now.large > 0 {
		h = &hold{conn: c, owner: fair.Owner(c.RemoteAddr()), wake: make(chan struct{}, 1)}
		h.counted.total = now.total
		h.begin(time.Now())
		h.mark, h.markAt = h.seen, h.since
		h.timer = time.AfterFunc(tick, c.look)
		b.holding[c] = h
	}
	if h != nil {
		b.used += now.large - h.counted.large
		if h.counted = now; now.large == 0 {
			b.release(h)
		}
	}
	b.serve()
	return now.large > b.max
}

// release forgets a connection that holds nothing any more. b.mu is held.
func (b *Budget) release(h *hold) {
	delete(b.holding, h.conn)
	h.ring()
	if i := slices.Index(b.waiting, h); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	if b.turn == h {
		b.turn, b.last = nil, h.owner
	}
	h.timer.Stop()
}

// ask is may for who has no lock.
func (b *Budget) ask(c *Conn) *hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.may(c)
}

// may says what a connection waits for before it may be read, and has it wait; nil: it
// may be read now. b.mu is held.
func (b *Budget) may(c *Conn) *hold {
	h := b.holding[c]
	if h == nil || b.turn == h || b.room() {
		return nil
	}
	if len(b.waiting) == 0 {
		b.pressedAt = time.Now()
	}
	b.waiting = append(b.waiting, h) // it is not there: whoever wakes it takes it out
	if b.serve(); b.turn == h {
		return nil
	}
	return h
}

// serve wakes those who wait: all if there is room, or the one whose turn it is. The turn
// goes from address to address. b.mu is held.
func (b *Budget) serve() {
	if b.room() {
		for _, h := range b.waiting {
			h.ring()
		}
		b.waiting = nil
		return
	}
	if b.turn != nil || len(b.waiting) == 0 || b.whole >= b.max/4 {
		return
	}
	next := 0
	for i, h := range b.waiting {
		if h.owner != b.last {
			next = i
			break
		}
	}
	b.turn = b.waiting[next]
	b.waiting = slices.Delete(b.waiting, next, next+1)
	b.turn.begin(time.Now())
	b.turn.ring()
}

// slow reports, at each tick, whether requests come too slowly on a connection.
func (b *Budget) slow(c *Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.holding[c]
	if h == nil {
		return false
	}
	if b.judge(h, time.Now()) {
		return true
	}
	h.timer.Reset(tick)
	return false
}

// judge reports, at each tick, whether requests come too slowly on a connection. b.mu is
// held.
func (b *Budget) judge(h *hold, now time.Time) (slow bool) {
	if slices.Contains(b.waiting, h) { // it is we who do not read
		h.ticks++
		h.begin(now)
		h.mark, h.markAt = h.seen, now
		return false
	}
	total := h.counted.total
	if len(b.waiting) == 0 {
		h.begin(now)
	} else if start := later(h.since, b.pressedAt); now.Sub(start) >= tick {
		if total-h.seen < pressed {
			return true
		}
		h.begin(now)
	}
	if total-h.mark >= atLeast {
		h.mark, h.markAt = total, now
	}
	return now.Sub(h.markAt) >= b.stall
}

// begin is when the connection has a tick before it is judged by others who wait.
func (h *hold) begin(now time.Time) { h.since, h.seen = now, h.counted.total }

func (h *hold) ring() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
