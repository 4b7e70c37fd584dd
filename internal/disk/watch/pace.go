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

	// Delay, if set, replaces Quiet and Most. It is called after each hint with the time of the first one. The
	// look is after this delay, unless another hint comes before it, and Wait returns the cause.
	Delay func(first time.Time) (time.Duration, Cause)
}

// A Cause is the reason why Wait returned.
type Cause int

const (
	Ended   Cause = iota // the context is done
	Ordered              // an order
	Settled              // after hints, Pace.Quiet or Pace.Most
	Early                // after hints, before the files are quiet: see Pace.Delay
	Polled               // without a hint: Pace.Poll, or the time again
)

// Wait waits until the files should be read again, and returns the reason. It returns at the time again,
// if that is not zero, even without a hint. An order ends the wait at once, and is returned.
func Wait[O any](ctx context.Context, p Pace, hints <-chan struct{}, orders <-chan O, again time.Time) (o O, why Cause) {
	poll := time.NewTimer(p.rest(again))
	defer poll.Stop()
	quiet := time.NewTimer(p.Quiet)
	defer quiet.Stop()
	quiet.Stop()
	var first time.Time // when the first hint came; zero: none
	for {
		select {
		case <-ctx.Done():
			return o, Ended
		case <-hints:
			if first.IsZero() {
				first = time.Now()
				poll.Stop() // a poll could see half of a change
			}
			var delay time.Duration
			delay, why = p.afterHint(first)
			quiet.Reset(delay)
		case o = <-orders:
			return o, Ordered
		case <-quiet.C:
			return o, why
		case <-poll.C:
			return o, Polled
		}
	}
}

// afterHint returns the delay from a hint until the look, and the reason of the look; first is the time of the
// first hint.
func (p Pace) afterHint(first time.Time) (time.Duration, Cause) {
	if p.Delay != nil {
		return p.Delay(first)
	}
	return min(p.Quiet, p.Most-time.Since(first)), Settled
}

// rest returns how long to wait without a hint.
func (p Pace) rest(again time.Time) time.Duration {
	if again.IsZero() {
		return p.Poll
	}
	return min(p.Poll, max(time.Until(again), 0))
}
