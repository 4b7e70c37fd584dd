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

// A Conn is a connection whose requests count against a budget. Like any net.Conn it has one reader and one
// writer at a time.
type Conn struct {
	net.Conn
	budget *Budget
	socket syscall.RawConn // nil if there is none
	raw    syscall.RawConn // socket; nil if TLS decodes its bytes

	out replies // owned by the writing goroutine

	// Owned by the reading goroutine.
	size, n    int32 // size of the buffer, bytes read into it
	pool       mem.BufferPool
	buf        *[]byte
	failed     error
	attempt    func(fd uintptr) bool
	streamRate streamRate

	mu     sync.Mutex    // never held during I/O; locked before the budget's lock
	in     messages      // parses the received bytes
	noted  state         // the state that the budget knows
	delays chan struct{} // closed with the connection, to end a delay of a read; nil if no read was ever delayed
	watch  *time.Timer   // checks half-received requests for progress; nil while there are none

	holds  atomic.Bool // noted.large > 0
	unread atomic.Bool // the reader waits for the budget
	gone   atomic.Bool // the client had closed the connection when a stream was read
}

// A state is the size of the half-received requests that count, and the number of request bytes received
// since the connection began.
type state struct{ large, total int }

var errRefused = errors.New("connection closed: too many bytes of unfinished requests")

// Conn wraps a connection so that it counts against the budget. No byte of c may have been read or written,
// except by the TLS handshake. Set plain if c has no TLS.
func (b *Budget) Conn(c net.Conn, plain bool) *Conn {
	conn := &Conn{Conn: c, budget: b, in: newMessages()}
	b.conns.Store(c.RemoteAddr(), conn)
	if s, ok := c.(syscall.Conn); ok && hasRaw {
		if raw, err := s.SyscallConn(); err == nil {
			conn.socket = raw
			if plain {
				conn.raw, conn.attempt = raw, conn.try
			}
		}
	}
	return conn
}

// hangUpInterval is the time between two checks whether a client has closed a connection that is not read (SAFE-14).
const hangUpInterval = 250 * time.Millisecond

// Gone reports whether the client of the connection from an address has closed it. Bytes that open further streams may
// still be read.
func (b *Budget) Gone(peer net.Addr) bool {
	c, ok := b.conns.Load(peer)
	return ok && c.(*Conn).gone.Load()
}

// hungUp reports whether the client has closed the connection. Bytes of it may be unread.
func (c *Conn) hungUp() (gone bool) {
	if c.socket == nil {
		return false
	}
	err := c.socket.Control(func(fd uintptr) { gone = closedByPeer(fd) })
	return gone || err != nil
}

// guarded calls f. A panic in f closes the connection and is reported; it would end the process otherwise,
// because the calling goroutines belong to gRPC and to timers (SAFE-8).
func (c *Conn) guarded(f func() error) (err error) {
	if p := panics.Do(func() { err = f() }); p != nil {
		_ = panics.Do(func() { _ = c.Conn.Close() })
		_ = panics.Do(c.end)
		c.report(p)
		return errRefused
	}
	return err
}

func (c *Conn) report(p *panics.Panic) {
	_ = panics.Do(func() { c.budget.panicked(c.RemoteAddr(), p) })
}

// Read implements [net.Conn].
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	return n, c.received(b[:n], err)
}

// Write implements [net.Conn].
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.guarded(func() error { c.sending(b); return nil }); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// sending parses bytes that are about to be written.
func (c *Conn) sending(b []byte) {
	for len(b) > 0 {
		f, begins, grant, rest := c.out.next(b)
		b = rest
		ends := begins && f.ends()
		if ends || grant > 0 && f.stream != 0 {
			c.sent(f.stream, ends, grant)
		}
	}
}

// sent records a frame of the server: it ends a stream, or grants the client n more bytes.
func (c *Conn) sent(stream uint32, ends bool, grant int) {
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
		c.report(p)
	}
	return err
}

// end releases everything that the connection holds.
func (c *Conn) end() {
	c.budget.conns.CompareAndDelete(c.RemoteAddr(), c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.end()
	if c.watch != nil {
		c.watch.Stop()
	}
	c.endDelay()
	c.note()
}

// wait blocks until the connection may be read.
func (c *Conn) wait() error {
	if c.streamRate.wait <= 0 && !c.holds.Load() {
		return nil
	}
	return c.guarded(c.queue)
}

// queue blocks until the rate limit and the budget allow a read.
func (c *Conn) queue() error {
	if c.streamRate.wait > 0 {
		if err := c.delayRead(); err != nil {
			return err
		}
	}
	if !c.holds.Load() {
		return nil
	}
	defer c.unread.Store(false)
	var look *time.Timer
	left := maxTurnWait
	for {
		h := c.budget.ask(c)
		if h == nil {
			return nil
		}
		c.unread.Store(true)
		if look == nil {
			look = time.NewTimer(hangUpInterval)
			defer look.Stop()
		}
		for woken := false; !woken; {
			select {
			case <-h.wake:
				woken = true
			case <-look.C:
				left -= hangUpInterval
				switch {
				case left <= 0:
					c.refuse(TooLong)
					return errRefused
				case c.hungUp():
					return net.ErrClosed
				}
				look.Reset(hangUpInterval)
			}
		}
	}
}

// received parses bytes that were read, and returns the error of the read or of a limit.
func (c *Conn) received(b []byte, err error) error {
	return c.guarded(func() error {
		opened, ended, over, closed := c.parse(b)
		if closed {
			return net.ErrClosed
		}
		if opened > 0 && c.hungUp() {
			c.gone.Store(true)
		}
		for range opened { // let the handlers of new streams run: each waiting one costs some KiB
			runtime.Gosched()
		}
		if ended > 0 {
			c.limitRate(ended)
		}
		if over {
			c.refuse(TooMuch)
			return errRefused
		}
		return err
	})
}

// parse parses received bytes. It returns how many streams they opened and ended, and whether the connection
// exceeds the budget.
func (c *Conn) parse(b []byte) (opened, ended int, over, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in.ended {
		return 0, 0, false, true
	}
	n := len(c.in.open)
	c.in.receive(b)
	ended, c.in.gone = int(c.in.gone), 0
	return len(c.in.open) - n, ended, c.note(), false
}

// note passes a changed state to the budget, and reports whether the connection exceeds it. The caller holds
// c.mu.
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
	c.noted = now // after the call: if it panics, end calls it again
	return over
}

// refuse closes the connection.
func (c *Conn) refuse(why Reason) {
	_ = c.Close()
	c.budget.refused(c.RemoteAddr(), why)
}

// look is called at each tick while the connection counts.
func (c *Conn) look() {
	_ = c.guarded(func() error {
		if c.budget.slow(c) {
			c.refuse(TooSlow)
		}
		return nil
	})
}

// stalled is called several times within the stall time while there are half-received requests.
func (c *Conn) stalled() {
	_ = c.guarded(func() error {
		if c.stalls() {
			c.refuse(TooSlow)
		}
		return nil
	})
}

// stalls reports whether a half-received request makes no progress. It restarts the timer while there are
// any.
func (c *Conn) stalls() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.in.stalls(c.unread.Load()):
		return true
	case c.in.parts > 0:
		c.watch.Reset(c.budget.stall / looks)
	default: // an idle connection needs no timer
		c.watch = nil
	}
	return false
}
