package inbound

import (
	"net"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/rate"
)

// A haste is how fast the streams of a connection come and go. A client that opens streams
// and resets them at once has no more of them open than it may, and the server starts
// each, and ends it (CVE-2023-44487, "rapid reset"; the same if the client has the server
// do the resetting).
//
// What counts is streams that have ended, whoever ended them: thousands that are opened at
// once, and stay, are what a client without ADS has. A connection that is too fast is read
// later, so that its client waits; it is not closed, for that would end all its good
// streams, and let it begin anew. Who begins anew by itself has the pace of its address.
type haste struct {
	pace rate.Pace
	all  *rate.Shared  // of its address; nil: no stream has ended yet
	wait time.Duration // until the connection may be read again
	told bool
}

// cost is how many requests a stream costs that comes and goes.
const cost = 10

// hurried is told, by who reads, how many streams have ended.
func (c *Conn) hurried(ended int) {
	h := &c.haste
	if h.all == nil {
		h.all = c.budget.pace(c.RemoteAddr())
	}
	now := time.Now()
	h.wait = max(h.pace.Take(now, ended, c.budget.streams), h.all.Take(now, ended*cost))
	if h.wait > 0 && !h.told {
		h.told = true
		c.budget.hasty(c.RemoteAddr())
	}
}

// rest returns when the connection may be read after its haste, or is closed.
func (c *Conn) rest() error {
	closed := c.resting()
	if closed == nil {
		return net.ErrClosed
	}
	c.unread.Store(true)
	defer c.unread.Store(false)
	t := time.NewTimer(c.haste.wait)
	defer t.Stop()
	c.haste.wait = 0
	select {
	case <-t.C:
		return nil
	case <-closed:
		return net.ErrClosed
	}
}

// resting returns what is closed when the connection is; nil: it is already.
func (c *Conn) resting() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in.ended {
		return nil
	}
	c.rests = make(chan struct{})
	return c.rests
}

// rouse ends a rest when the connection is closed. c.mu is held.
func (c *Conn) rouse() {
	if c.rests != nil {
		close(c.rests)
		c.rests = nil // it may be closed again
	}
}
