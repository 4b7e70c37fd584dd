package rate

import (
	"maps"
	"sync"
	"time"
)

// Owners has a token bucket for each owner, which is the address of a client. It is safe for concurrent
// use.
type Owners struct {
	rate, most int

	mu         sync.Mutex // never held during I/O
	young, old map[string]*owner
}

// NewOwners returns buckets of the given rate in requests a second; if negative, there is no limit. It
// remembers at least the last n owners and at most 2n. A forgotten owner starts with a full bucket.
func NewOwners(n, rate int) *Owners {
	return &Owners{rate: rate, most: n, young: map[string]*owner{}}
}

// Of returns the share of a connection in the bucket of an owner. The key of the connection, conn, must be
// comparable.
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
	s = o.old[name]
	if s == nil {
		s = &owner{rate: o.rate}
	}
	if len(o.young) >= o.most {
		o.old, o.young = o.young, map[string]*owner{}
	}
	o.young[name] = s
	return s
}

// Longest is the longest wait of a [Shared] pace. Each waiting connection is served once within this time,
// whatever other connections of its owner do.
const Longest = 30 * time.Second

// A Shared pace is the share of one connection in the bucket of its owner. It is safe for concurrent use.
// Several Shared values of one connection are the same share.
type Shared struct {
	of   *owner
	conn any
}

// Take is like [Pace.Take] with two differences. A wait is at most [Longest]. Once half of the bucket is
// used, Take divides the rest and the refill equally among the connections that ask, so that no connection
// waits for the requests of another. A connection gets more than its share if others do not use theirs.
func (s *Shared) Take(now time.Time, n int) time.Duration {
	o := s.of
	if o.rate < 0 {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.pace.takeAll(now, n, o.rate, Burst)
	if all <= -half {
		o.conns = nil // no need to divide
		return all
	}
	own := o.part(now, s.conn)
	return min(all, own.takeAll(now, n*len(o.conns), o.rate, half))
}

// half is the part of the bucket that is divided among connections.
const half = Burst / 2

// maxConns limits the connections of an owner that have a pace of their own. Further connections share
// one.
const maxConns = 100_000

// An owner is the state of one address.
type owner struct {
	rate int

	mu    sync.Mutex // never held during I/O
	pace  Pace
	conns map[any]*Pace // connections with waiting requests; nil while less than half of the bucket is used
	swept time.Time
}

// part returns the pace of a connection. The caller holds o.mu.
func (o *owner) part(now time.Time, conn any) *Pace {
	if o.conns == nil {
		o.conns, o.swept = map[any]*Pace{}, now
	}
	if now.Sub(o.swept) >= time.Second {
		o.swept = now
		maps.DeleteFunc(o.conns, func(_ any, p *Pace) bool { return !p.until.After(now) })
	}
	p := o.conns[conn]
	if p == nil && len(o.conns) >= maxConns {
		conn = nil
		p = o.conns[conn]
	}
	if p == nil {
		p = new(Pace)
		o.conns[conn] = p
	}
	return p
}
