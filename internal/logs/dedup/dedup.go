// Package dedup keeps a log short: what is said again and again is a line or a few,
// and one more that counts. It writes nothing itself, and reads no clock but for its timers.
package dedup

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
)

// Within is how long lines of the same reason are counted together. One mistake in the
// configuration is refused by a whole fleet, and one in a fleet's clients made by all.
const Within = 10 * time.Second

// Reasons and who gives them come from clients, so what is remembered is bounded.
const (
	// MaxReasons is how many reasons are remembered. A new one takes the place of the
	// oldest, which is then counted no more: a flood makes lines more, and hides none.
	MaxReasons = 1000

	// Share is how many reasons one teller may give anew while they are remembered. All
	// that it gives beyond them counts as one.
	Share = 10

	// Named is how many of those who gave a reason again are named with the count.
	Named = 5
)

// A Counter counts what is said for the same reason. It is safe for concurrent use, and
// its zero value is ready to use.
type Counter struct {
	mu     sync.Mutex
	open   map[reason]*repeated
	shares map[string]int // reasons of who gave them first
	order  list.List      // of *repeated, the oldest first
}

// A reason with a teller is all that this teller says beyond its share.
type reason struct{ text, teller string }

type repeated struct {
	why    reason
	teller string // who gave it first
	said   int    // lines that were told
	n      int    // lines that were not, since the last count
	by     []string
	tell   func(n int, by []string)
	timer  *time.Timer
	at     *list.Element
}

// Say reports whether a line is to be logged: the reason was given less than most times
// lately. If it was not, tell is called when the time is over, with the number of
// lines that were left out since, and the first few who gave them: the newest tell that
// was given, by any goroutine.
func (c *Counter) Say(teller, why string, most int, tell func(n int, by []string)) bool {
	now, displaced := c.say(teller, reason{text: why}, most, tell)
	displaced()
	return now
}

func (c *Counter) say(teller string, why reason, most int, tell func(n int, by []string)) (now bool, displaced func()) {
	displaced = func() {}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[why] == nil && c.shares[teller] >= Share {
		why = reason{teller: teller}
	}
	if e := c.open[why]; e != nil {
		if e.said < most {
			e.said++
			return true, displaced
		}
		e.n, e.tell = e.n+1, tell
		if len(e.by) < Named && !slices.Contains(e.by, teller) {
			e.by = append(e.by, teller)
		}
		return false, displaced
	}
	if len(c.open) >= MaxReasons {
		oldest := c.order.Front().Value.(*repeated)
		oldest.timer.Stop()
		displaced = oldest.count()
		c.forget(oldest)
	}
	if c.open == nil {
		c.open, c.shares = map[reason]*repeated{}, map[string]int{}
	}
	e := &repeated{why: why, teller: teller, said: 1}
	c.open[why], e.at = e, c.order.PushBack(e)
	c.shares[teller]++
	e.timer = time.AfterFunc(Within, func() { c.over(e) })
	return true, displaced
}

// Full reports whether a line for a reason would not be logged now.
func (c *Counter) Full(why string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.open[reason{text: why}]
	return e != nil && e.said >= most
}

// over tells what was repeated. It is called by a timer.
func (c *Counter) over(e *repeated) { _ = panics.Do(func() { c.due(e)() }) }

// due returns what tells what was repeated, and keeps counting while it is.
func (c *Counter) due(e *repeated) (tell func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tell = func() {}
	switch {
	case c.open[e.why] != e: // it was displaced
	case e.n == 0:
		c.forget(e)
	default:
		tell = e.count()
		e.said = 1 // what goes on and was said once need not be said once more
		c.order.MoveToBack(e.at)
		e.timer = time.AfterFunc(Within, func() { c.over(e) })
	}
	return tell
}

func (c *Counter) forget(e *repeated) {
	delete(c.open, e.why)
	c.order.Remove(e.at)
	if c.shares[e.teller]--; c.shares[e.teller] == 0 {
		delete(c.shares, e.teller)
	}
}

// count begins to count anew, and returns what tells the count. It is called without the
// lock.
func (e *repeated) count() func() {
	n, by, tell := e.n, e.by, e.tell
	e.n, e.by, e.tell = 0, nil, nil
	return func() {
		if n > 0 {
			_ = panics.Do(func() { tell(n, by) }) // a logger that panics is told of nowhere
		}
	}
}
