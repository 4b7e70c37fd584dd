// Package dedup decides which log lines to drop as repetitions: a reason gets a few lines, then one line
// with the count of the others. It writes nothing itself.
package dedup

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
)

// Within is the time in which lines with the same reason are counted together. A whole fleet refuses the
// same mistake in the configuration at once.
const Within = 10 * time.Second

// Reasons and their sources come from clients, so memory is bounded.
const (
	// MaxReasons is the number of reasons in memory. A new one evicts the oldest, which is counted
	// no longer: a flood adds lines and hides none.
	MaxReasons = 1000

	// Share is the number of new reasons that one source may have in memory. All its further reasons
	// count as one.
	Share = 10

	// Named is the number of sources that are named with a count.
	Named = 5
)

// A Counter counts log lines by reason. It is safe for concurrent use, and its zero value is ready.
type Counter struct {
	mu     sync.Mutex
	open   map[reason]*repeated
	shares map[string]int // number of reasons by the source that gave them first
	order  list.List      // of *repeated, the oldest first
}

// A reason without text represents all reasons of a source beyond its share.
type reason struct{ text, source string }

// repeated counts the lines of one reason.
type repeated struct {
	why     reason
	source  string   // gave the reason first
	logged  int      // lines logged
	dropped int      // lines dropped since the last count
	by      []string // sources of the dropped lines, at most Named
	report  func(dropped int, by []string)
	timer   *time.Timer
	at      *list.Element
}

// Allow reports whether to log a line: its reason had fewer than most lines lately. If not, report is
// called once the time is over, by any goroutine, with the number of dropped lines and the first few
// sources. Of several report functions, the newest is called.
func (c *Counter) Allow(source, why string, most int, report func(dropped int, by []string)) bool {
	now, evicted := c.allow(source, reason{text: why}, most, report)
	evicted()
	return now
}

// allow returns in evicted the pending report of a reason that made room; call it without the lock.
func (c *Counter) allow(source string, why reason, most int, report func(dropped int, by []string)) (now bool, evicted func()) {
	evicted = func() {}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[why] == nil && c.shares[source] >= Share {
		why = reason{source: source}
	}
	if e := c.open[why]; e != nil {
		if e.logged < most {
			e.logged++
			return true, evicted
		}
		e.dropped, e.report = e.dropped+1, report
		if len(e.by) < Named && !slices.Contains(e.by, source) {
			e.by = append(e.by, source)
		}
		return false, evicted
	}
	if len(c.open) >= MaxReasons {
		oldest := c.order.Front().Value.(*repeated)
		oldest.timer.Stop()
		evicted = oldest.restart()
		c.forget(oldest)
	}
	if c.open == nil {
		c.open, c.shares = map[reason]*repeated{}, map[string]int{}
	}
	e := &repeated{why: why, source: source, logged: 1}
	c.open[why], e.at = e, c.order.PushBack(e)
	c.shares[source]++
	e.timer = time.AfterFunc(Within, func() { c.expire(e) })
	return true, evicted
}

// Full reports whether a line for a reason would be dropped now.
func (c *Counter) Full(why string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.open[reason{text: why}]
	return e != nil && e.logged >= most
}

// expire reports the dropped lines of a reason. A timer calls it.
func (c *Counter) expire(e *repeated) { _ = panics.Do(func() { c.due(e)() }) }

// due returns the report of a reason. It forgets the reason if no line was dropped lately.
func (c *Counter) due(e *repeated) (report func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	report = func() {}
	switch {
	case c.open[e.why] != e: // it was evicted
	case e.dropped == 0:
		c.forget(e)
	default:
		report = e.restart()
		e.logged = 1 // the report is the line of the new period
		c.order.MoveToBack(e.at)
		e.timer = time.AfterFunc(Within, func() { c.expire(e) })
	}
	return report
}

func (c *Counter) forget(e *repeated) {
	delete(c.open, e.why)
	c.order.Remove(e.at)
	c.shares[e.source]--
	if c.shares[e.source] == 0 {
		delete(c.shares, e.source)
	}
}

// restart sets the count to zero and returns a function that reports the old one; call it without the lock.
func (e *repeated) restart() func() {
	dropped, by, report := e.dropped, e.by, e.report
	e.dropped, e.by, e.report = 0, nil, nil
	return func() {
		if dropped > 0 {
			_ = panics.Do(func() { report(dropped, by) }) // a panic of the logger cannot be logged
		}
	}
}
