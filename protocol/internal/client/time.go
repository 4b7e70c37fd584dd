package client

import (
	"cmp"
	"container/heap"
	"fmt"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A timer is the timer of a name. It ends with the TTL of the resource held, or with the
// timeout of the request.
type timer struct {
	at   time.Time
	typ  *typeState
	name string
	of   *nameState // nameState.timer is the place in the heap
}

// timers is a heap: the timer that ends next is first. Timers that end at the same time are
// in push order.
type timers []*timer

func (h timers) Len() int { return len(h) }
func (h timers) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.typ.typ.Rank(), b.typ.typ.Rank()), strings.Compare(a.typ.typ.URL, b.typ.typ.URL), strings.Compare(a.name, b.name)) < 0
}
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].of.timer, h[j].of.timer = int32(i+1), int32(j+1)
}
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.of.timer = int32(len(*h))
}
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.of.timer = 0
	return t
}

// Advance sets the current time and ends all TTLs and timeouts that are over. Later calls start
// their timers at this time, so call Advance first.
func (c *Client) Advance(now time.Time) {
	c.now = now
	for len(c.timers) > 0 && !c.timers[0].at.After(now) {
		t := c.timers[0]
		n := t.of
		c.stopTimer(n)
		if n.res != nil {
			t.typ.complete = false // the client no longer holds all resources of the version
			c.drop(t.typ, t.name, n, ErrExpired)
			continue
		}
		err := fmt.Errorf("%w within %v", ErrSilent, c.opts.Timeout)
		if c.opts.Transient {
			n.missing = timedOut
			c.addEvent(t.typ, Event{Kind: TimedOut, Name: t.name, Err: err})
		} else {
			c.setAbsent(t.typ, t.name, n, err)
		}
	}
}

// Deadline returns the time at which [Client.Advance] must be called next; the zero time: never.
func (c *Client) Deadline() time.Time {
	if len(c.timers) == 0 {
		return time.Time{}
	}
	return c.timers[0].at
}

// startTTL starts the TTL of a resource, or restarts a running TTL: "If the TTL expires without the
// resource having been refreshed, the resource is removed." (CLI-8) A zero ttl stops it.
func (c *Client) startTTL(ts *typeState, name string, n *nameState, ttl time.Duration) {
	if ttl <= 0 {
		c.stopTimer(n)
		return
	}
	c.startTimer(ts, name, n, ttl)
}

// startTimeout starts the timeout of a name when its request is sent (CLI-3, gRFC A57). If the client
// already knows the resource, or knows that it does not exist, the name has no timeout: the server
// need not send that again.
func (c *Client) startTimeout(ts *typeState, name string, n *nameState) {
	if n.requested && name != xds.Wildcard && c.opts.Timeout > 0 && n.timer == 0 && n.status(ts, name) == Requested {
		c.startTimer(ts, name, n, c.opts.Timeout)
	}
}

func (c *Client) startTimer(ts *typeState, name string, n *nameState, d time.Duration) {
	at := c.now.Add(d)
	if n.timer > 0 {
		c.timers[n.timer-1].at = at
		heap.Fix(&c.timers, int(n.timer-1))
		return
	}
	heap.Push(&c.timers, &timer{at: at, typ: ts, name: name, of: n})
}

func (c *Client) stopTimer(n *nameState) {
	if n.timer > 0 {
		heap.Remove(&c.timers, int(n.timer-1))
	}
}
