package server

import (
	"sync"
	"time"
)

// timers are those that no stream needs now: each write has a deadline, which seldom
// passes, and an idle stream has no timer.
type timers struct{ pool sync.Pool }

// take returns a timer that fires after d.
func (t *timers) take(d time.Duration) *time.Timer {
	if old, ok := t.pool.Get().(*time.Timer); ok {
		old.Reset(d)
		return old
	}
	return time.NewTimer(d)
}

// give takes a timer back, of which its user must know no more. "For a chan-based timer
// created with NewTimer, as of Go 1.23, any receive from t.C after Stop has returned is
// guaranteed to block".
func (t *timers) give(old *time.Timer) {
	old.Stop()
	t.pool.Put(old)
}
