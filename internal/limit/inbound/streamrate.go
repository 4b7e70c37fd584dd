package inbound

import (
	"net"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/rate"
)

// streamRate limits the rate at which the streams of a connection end. A client that opens streams and resets them
// at once stays below the limit of open streams, although the server starts and ends each one
// (CVE-2023-44487, "rapid reset"; the same if the client provokes the server into resetting them).
//
// Only ended streams count, no matter which side ended them: a client without ADS opens thousands of streams
// at once and keeps them. Reads from a connection above the rate are delayed. The connection is not closed,
// because this would end all its good streams and let the client start over. A client that reconnects is
// limited by the rate of its address.
type streamRate struct {
	pace     rate.Pace
	all      *rate.Shared  // of the client's address; nil until a stream has ended
	wait     time.Duration // delay of the next read
	reported bool
}

// cost is the number of tokens that an ended stream takes.
const cost = 10

// limitRate counts ended streams. The reading goroutine calls it.
func (c *Conn) limitRate(ended int) {
	h := &c.streamRate
	if h.all == nil {
		h.all = c.budget.pace(c.RemoteAddr())
	}
	now := time.Now()
	h.wait = max(h.pace.Take(now, ended, c.budget.streams), h.all.Take(now, ended*cost))
	if h.wait > 0 && !h.reported {
		h.reported = true
		c.budget.hasty(c.RemoteAddr())
	}
}

// delayRead blocks until the delay is over, or returns an error when the connection is closed. If the client has closed
// it, the unread streams are dropped.
func (c *Conn) delayRead() error {
	closed := c.beginDelay()
	if closed == nil {
		return net.ErrClosed
	}
	c.unread.Store(true)
	defer c.unread.Store(false)
	left := c.streamRate.wait
	c.streamRate.wait = 0
	t := time.NewTimer(min(left, hangUpInterval))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-closed:
			return net.ErrClosed
		}
		left -= hangUpInterval
		switch {
		case left <= 0:
			return nil
		case c.hungUp():
			return net.ErrClosed
		}
		t.Reset(min(left, hangUpInterval))
	}
}

// beginDelay returns a channel that is closed with the connection, or nil if the connection is closed already.
func (c *Conn) beginDelay() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in.ended {
		return nil
	}
	c.delays = make(chan struct{})
	return c.delays
}

// endDelay ends a delay because the connection is closed. The caller holds c.mu.
func (c *Conn) endDelay() {
	if c.delays != nil {
		close(c.delays)
		c.delays = nil // the connection may be closed twice
	}
}
