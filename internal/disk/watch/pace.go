package watch

import (
	"context"
	"time"
)

// A Pace says when to look at files again.
type Pace struct {
	Quiet time.Duration // after the last hint of a change
	Most  time.Duration // after the first hint, even if there are always more
	Poll  time.Duration // after the last look, without any hint
}

// Wait waits until it is time, and reports whether it is: ctx may be done before. It looks at
// again, if that is not zero, though nothing hints at a change. An order is not put off, and is
// returned.
func Wait[O any](ctx context.Context, p Pace, hints <-chan struct{}, orders <-chan O, again time.Time) (o O, ok bool) {
	poll := time.NewTimer(p.rest(again))
	defer poll.Stop()
	quiet := time.NewTimer(p.Quiet)
	defer quiet.Stop()
	quiet.Stop()
	var first time.Time // hint; zero: none
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

// rest returns how long nothing is done without a hint.
func (p Pace) rest(again time.Time) time.Duration {
	if again.IsZero() {
		return p.Poll
	}
	return min(p.Poll, max(time.Until(again), 0))
}
