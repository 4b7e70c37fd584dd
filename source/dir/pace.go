package dir

import (
	"context"
	"time"
)

// A pace says when to reload.
type pace struct {
	quiet time.Duration // after the last hint of a change
	most  time.Duration // after the first hint, even if there are always more
	poll  time.Duration // after the last reload, without any hint
}

// run calls reload at its time until ctx is done, and when reload asked for it. An
// order reloads at once.
func (p pace) run(ctx context.Context, hints <-chan struct{}, orders <-chan order, again time.Time, reload func(order) time.Time) {
	poll := time.NewTimer(p.rest(again))
	defer poll.Stop()
	quiet := time.NewTimer(p.quiet)
	defer quiet.Stop()
	quiet.Stop()
	var first time.Time // hint since the last reload; zero: none
	for {
		var o order
		select {
		case <-ctx.Done():
			return
		case <-hints:
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(min(p.quiet, p.most-time.Since(first)))
			continue
		case o = <-orders:
		case <-quiet.C:
		case <-poll.C:
		}
		quiet.Stop()
		first = time.Time{}
		poll.Reset(p.rest(reload(o)))
	}
}

// rest returns how long nothing is done without a hint.
func (p pace) rest(again time.Time) time.Duration {
	if again.IsZero() {
		return p.poll
	}
	return min(p.poll, max(time.Until(again), 0))
}
