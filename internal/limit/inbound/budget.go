// Package inbound limits the memory of half-received requests, and the rate at which streams open and end.
// It sits between a gRPC server and its connections and parses the HTTP/2 frames that pass. gRPC itself
// grants a request of 32 MiB its whole window, accepts streams at any rate, and reports neither.
//
// The package changes no byte. It delays reads from a connection, or closes the connection.
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

// A Budget limits the bytes of half-received requests on all connections together. A connection with at
// most 64 KiB of them does not count.
//
// All connections share a quarter of the budget. When the quarter is used up, connections with half-received
// requests take turns: the server reads from one of them, which may use the whole budget until its requests
// are complete. Create a Budget with [NewBudget]. It is safe for concurrent use.
type Budget struct {
	conns sync.Map // *Conn by the net.Addr of its client

	max     int
	stall   time.Duration
	streams int
	pace    func(peer net.Addr) *rate.Shared

	refused  func(peer net.Addr, why Reason) // called without a lock
	hasty    func(peer net.Addr)             // the same
	panicked func(peer net.Addr, p *panics.Panic)

	mu      sync.Mutex // never held during I/O
	used    int        // bytes of half-received requests
	whole   int        // bytes of complete requests that are not handled yet
	turn    *hold      // the connection whose turn it is; nil: none
	last    string     // the owner of the turn before
	waiting []*hold    // for their turn or for room, in the order of arrival
	holding map[*Conn]*hold

	pressedAt time.Time // when waiting became nonempty
}

// A hold is the budget's record of a connection while its half-received requests count. The budget's lock
// guards it.
type hold struct {
	conn  *Conn
	owner string        // for fair turns: see [fair.Owner]
	wake  chan struct{} // has one slot: there may be room, or the hold ended
	timer *time.Timer

	counted state
	ticks   int       // ticks during which the connection was not read
	since   time.Time // start of the period in which others wait for this connection
	seen    int       // counted.total at since
	markAt  time.Time // start of the stall time
	mark    int       // counted.total at markAt
}

// A Reason says why a connection was closed.
type Reason string

// The reasons.
const (
	TooMuch Reason = "its unfinished requests have more bytes than the limit for all clients"
	TooSlow Reason = "a request arrived too slowly"
	TooLong Reason = "there was no room for its request"
)

const (
	tick        = time.Second
	minStall    = 64 << 10         // bytes that must arrive within the stall time
	minPressed  = 1 << 20          // bytes that must arrive within a tick while other connections wait
	maxTurnWait = 30 * time.Second // for a turn
)

// Bounds are the limits and callbacks of a budget. Any goroutine may call the callbacks.
type Bounds struct {
	Bytes int

	// Stall is the time in which 64 KiB of the half-received requests of a connection must arrive, each
	// request its share, or the rest of the request. While other connections wait for room, 1 MiB must
	// arrive each second. A slower connection is closed.
	Stall time.Duration

	// Streams is the number of streams of a connection that may end in a second, with bursts of ten times
	// as many; if negative, there is no limit. Reads from a faster connection are delayed.
	Streams int

	// Pace returns the share of a connection in the token bucket of its address. An ended stream takes
	// ten tokens.
	Pace func(peer net.Addr) *rate.Shared

	// Refused is called for each connection that the budget closes, and Hasty once for each connection
	// whose reads are delayed because of Streams or Pace.
	Refused func(peer net.Addr, why Reason)
	Hasty   func(peer net.Addr)

	// Panicked is called for each panic; the panic has closed the connection.
	Panicked func(peer net.Addr, p *panics.Panic)
}

// NewBudget returns a budget with the given limits and callbacks.
func NewBudget(b Bounds) *Budget {
	return &Budget{
		max: b.Bytes, stall: b.Stall, streams: b.Streams, pace: b.Pace, holding: map[*Conn]*hold{},
		refused: b.Refused, hasty: b.Hasty, panicked: b.Panicked,
	}
}

// Whole adds n bytes of a complete request. Call it again with -n once the request is handled.
func (b *Budget) Whole(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.whole += n
	b.serve()
}

// Used returns the number of bytes that count now.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used + b.whole
}

// Progress returns a number that grows while bytes of a request arrive on a stream, and while the budget
// itself delays reads from the connection. It returns 0 if neither happens. The stream is named by its
// HTTP/2 number and the address of its connection.
func (b *Budget) Progress(peer net.Addr, stream uint32) int {
	c, ticks := b.from(peer)
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.in.received(stream) + ticks
}

// from returns the connection from an address, if it counts, and the ticks during which it was not read.
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

// room reports whether the shared quarter has room.
func (b *Budget) room() bool { return b.used+b.whole < b.max/4 }

// note records the state of a connection, and reports whether it alone exceeds the budget. A timer checks the
// connection as long as it counts.
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
		h.counted = now
		if now.large == 0 {
			b.release(h)
		}
	}
	b.serve()
	return now.large > b.max
}

// release removes a connection that no longer counts. The caller holds b.mu.
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

// ask is mayRead for a caller that does not hold b.mu.
func (b *Budget) ask(c *Conn) *hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mayRead(c)
}

// mayRead returns nil if the connection may be read now. Otherwise it adds the connection to the waiting ones
// and returns its hold, whose wake channel rings when to ask again. The caller holds b.mu.
func (b *Budget) mayRead(c *Conn) *hold {
	h := b.holding[c]
	if h == nil || b.turn == h || b.room() {
		return nil
	}
	if len(b.waiting) == 0 {
		b.pressedAt = time.Now()
	}
	b.waiting = append(b.waiting, h) // not a duplicate: serve removes a hold when it wakes it
	b.serve()
	if b.turn == h {
		return nil
	}
	return h
}

// serve wakes waiting connections: all if there is room, else the one whose turn it is. Turns alternate
// between addresses. The caller holds b.mu.
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

// slow runs at each tick. It reports whether requests arrive too slowly on a connection.
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

// judge is slow for a caller that holds b.mu.
func (b *Budget) judge(h *hold, now time.Time) (slow bool) {
	if slices.Contains(b.waiting, h) { // the server does not read it
		h.ticks++
		h.begin(now)
		h.mark, h.markAt = h.seen, now
		return false
	}
	total := h.counted.total
	if len(b.waiting) == 0 {
		h.begin(now)
	} else if start := later(h.since, b.pressedAt); now.Sub(start) >= tick {
		if total-h.seen < minPressed {
			return true
		}
		h.begin(now)
	}
	if total-h.mark >= minStall {
		h.mark, h.markAt = total, now
	}
	return now.Sub(h.markAt) >= b.stall
}

// begin gives the connection a tick before its rate is compared with minPressed.
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
