package relay

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// All that a relay's clients want it asks for on one stream, of which the upstream has limits like anybody: who asks for
// too much has his stream ended, and again when he comes back. So all clients together get no more than what
// the upstream gives to one. The one that wants most of what others do not want gives way.

// Limits are those of the upstream's stream. Zero values are those that a server has by default.
type Limits struct {
	Types int // of which something is asked for; 64
	Names int // of one type; 100,000
	Held  int // bytes of all names, and 64 for each; 128 MiB
}

func (l Limits) orDefault() Limits {
	if l.Types == 0 {
		l.Types = 64
	}
	if l.Names == 0 {
		l.Names = 100_000
	}
	if l.Held == 0 {
		l.Held = 128 << 20
	}
	return l
}

// A limit is one of them: what it counts of a name, and of what.
type limit struct {
	text string
	of   func(e *name) any // what is shared by those who want it; nil: nothing
	cost func(e *name) int
}

// weight is what a name costs in bytes, as a server counts.
func (e *name) weight() int { return len(e.name) + 64 }

// count notes that the upstream is asked for a name from now on, or is not any more. The source is locked.
func (s *Source) count(e *name, by int) {
	e.asked = by > 0
	s.weight += by * e.weight()
	if e.demands == 0 {
		s.asks++
	}
	if e.demands += by; e.demands == 0 {
		s.asks--
	}
}

// over returns the limit that a name more would exceed; nil: none. The source is locked.
func (s *Source) over(e *name) *limit {
	one := func(*name) int { return 1 }
	switch l := s.opts.Limits; {
	case e.demands == 0 && s.asks >= l.Types:
		return &limit{fmt.Sprintf("more than %d resource types", l.Types), func(e *name) any { return e.kind }, one}
	case e.demands >= l.Names:
		k := e.kind
		return &limit{fmt.Sprintf("more than %d names of %s", l.Names, k.typ), func(e *name) any {
			if e.kind != k {
				return nil
			}
			return e
		}, one}
	case s.weight+e.weight() > l.Held:
		return &limit{fmt.Sprintf("names of more than %d bytes", l.Held), func(e *name) any { return e }, (*name).weight}
	}
	return nil
}

// relieve has the stream give way that wants most of what others do not want, of the owner whose streams do; none
// while one that has to is there still. The source is locked.
func (s *Source) relieve(l *limit) {
	users := map[any]int{} // streams that want it
	each := func(w *Watch, f func(of any, cost int)) {
		seen := map[any]bool{}
		for e := range w.wants {
			if of := l.of(e); of != nil && !seen[of] {
				seen[of] = true
				f(of, l.cost(e))
			}
		}
	}
	for w := range s.watches {
		if w.greedy != nil {
			return
		}
		each(w, func(of any, _ int) { users[of]++ })
	}
	of, by := map[*Watch]float64{}, map[string]float64{}
	for w := range s.watches {
		each(w, func(what any, cost int) { of[w] += float64(cost) / float64(users[what]) })
		by[w.owner] += of[w]
	}
	var most *Watch
	for w := range of {
		if most == nil || by[w.owner] > by[most.owner] || w.owner == most.owner && of[w] > of[most] {
			most = w
		}
	}
	if most == nil {
		return
	}
	most.greedy = status.Errorf(codes.ResourceExhausted, "limit exceeded: all clients of the relay together ask for %s, and most of that is of this address or identity", l.text)
	s.opts.Log.Warn("client of the relay exceeds the limits of the upstream: its stream ends", "owner", most.owner, "error", most.greedy)
	most.Ring()
}

// gives returns why a stream has to give way; nil: it has not.
func (s *Source) gives(w *Watch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.greedy
}
