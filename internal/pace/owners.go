package pace

import (
	"sync"
	"time"
)

// Owners have a pace each: the addresses from which clients come, each shared by all that
// its clients do. It is safe for concurrent use.
type Owners struct {
	rate, most int

	mu         sync.Mutex // held for memory only
	young, old map[string]*Shared
}

// NewOwners returns owners of whom each may do so much in a second, any number if rate is
// negative. At least the last n are remembered, and at most twice as many: who is forgotten
// begins anew.
func NewOwners(n, rate int) *Owners {
	return &Owners{rate: rate, most: n, young: map[string]*Shared{}}
}

// Of returns the pace of an owner.
func (o *Owners) Of(name string) *Shared {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.young[name]
	if s != nil {
		return s
	}
	if s = o.old[name]; s == nil {
		s = &Shared{rate: o.rate}
	}
	if len(o.young) >= o.most {
		o.old, o.young = o.young, map[string]*Shared{}
	}
	o.young[name] = s
	return s
}

// Longest is how long who has an owner waits at most. Many may wait at once; each comes once
// within that time, whatever the others have done.
const Longest = 30 * time.Second

// A Shared pace is one of several who come. It is safe for concurrent use.
type Shared struct {
	rate int

	mu   sync.Mutex // held for memory only
	pace Pace
}

// Take is as [Pace.Take], but for [Longest].
func (s *Shared) Take(now time.Time, n int) time.Duration {
	if s.rate < 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.pace.Take(now, n, s.rate)
	if wait > Longest {
		wait = Longest
		s.pace.until = now.Add(Burst + Longest)
	}
	return wait
}
