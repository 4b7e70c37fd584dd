package server

import (
	"sync"
	"time"
)

// timers is a pool of timers. Each write needs a deadline, which rarely passes, and an idle stream needs no timer.
type timers struct{ pool sync.Pool }

// take returns a timer that fires after d.
func (t *timers) take(d time.Duration) *time.Timer {
	if old, ok := t.pool.Get().(*time.Timer); ok {
		old.Reset(d)
		return old
	}
	return time.NewTimer(d)
}

// give puts a timer back. The caller must not use the timer any more. "For a chan-based timer created with NewTimer, as
// of Go 1.23, any receive from t.C after Stop has returned is guaranteed to block".
func (t *timers) give(old *time.Timer) {
	old.Stop()
	t.pool.Put(old)
}
