package store

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A past is what a type was lately in a group: what clients may hold that come
// back. It is guarded by Store.mu.
type past struct {
	tables  []former     // oldest first
	list    []*xds.Table // the same, newest first; nil: not made yet
	touched int          // by all commits since the oldest
}

// A former is a table that was the present one until a commit.
type former struct {
	url     string // of its type
	table   *xds.Table
	until   time.Time
	touched int // names that the commit touched
}

// A past has this many tables, goes back this long, and its commits touched at
// most maxNames names, which bounds what it alone keeps alive: the first limit
// that bites. What was before the newest commit is kept however much that
// touched, until it is old.
const (
	maxPast  = 64
	pastTime = 5 * time.Minute
)

// overlayPast is how many tables the past of an overlay has: of what it does not share with its
// layers each keeps a copy, and there may be as many overlays as clients.
const overlayPast = 4

// trim lets go of what is too old or too much: more than so many tables.
func (p *past) trim(now time.Time, most int) {
	for n := len(p.tables); n > 0; n-- {
		oldest := &p.tables[0]
		if n <= most && (p.touched <= maxNames || n == 1) && now.Sub(oldest.until) <= pastTime {
			return
		}
		p.touched -= oldest.touched
		*oldest = former{} // the array lives on
		p.tables, p.list = p.tables[1:], nil
	}
}

// newest returns the tables, the newest first.
func (p *past) newest() []*xds.Table {
	if p.list == nil {
		p.list = make([]*xds.Table, len(p.tables))
		for i, f := range p.tables {
			p.list[len(p.tables)-1-i] = f.table
		}
	}
	return p.list
}

// remember adds a table that is no longer the present one. The store is locked.
func (g *group) remember(f former) {
	p := g.past[f.url]
	if p == nil {
		if g.past == nil {
			g.past = map[string]*past{}
		}
		p = &past{}
		g.past[f.url] = p
	}
	p.tables, p.list = append(p.tables, f), nil
	p.touched += f.touched
}

func (g *group) maxPast() int {
	if g.layers != nil {
		return overlayPast
	}
	return maxPast
}

// inherit adds to the group's past what nodes have that come from another group. The store is
// locked.
func (g *group) inherit(from *group, now time.Time) {
	is := g.head.Load().view
	take := func(f former) {
		p := g.past[f.url]
		if f.table == is[f.url] || p != nil && slices.ContainsFunc(p.tables, func(had former) bool { return had.table == f.table }) {
			return
		}
		g.remember(f)
		slices.SortStableFunc(g.past[f.url].tables, func(a, b former) int { return a.until.Compare(b.until) })
	}
	for _, p := range from.past {
		for _, f := range p.tables {
			take(f)
		}
	}
	for url, t := range from.head.Load().view {
		take(former{url: url, table: t, until: now})
	}
	g.forget(now)
}

// forget lets go of what is too old or too much of any type. The store is
// locked.
func (g *group) forget(now time.Time) {
	for url, p := range g.past {
		if p.trim(now, g.maxPast()); len(p.tables) == 0 {
			delete(g.past, url)
		}
	}
}

// Recent returns the tables that the type had lately in the watch's group, the
// newest first, without the present one: of the last 64 commits that changed
// it, as far as they came in the last 5 minutes and changed 16,384 resources
// together at most. They are shared and must not be changed.
//
// What is too old is let go of when the group changes, or somebody asks.
func (w *Watch) Recent(t *xds.Type) []*xds.Table {
	now := w.st.clock()
	w.st.mu.Lock()
	defer w.st.mu.Unlock()
	w.group.forget(now)
	if t == nil {
		return nil
	}
	if p := w.group.past[t.URL]; p != nil {
		return p.newest()
	}
	return nil
}
