package server

import (
	"regexp"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/guard"
)

// One mistake in the configuration is refused by a whole fleet, and one in a
// fleet's clients made by all. What is logged for the same reason within this
// time is one line, and one more that counts.
const repeatsWithin = 10 * time.Second

// maxReasons bounds what is remembered: reasons are clients' texts. Beyond it
// all that is new counts as one.
const maxReasons = 1000

// repeats counts what is said again and again. The zero value is ready to use.
type repeats struct {
	mu   sync.Mutex
	open map[reason]*repeated
}

// A reason is what lines have in common that are summarised.
type reason struct{ url, text string }

type repeated struct {
	n    int
	tell func(n int) // logs the last of them
}

// digits differ between clients that mean the same: ports, lengths, addresses.
var digits = regexp.MustCompile(`[0-9]+`)

func mask(text string) string { return clip(digits.ReplaceAllLiteralString(text, "0")) }

// first reports whether nobody gave the reason lately. If somebody did, tell is
// called with the number of times it was given since, when the time is over.
func (r *repeats) first(why reason, tell func(n int)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[why] == nil && len(r.open) >= maxReasons {
		why = reason{}
	}
	if e := r.open[why]; e != nil {
		e.n, e.tell = e.n+1, tell
		return false
	}
	if r.open == nil {
		r.open = map[reason]*repeated{}
	}
	r.open[why] = &repeated{}
	time.AfterFunc(repeatsWithin, func() { r.over(why) })
	return true
}

// over tells what was repeated, and keeps counting while it is.
func (r *repeats) over(why reason) {
	r.mu.Lock()
	e := r.open[why]
	n, tell := e.n, e.tell
	if n == 0 {
		delete(r.open, why)
	} else {
		e.n, e.tell = 0, nil
		time.AfterFunc(repeatsWithin, func() { r.over(why) })
	}
	r.mu.Unlock()
	if n > 0 {
		_ = guard.Do(func() { tell(n) }) // a logger that panics is told of nowhere
	}
}
