package rate

import (
	"maps"
	"sync"
	"time"
)

// Owners have a pace each: the addresses from which clients come, each shared by all that
// its clients do. It is safe for concurrent use.
type Owners struct {
	rate, most int

	mu         sync.Mutex // held for memory only
	young, old map[string]*owner
}

// NewOwners returns owners of whom each may do so much in a second, any number if rate is
// negative. At least the last n are remembered, and at most twice as many: who is forgotten
// begins anew.
func NewOwners(n, rate int) *Owners {
	return &Owners{rate: rate, most: n, young: map[string]*owner{}}
}

// Of returns the part that a connection has in the pace of an owner. Connections are told
// apart by conn, which must be fit to be the key of a map.
func (o *Owners) Of(name string, conn any) *Shared {
	return &Shared{of: o.find(name), conn: conn}
}

func (o *Owners) find(name string) *owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.young[name]
	if s != nil {
		return s
	}
	if s = o.old[name]; s == nil {
		s = &owner{rate: o.rate}
	}
	if len(o.young) >= o.most {
		o.old, o.young = o.young, map[string]*owner{}
	}
	o.young[name] = s
	return s
}

// Longest is how long who has an owner waits at most. Many may wait at once; each comes once
// within that time, whatever the others have done.
const Longest = 30 * time.Second

// A Shared pace is the part of one connection in that of its owner. It is safe for
// concurrent use, and so are several of one connection: they are the same part.
type Shared struct {
	of   *owner
	conn any
}

// Take is as [Pace.Take], but for [Longest], and that nobody waits for what others of its
// owner do: of the second half of what may come at once, and of what may come later, each
// connection that makes use of it has the same part. What is left of that is for who wants
// more.
func (s *Shared) Take(now time.Time, n int) time.Duration {
	o := s.of
	if o.rate < 0 {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.pace.takeAll(now, n, o.rate, Burst)
	if all <= -half {
		o.conns = nil // it does not matter who it was
		return all
	}
	own := o.part(now, s.conn)
	return min(all, own.takeAll(now, n*len(o.conns), o.rate, half))
}

// half is how much of what may come at once is looked at to find who it is that comes.
const half = Burst / 2

// mostConns is of how many connections of an owner it is known what they do. Others are
// taken to be one.
const mostConns = 100_000

// An owner is what is known of one.
type owner struct {
	rate int

	mu    sync.Mutex // held for memory only
	pace  Pace
	conns map[any]*Pace // nil unless half of what may come at once has; those that are behind what they may do
	swept time.Time
}

// part returns the pace of a connection among those that make use of the owner's. o.mu is
// held.
func (o *owner) part(now time.Time, conn any) *Pace {
	if o.conns == nil {
		o.conns, o.swept = map[any]*Pace{}, now
	}
	if now.Sub(o.swept) >= time.Second {
		o.swept = now
		maps.DeleteFunc(o.conns, func(_ any, p *Pace) bool { return !p.until.After(now) })
	}
	p := o.conns[conn]
	if p == nil && len(o.conns) >= mostConns {
		conn = nil
		p = o.conns[conn]
	}
	if p == nil {
		p = new(Pace)
		o.conns[conn] = p
	}
	return p
}
