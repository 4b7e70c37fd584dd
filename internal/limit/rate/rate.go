// Package rate is a token bucket per client address, shared fairly by the connections of the address.
// It computes how long a request must wait. It reads no clock and starts no goroutine.
package rate

import (
	"time"
)

// Burst is the depth of a bucket: after a silence, ten times as many requests may arrive at once as in a
// second.
const Burst = 10 * time.Second

// A Pace is one token bucket. The zero value is full.
type Pace struct{ until time.Time } // when all requests so far would have been due, one by one

// Take takes n requests and returns how long they must wait; a result of zero or less is no wait. The
// rate is in requests a second; if negative, there is no limit.
func (p *Pace) Take(now time.Time, n, rate int) time.Duration {
	if rate < 0 {
		return 0
	}
	p.add(now, n, rate)
	return p.until.Sub(now) - Burst
}

func (p *Pace) add(now time.Time, n, rate int) {
	if p.until.Before(now) {
		p.until = now
	}
	p.until = p.until.Add(time.Second / time.Duration(rate) * time.Duration(n))
}

// takeAll is like Take with a bucket of another depth and a wait of at most [Longest].
func (p *Pace) takeAll(now time.Time, n, rate int, burst time.Duration) time.Duration {
	p.add(now, min(n, rate*int((burst+Longest)/time.Second)), rate) // a larger n changes nothing, and could overflow
	if most := now.Add(burst + Longest); p.until.After(most) {
		p.until = most
	}
	return p.until.Sub(now) - burst
}
