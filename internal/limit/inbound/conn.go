package inbound

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/chancery-xds/chancery/internal/panics"
)

// A Conn is a connection whose requests count against a budget. As of any net.Conn, one
// goroutine reads and one writes at a time.
type Conn struct {
	net.Conn
	budget *Budget
	raw    syscall.RawConn // nil: there is none, or what comes from it is not what Conn reads

	out replies // owned by who writes

	// Owned by who reads, while it does.
	size, n int32 // of a buffer, and what was read
	pool    mem.BufferPool
	buf     *[]byte
	failed  error
	attempt func(fd uintptr) bool
	haste   haste

	mu    sync.Mutex    // held for memory only, and taken before the budget's
	in    messages      // what came
	noted state         // what the budget knows
	rests chan struct{} // closed when the connection is; nil: it has never been read later
	watch *time.Timer   // looks whether what has begun comes on; nil: nothing had begun when it last did

	holds  atomic.Bool // something that counts: noted.large > 0
	unread atomic.Bool // who reads waits, since it may not
}

// A state is what requests hold that are not whole, and what they have got, ever.
type state struct{ large, total int }

var errRefused = errors.New("connection closed: too many bytes of unfinished requests")

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

// guarded calls f, which follows what passes. Those who read, write and time connections are
// not ours: a panic would end the process. It closes this connection, and is told of.
func (c *Conn) guarded(f func() error) (err error) {
	if p := panics.Do(func() { err = f() }); p != nil {
		_ = panics.Do(func() { _ = c.Conn.Close() })
		_ = panics.Do(c.end)
		c.tell(p)
		return errRefused
	}
	return err
}

func (c *Conn) tell(p *panics.Panic) {
	_ = panics.Do(func() { c.budget.panicked(c.RemoteAddr(), p) })
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
	if err := c.guarded(func() error { c.wrote(b); return nil }); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// wrote follows what is about to be written.
func (c *Conn) wrote(b []byte) {
	for len(b) > 0 {
		f, begins, grant, rest := c.out.next(b)
		b = rest
		ends := begins && f.ends()
		if ends || grant > 0 && f.stream != 0 {
			c.heard(f.stream, ends, grant)
		}
	}
}

// heard notes what the server says of a stream: it ends, or its client may send more.
func (c *Conn) heard(stream uint32, ends bool, grant int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ends {
		c.in.closed(stream)
	} else {
		c.in.granted(stream, grant)
	}
	c.note()
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	err := c.Conn.Close()
	if p := panics.Do(c.end); p != nil {
		c.tell(p)
	}
	return err
}

// end gives back what the connection holds.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.end()
	if c.watch != nil {
		c.watch.Stop()
	}
	c.rouse()
	c.note()
}

// wait returns when the connection may be read.
func (c *Conn) wait() error {
	if c.haste.wait <= 0 && !c.holds.Load() {
		return nil
	}
	return c.guarded(c.queue)
}

// queue returns when it is the connection's turn.
func (c *Conn) queue() error {
	if c.haste.wait > 0 {
		if err := c.rest(); err != nil {
			return err
		}
	}
	if !c.holds.Load() {
		return nil
	}
	defer c.unread.Store(false)
	var late <-chan time.Time
	for {
		h := c.budget.ask(c)
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
	return c.guarded(func() error {
		opened, ended, over, closed := c.follow(b)
		if closed {
			return net.ErrClosed
		}
		for range opened { // who handles them is not left behind: each that waits costs some KiB
			runtime.Gosched()
		}
		if ended > 0 {
			c.hurried(ended)
		}
		if over {
			c.refuse(TooMuch)
			return errRefused
		}
		return err
	})
}

// follow says how many streams are more by what was read and how many have ended, and
// whether too much is held.
func (c *Conn) follow(b []byte) (opened, ended int, over, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in.ended {
		return 0, 0, false, true
	}
	n := len(c.in.open)
	c.in.received(b)
	ended, c.in.over = int(c.in.over), 0
	return len(c.in.open) - n, ended, c.note(), false
}

// note tells the budget what has changed, and reports whether there is too much. c.mu is
// held.
func (c *Conn) note() (over bool) {
	if c.in.parts > 0 && c.watch == nil {
		c.watch = time.AfterFunc(c.budget.stall/looks, c.stalled)
	}
	now := state{c.in.large, c.in.total}
	if now == c.noted || now.large == 0 && c.noted.large == 0 {
		return false
	}
	c.holds.Store(now.large > 0)
	over = c.budget.note(c, now)
	c.noted = now // not before: if telling it panics, end tells it again
	return over
}

// refuse closes the connection.
func (c *Conn) refuse(why Reason) {
	_ = c.Close()
	c.budget.refused(c.RemoteAddr(), why)
}

// look is called at each tick while something is held.
func (c *Conn) look() {
	_ = c.guarded(func() error {
		if c.budget.slow(c) {
			c.refuse(TooSlow)
		}
		return nil
	})
}

// stalled is called some times within the stall time, while something has begun.
func (c *Conn) stalled() {
	_ = c.guarded(func() error {
		if c.stalls() {
			c.refuse(TooSlow)
		}
		return nil
	})
}

// stalls reports whether something that has begun does not come on, and looks again later if
// something has.
func (c *Conn) stalls() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.in.stalls(c.unread.Load()):
		return true
	case c.in.parts > 0:
		c.watch.Reset(c.budget.stall / looks)
	default: // an idle connection has no timer
		c.watch = nil
	}
	return false
}
