package clients

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxSpreads = 8 // maximum number of remembered commits

	// Times are counted in intervals that grow by the factor 2^(1/perDoubling), from 1 ms to an hour.
	perDoubling = 8
	intervals   = 22 * perDoubling
)

// propagation remembers how fast the clients accepted the last commits. Its memory does not depend on the number of
// clients, but for a reached in each client.
type propagation struct {
	seen atomic.Uint64 // number of the newest commit
	mu   sync.Mutex    // taken after the lock of a row
	all  []*spread     // newest last
}

// A spread counts the clients that accepted a commit, by the time that they took.
type spread struct {
	seq        uint64
	at         int64
	registered int64 // time of the first commit of registered endpoints after it; 0: none
	clients    [intervals]int32
}

// A reached is the newest commit that a client has accepted, and its interval. propagation.mu guards it.
type reached struct {
	seq uint64
	in  uint8
}

// observe notes the newest commit. Without a new one it costs one atomic load.
func (p *propagation) observe(c store.Commit) {
	if c.Seq == p.seen.Load() || len(c.Changes) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Seq <= p.seen.Load() {
		return
	}
	p.seen.Store(c.Seq)
	if store.IsOverlay(c.Changes[0].Group) { // registered endpoints may cause a hundred commits a second
		if n := len(p.all); n > 0 && p.all[n-1].registered == 0 {
			p.all[n-1].registered = c.Time.UnixNano()
		}
		return
	}
	if len(p.all) == maxSpreads {
		p.all = slices.Delete(p.all, 0, 1)
	}
	p.all = append(p.all, &spread{seq: c.Seq, at: c.Time.UnixNano()})
}

// accepted counts a client that has answered all responses of a stream, at the time now. The last one was sent at the
// time sent. A stream that began after the commit does not count.
func (p *propagation) accepted(r *row, t *xds.Type, sent, now int64) {
	c := r.client
	p.mu.Lock()
	defer p.mu.Unlock()
	i := len(p.all) - 1
	for i >= 0 && p.all[i].at > sent {
		i--
	}
	if i < 0 {
		return
	}
	s := p.all[i]
	if r.info.Since.UnixNano() >= s.at || s.registered != 0 && sent >= s.registered && t.Is(xds.Endpoint) || c.reached.seq > s.seq {
		return
	}
	in := interval(now - s.at)
	if c.reached.seq == s.seq {
		s.clients[c.reached.in]--
		in = max(in, c.reached.in)
	}
	s.clients[in]++
	c.reached = reached{s.seq, in}
}

// interval returns the interval of a duration in nanoseconds.
func interval(d int64) uint8 {
	ms := max(float64(d)/1e6, 1)
	return uint8(min(perDoubling*math.Log2(ms), intervals-1))
}

// end returns the end of an interval in ms.
func end(in int) float64 { return math.Exp2(float64(in+1) / perDoubling) }

// Propagation returns the propagation of the last commits that clients have accepted, newest first.
func (t *Tracker) Propagation() []api.Spread {
	t.observe()
	p := &t.propagation
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []api.Spread{}
	for _, s := range slices.Backward(p.all) {
		if out := s.api(); out.Clients > 0 || s.seq == p.all[len(p.all)-1].seq {
			all = append(all, out)
		}
	}
	return all
}

// observe asks for the newest commit.
func (t *Tracker) observe() {
	if t.opts.Newest == nil {
		return
	}
	if c, ok := t.opts.Newest(); ok {
		t.propagation.observe(c)
	}
}

func (s *spread) api() api.Spread {
	out := api.Spread{Revision: s.seq, At: time.Unix(0, s.at), Curve: []api.SpreadPoint{}}
	for in, n := range s.clients {
		if n == 0 {
			continue
		}
		out.Clients += int(n)
		out.Last = round(end(in))
		out.Curve = append(out.Curve, api.SpreadPoint{After: out.Last, Clients: out.Clients})
	}
	out.P50, out.P99 = quantile(&out, 0.5), quantile(&out, 0.99)
	return out
}

// quantile returns the time in which a share of the clients accepted the commit.
func quantile(s *api.Spread, share float64) float64 {
	for _, p := range s.Curve {
		if float64(p.Clients) >= share*float64(s.Clients) {
			return p.After
		}
	}
	return 0
}

// round rounds to three digits: the intervals are not more precise.
func round(ms float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(ms))-2)
	return math.Round(ms/unit) * unit
}
