// Package rate says how long those wait who come faster than they are taken. It knows
// nothing of what comes, reads no clock, and starts no goroutine.
package rate

import (
	"time"
)

// Burst is how long somebody may have been silent and catch up: ten times as many may come
// at once as in a second.
const Burst = 10 * time.Second

// A Pace spreads what comes over time. The zero value lets the first ones pass at
// once.
type Pace struct{ until time.Time } // when all that came would have been due, one by one

// Take says how long n of them have to wait that come now, at a rate of so many a second;
// negative: any number.
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

// takeAll is Take of something that may be silent for another time, and for [Longest].
func (p *Pace) takeAll(now time.Time, n, rate int, burst time.Duration) time.Duration {
	p.add(now, min(n, rate*int((burst+Longest)/time.Second)), rate) // more than that does not count, and cannot overflow
	if most := now.Add(burst + Longest); p.until.After(most) {
		p.until = most
	}
	return p.until.Sub(now) - burst
}
