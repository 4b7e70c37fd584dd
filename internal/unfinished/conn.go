package unfinished

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"
)

// A Conn is a connection whose requests count against a budget. As of any net.Conn, one
// goroutine reads and one writes at a time.
type Conn struct {
	net.Conn
	budget *Budget
	raw    syscall.RawConn // nil: there is none, or what comes from it is not what Conn reads

	out replies // owned by who writes

	// Owned by who reads, while it does.
	size    int
	pool    mem.BufferPool
	buf     *[]byte
	n       int
	failed  error
	attempt func(fd uintptr) bool
	haste   haste

	mu    sync.Mutex    // held for memory only, and taken before the budget's
	in    messages      // what came
	noted state         // what the budget knows
	holds atomic.Bool   // something that counts: noted.large > 0
	rests chan struct{} // closed when the connection is; nil: it has never been read later
	watch *time.Timer   // looks whether what has begun comes on; nil: nothing had begun when it last did

	unread atomic.Bool // who reads waits, since it may not
}

// A state is what requests hold that are not whole, and what they have got, ever.
type state struct{ large, total int }

var errRefused = errors.New("the connection was closed: too much is unfinished")

// Conn returns a connection that keeps to the budget, and is c in all else. c is at its
// beginning, after TLS. plain says that c reads what the system does: there is no TLS.
func (b *Budget) Conn(c net.Conn, plain bool) *Conn {
	conn := &Conn{Conn: c, budget: b, in: newMessages()}
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
		f, begins, grant, r := c.out.next(rest)
		rest = r
		ends := begins && f.ends()
		if !ends && (grant == 0 || f.stream == 0) {
			continue
		}
		c.mu.Lock()
		if ends {
			c.in.closed(f.stream)
		} else {
			c.in.granted(f.stream, grant)
		}
		c.note()
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.end()
	if c.watch != nil {
		c.watch.Stop()
	}
	c.note()
	c.rouse()
	return err
}

// wait returns when the connection may be read.
func (c *Conn) wait() error {
	if c.haste.wait > 0 {
		if err := c.rest(); err != nil {
			return err
		}
	}
	if !c.holds.Load() {
		return nil
	}
	b := c.budget
	defer c.unread.Store(false)
	var late <-chan time.Time
	for {
		b.mu.Lock()
		h := b.may(c)
		b.mu.Unlock()
		if h == nil {
			return nil
		}
		if c.unread.Store(true); late == nil {
			t := time.NewTimer(maxWait)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-h.wake:
		case <-late:
			c.refuse(TooLong)
			return errRefused
		}
	}
}

// took follows what was read, and returns the error of reading.
func (c *Conn) took(b []byte, err error) error {
	c.mu.Lock()
	if c.in.ended {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.in.received(b)
	ended := c.in.over
	c.in.over = 0
	over := c.note()
	c.mu.Unlock()
	if ended > 0 {
		c.hurried(ended)
	}
	if over {
		c.refuse(TooMuch)
		return errRefused
	}
	return err
}

// note tells the budget what has changed, and reports whether there is too much. c.mu is
// held.
func (c *Conn) note() (over bool) {
	if c.in.parts > 0 && c.watch == nil {
		c.watch = time.AfterFunc(c.budget.stall/looks, c.follow)
	}
	now := state{c.in.large, c.in.total}
	if now == c.noted || now.large == 0 && c.noted.large == 0 {
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
	h := b.holding[c]
	slow := h != nil && b.judge(h, time.Now())
	if h != nil && !slow {
		h.timer.Reset(tick)
	}
	b.mu.Unlock()
	if slow {
		c.refuse(TooSlow)
	}
}

// follow is called some times within the stall time, while something has begun.
func (c *Conn) follow() {
	c.mu.Lock()
	slow := c.in.stalls(c.unread.Load())
	switch {
	case slow:
	case c.in.parts > 0:
		c.watch.Reset(c.budget.stall / looks)
	default: // an idle connection has no timer
		c.watch = nil
	}
	c.mu.Unlock()
	if slow {
		c.refuse(TooSlow)
	}
}
