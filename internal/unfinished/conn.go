package unfinished

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/chancery-xds/chancery/internal/shares"
)

// A Conn is a connection whose requests count against a budget. As of any net.Conn, one
// goroutine reads and one writes at a time.
type Conn struct {
	net.Conn
	budget *Budget
	raw    syscall.RawConn // nil: there is none, or what comes from it is not what Conn reads
	owner  string          // whose it is, to take turns
	wake   chan struct{}   // with one slot: there may be room
	closed chan struct{}
	once   sync.Once

	out scanner // owned by who writes

	// Owned by who reads, while it does.
	size    int
	pool    mem.BufferPool
	buf     *[]byte
	n       int
	failed  error
	attempt func(fd uintptr) bool

	mu    sync.Mutex  // held for memory only, and taken before the budget's
	in    messages    // what came; without streams when the connection is closed
	noted state       // what the budget knows
	holds atomic.Bool // something that counts: noted.large > 0

	// Owned by the budget.
	counted state
	timer   *time.Timer // while it holds something
	held    int         // ticks at which it was not read
	since   time.Time   // since when it may be judged by others who wait
	seen    int         // counted.total at since
	markAt  time.Time   // when the stall time began
	mark    int         // counted.total at markAt
}

// A state is what requests hold that are not whole, and what they have got, ever.
type state struct{ large, total int }

var errRefused = errors.New("the connection was closed: too much is unfinished")

// Conn returns a connection that keeps to the budget, and is c in all else. c is at its
// beginning, after TLS. plain says that c reads what the system does: there is no TLS.
func (b *Budget) Conn(c net.Conn, plain bool) *Conn {
	conn := &Conn{
		Conn: c, budget: b, owner: shares.Owner(c.RemoteAddr()),
		wake: make(chan struct{}, 1), closed: make(chan struct{}), in: newMessages(),
	}
	if s, ok := c.(syscall.Conn); ok && plain && hasRaw {
		if raw, err := s.SyscallConn(); err == nil {
			conn.raw, conn.attempt = raw, conn.try
		}
	}
	return conn
}

// Read implements [net.Conn].
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	return n, c.took(b[:n], err)
}

// Write implements [net.Conn].
func (c *Conn) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		f, _, r, begins, _, _ := c.out.next(rest)
		if rest = r; begins && f.ends() {
			c.mu.Lock()
			c.in.closed(f.stream)
			c.note()
			c.mu.Unlock()
		}
	}
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		close(c.closed)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.in.open, c.in.large = nil, 0
		c.note()
	})
	return err
}

// wait returns when the connection may be read.
func (c *Conn) wait() error {
	if !c.holds.Load() {
		return nil
	}
	b := c.budget
	var late <-chan time.Time
	for {
		b.mu.Lock()
		may := b.may(c)
		b.mu.Unlock()
		if may {
			return nil
		}
		if late == nil {
			t := time.NewTimer(maxWait)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-c.wake:
		case <-c.closed:
			return net.ErrClosed
		case <-late:
			c.refuse(TooLong)
			return errRefused
		}
	}
}

// took follows what was read, and returns the error of reading.
func (c *Conn) took(b []byte, err error) error {
	c.mu.Lock()
	if c.in.open == nil {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.in.received(b)
	over := c.note()
	c.mu.Unlock()
	if over {
		c.refuse(TooMuch)
		return errRefused
	}
	return err
}

// note tells the budget what has changed, and reports whether there is too much. c.mu is
// held.
func (c *Conn) note() (over bool) {
	now := state{c.in.large, c.in.total}
	if now == c.noted {
		return false
	}
	c.noted = now
	c.holds.Store(now.large > 0)
	return c.budget.note(c, now)
}

// refuse closes the connection.
func (c *Conn) refuse(why Reason) {
	_ = c.Close()
	c.budget.refused(c.RemoteAddr(), why)
}

// look is called at each tick while something is held.
func (c *Conn) look() {
	b := c.budget
	b.mu.Lock()
	_, holds := b.holding[c]
	slow := holds && b.judge(c, time.Now())
	if holds && !slow {
		c.timer.Reset(tick)
	}
	b.mu.Unlock()
	if slow {
		c.refuse(TooSlow)
	}
}

// begin is when the connection has a tick before it is judged by others who wait. The
// budget's lock is held.
func (c *Conn) begin(now time.Time) { c.since, c.seen = now, c.counted.total }

func (c *Conn) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
