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
	maxHistories = 10_000 // maximum number of pairs of node and type
	maxPeriods   = 8      // maximum number of periods of each pair; the newest stay
)

// A refusalPeriod is the time during which a node refuses resources of a type. It has the groups of
// the node at its start. The period continues when the client disconnects, because a client that
// reconnects has the same resources.
type refusalPeriod struct {
	*cause   // nil: the client had accepted nothing; the cause has at most 5 names
	groups   []string
	from, to int64 // to is 0 while the period is open
	of       int32 // number of resources in the refused response
	had      bool  // the client had resources of the type: accepted on its stream, or stated in its first request
}

// A nodeType is the key for a node, its address and a type. All clients without a node ID at one address
// count as one node. The key has a digest instead of the node ID, because an ID may be long.
type nodeType struct {
	node [sha256.Size]byte
	typ  *xds.Type
}

// A history has the refusal periods of one nodeType.
type history struct {
	node    string          // clipped node ID; "": no period with had is known
	periods []refusalPeriod // only the newest period may be open
}

// refusalHistory remembers the refusal periods of each pair of node and type, for [Tracker.Acceptance].
// When it is full, it forgets the oldest pair.
type refusalHistory struct {
	open   atomic.Int64 // number of open periods
	causes causes
	mu     sync.Mutex // taken before the mutex of causes
	all    map[nodeType]*history
	order  []nodeType // keys in the order of arrival, as a ring buffer
	at     int        // index of the oldest key, once the ring is full
}

func nodeTypeOf(r *row, t *xds.Type) nodeType {
	return nodeType{sha256.Sum256([]byte(r.client.node + "\x00" + host(r.client.peer))), t}
}

// refusalBegan begins a refusal period of a client and a type, unless a period with the same groups
// is open. The argument resources is the number of resources in the refused response.
func (t *Tracker) refusalBegan(r *row, st *server.Stream, c *cause, resources int32, had bool, now int64) {
	s := refusalPeriod{from: now, of: resources, had: had}
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
		s.cause = d.causes.intern(newCause(c.typ, text.Head(c.text, maxName), c.names))
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

// refusalEnded ends the refusal period of a client and a type at the time since.
func (t *Tracker) refusalEnded(r *row, typ *xds.Type, since int64) {
	d := &t.history
	if d.open.Load() == 0 { // true almost always
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

// regressions lists the nodes that began to refuse a type at or after since, while they had one of
// the groups. Before, such a node had resources of the type, did not refuse them at the time since,
// and did not refuse the type in other groups.
func (d *refusalHistory) regressions(groups []string, since int64) (all []Regression) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, p := range d.all {
		if s := first(p.periods, groups, since); s != nil {
			all = append(all, Regression{p.node, k.typ, s.names, int(s.of), s.text})
			if len(all) == maxShown {
				return all
			}
		}
	}
	return all
}

// first returns the first period that lasts at or after since, if this period is a regression;
// otherwise nil.
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
