package watch

import (
	"context"
	"time"
)

// A Pace determines when to look at files again.
type Pace struct {
	Quiet time.Duration // after the last hint of a change
	Most  time.Duration // after the first hint, even if hints keep coming
	Poll  time.Duration // after the last look, without any hint
}

// Wait waits until the files should be read again. It returns at the time again, if that is not zero,
// even without a hint. An order ends the wait at once, and is returned. It returns false if ctx is
// done.
func Wait[O any](ctx context.Context, p Pace, hints <-chan struct{}, orders <-chan O, again time.Time) (o O, ok bool) {
	poll := time.NewTimer(p.rest(again))
	defer poll.Stop()
	quiet := time.NewTimer(p.Quiet)
	defer quiet.Stop()
	quiet.Stop()
	var first time.Time // when the first hint came; zero: none
	for {
		select {
		case <-ctx.Done():
			return o, false
		case <-hints:
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(min(p.Quiet, p.Most-time.Since(first)))
		case o = <-orders:
			return o, true
		case <-quiet.C:
			return o, true
		case <-poll.C:
			return o, true
		}
	}
}

// rest returns how long to wait without a hint.
func (p Pace) rest(again time.Time) time.Duration {
	if again.IsZero() {
		return p.Poll
	}
	return min(p.Poll, max(time.Until(again), 0))
}
