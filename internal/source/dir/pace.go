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

// run calls reload at its time until ctx is done. A force reloads at once.
func (p pace) run(ctx context.Context, hints, force <-chan struct{}, reload func(force bool)) {
	poll := time.NewTimer(p.poll)
	defer poll.Stop()
	quiet := time.NewTimer(p.quiet)
	defer quiet.Stop()
	quiet.Stop()
	var first time.Time // hint since the last reload; zero: none
	for {
		forced := false
		select {
		case <-ctx.Done():
			return
		case <-hints:
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(min(p.quiet, p.most-time.Since(first)))
			continue
		case <-force:
			forced = true
		case <-quiet.C:
		case <-poll.C:
		}
		quiet.Stop()
		first = time.Time{}
		reload(forced)
		poll.Reset(p.poll)
	}
}
