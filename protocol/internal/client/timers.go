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
	ts   *typeState
	name string
	of   *nameState // nameState.timer is the place in the heap
}

// timers is a heap: the timer that ends next is first. Timers that end at the same time are
// in push order.
type timers []*timer

func (h timers) Len() int { return len(h) }
func (h timers) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(a.at.Compare(b.at), comparePushOrder(a.ts, b.ts), strings.Compare(a.name, b.name)) < 0
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
		t.ts.stopTimer(t.of)
		if t.of.res != nil {
			t.ts.complete = false // the client no longer holds all resources of the version
			t.ts.drop(t.name, t.of, ErrExpired)
		} else {
			t.ts.timeOut(t.name, t.of)
		}
	}
}

// timeOut handles a name whose resource did not arrive in time (CLI-3).
func (ts *typeState) timeOut(name string, n *nameState) {
	err := fmt.Errorf("%w within %v", ErrSilent, ts.client.opts.Timeout)
	if !ts.client.opts.Transient {
		ts.setAbsent(name, n, err)
		return
	}
	n.missing = timedOut
	ts.addEvent(Event{Kind: TimedOut, Name: name, Err: err})
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
func (ts *typeState) startTTL(name string, n *nameState, ttl time.Duration) {
	if ttl <= 0 {
		ts.stopTimer(n)
		return
	}
	ts.startTimer(name, n, ttl)
}

// startTimeout starts the timeout of a name when its request is sent (CLI-3, gRFC A57). If the client
// already knows the resource, or knows that it does not exist, the name has no timeout: the server
// need not send that again.
func (ts *typeState) startTimeout(name string, n *nameState) {
	if n.requested && name != xds.Wildcard && ts.client.opts.Timeout > 0 && n.timer == 0 && ts.status(name, n) == Requested {
		ts.startTimer(name, n, ts.client.opts.Timeout)
	}
}

func (ts *typeState) startTimer(name string, n *nameState, d time.Duration) {
	at := ts.client.now.Add(d)
	if n.timer > 0 {
		ts.client.timers[n.timer-1].at = at
		heap.Fix(&ts.client.timers, int(n.timer-1))
		return
	}
	heap.Push(&ts.client.timers, &timer{at: at, ts: ts, name: name, of: n})
}

func (ts *typeState) stopTimer(n *nameState) {
	if n.timer > 0 {
		heap.Remove(&ts.client.timers, int(n.timer-1))
	}
}
