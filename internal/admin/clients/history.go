package clients

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const (
	maxHistories = 10_000 // pairs of node and type
	maxPeriods   = 8      // newest periods that are remembered of each pair
)

// A refusalPeriod is the time during which a node refuses something of a type, with the groups of the node
// at its begin. It continues when the client leaves, because a client that comes back has the same
// resources.
type refusalPeriod struct {
	*cause   // nil: the client had accepted nothing. It has at most one name
	groups   []string
	from, to int64 // to is 0 while the period lasts
	had      bool  // the client had something of the type: accepted on its stream, or stated in its first request
}

// A nodeType is a node at an address, and a type. Clients without a node ID are one node for each address.
// A digest saves memory, because IDs may be long.
type nodeType struct {
	node [sha256.Size]byte
	typ  *xds.Type
}

// A history has the refusal periods of one nodeType.
type history struct {
	node    string          // node ID, clipped; "": no period with had is known
	periods []refusalPeriod // the last one may still last
}

// refusalHistory remembers refusals, so that a later question about them can be answered. It forgets the
// oldest pairs first.
type refusalHistory struct {
	open   atomic.Int64 // number of periods that still last
	causes causes
	mu     sync.Mutex // taken before the mutex of causes
	all    map[nodeType]*history
	order  []nodeType // in order of arrival, as a ring buffer
	at     int        // index of the oldest, once the ring is full
}

func nodeTypeOf(r *row, t *xds.Type) nodeType {
	return nodeType{sha256.Sum256([]byte(r.client.node + "\x00" + host(r.client.peer))), t}
}

// refusalBegan notes the first refusal of a client for a type since it last accepted one.
func (t *Tracker) refusalBegan(r *row, st *server.Stream, c *cause, had bool, now int64) {
	s := refusalPeriod{from: now, had: had}
	if t.opts.Groups != nil {
		s.groups = slices.Clone(t.opts.Groups(st.Node))
	}
	k := nodeTypeOf(r, c.typ)
	d := &t.history
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.all[k]
	if p == nil {
		p = &history{}
		t.admit(k, p)
	}
	of := p.periods
	if n := len(of); n > 0 && of[n-1].to == 0 {
		if slices.Equal(of[n-1].groups, s.groups) {
			return
		}
		of[n-1].to = now
		d.open.Add(-1)
	}
	if len(of) == maxPeriods {
		d.causes.release(of[0].cause)
		of = slices.Delete(of, 0, 1)
	}
	if had {
		if p.node == "" {
			p.node = clip(r.client.node, maxName)
		}
		s.cause = d.causes.intern(newCause(c.typ, text.Head(c.text, maxName), c.names[:min(len(c.names), 1)]))
	}
	p.periods = append(of, s)
	d.open.Add(1)
}

// admit adds a history and forgets the oldest one if there are too many. The caller holds history.mu.
func (t *Tracker) admit(k nodeType, p *history) {
	d := &t.history
	if d.all == nil {
		d.all = map[nodeType]*history{}
	}
	d.all[k] = p
	if len(d.order) < maxHistories {
		d.order = append(d.order, k)
		return
	}
	for _, s := range d.all[d.order[d.at]].periods {
		d.causes.release(s.cause)
		if s.to == 0 {
			d.open.Add(-1)
		}
	}
	delete(d.all, d.order[d.at])
	d.order[d.at] = k
	d.at = (d.at + 1) % maxHistories
}

// refusalEnded notes that a client has refused nothing of a type since a time.
func (t *Tracker) refusalEnded(r *row, typ *xds.Type, since int64) {
	d := &t.history
	if d.open.Load() == 0 { // almost always
		return
	}
	k := nodeTypeOf(r, typ)
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.all[k]; p != nil {
		if last := &p.periods[len(p.periods)-1]; last.to == 0 {
			last.to = max(since, last.from)
			d.open.Add(-1)
		}
	}
}

// regressions lists nodes that began to refuse a type at or after since, while they got one of the groups.
// The node had something of the type, and no refusal of it lasted at that time or began later in other
// groups.
func (d *refusalHistory) regressions(groups []string, since int64) (all []Regression) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, p := range d.all {
		if s := first(p.periods, groups, since); s != nil {
			all = append(all, Regression{p.node, k.typ, s.names, s.text})
			if len(all) == maxShown {
				return all
			}
		}
	}
	return all
}

// first returns the first period at or after since, if it is a regression, or else nil.
func first(of []refusalPeriod, groups []string, since int64) *refusalPeriod {
	for i := range of {
		s := &of[i]
		if s.to != 0 && s.to < since {
			continue
		}
		if s.from < since || !s.had || !slices.ContainsFunc(s.groups, func(g string) bool { return slices.Contains(groups, g) }) {
			return nil
		}
		return s
	}
	return nil
}
