package relay

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A relay requests the names of all clients on one stream. The upstream has limits for a stream, and ends
// a stream that exceeds them, also after each retry. So all clients together may request only as many names
// as the upstream allows for one stream. If they want more, the relay ends the client's stream with the most
// names that no other stream wants.

// Limits are the limits of the upstream's stream. Zero values mean the defaults of a server.
type Limits struct {
	Types int // resource types with requested names; 64
	Names int // of one type; 100,000
	Held  int // bytes of all names, plus 64 for each; 128 MiB
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

// A limit is one of the Limits.
type limit struct {
	text string
	of   func(e *name) any // the shared unit that e belongs to; nil: it does not count
	cost func(e *name) int
}

// weight is the size of a name in bytes, as a server counts it.
func (e *name) weight() int { return len(e.name) + 64 }

// count records that a name is requested from the upstream (by = 1), or no longer (by = -1). The source
// is locked.
func (s *Source) count(e *name, by int) {
	e.asked = by > 0
	s.weight += by * e.weight()
	if e.demands == 0 {
		s.asks++
	}
	e.demands += by
	if e.demands == 0 {
		s.asks--
	}
}

// over returns the limit that one more name would exceed; nil: none. The source is locked.
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

// endGreediest ends the stream that wants most, of the owner whose streams want most. A unit that several
// streams want counts for each of them in equal parts. It does nothing while a stream that must end still
// exists. The source is locked.
func (s *Source) endGreediest(l *limit) {
	users := map[any]int{} // streams that want each unit
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
		if w.mustEnd != nil {
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
	most.mustEnd = status.Errorf(codes.ResourceExhausted, "limit exceeded: all clients of the relay together request %s, most of them from this address or identity", l.text)
	s.opts.Log.Warn("client of the relay exceeds the limits of the upstream: its stream ends", "owner", most.owner, "error", most.mustEnd)
	most.Ring()
}

// endError returns the error of a stream that must end, or nil.
func (s *Source) endError(w *Watch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.mustEnd
}
