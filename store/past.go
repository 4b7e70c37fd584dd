package store

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A past has the recent tables of one type in a group: a client that reconnects may hold the
// content of any of these tables. Store.mu guards a past.
type past struct {
	tables  []pastTable  // oldest first
	list    []*xds.Table // the same tables, newest first; nil: not made yet
	touched int          // names touched by all commits since the oldest table
}

// A pastTable is a table that a commit replaced.
type pastTable struct {
	url     string // type URL
	table   *xds.Table
	until   time.Time // when it was replaced
	touched int       // names that the commit touched
}

// Limits of a past. It has at most maxPast tables, not older than pastTime, whose commits touched
// at most maxNames names together. The last limit bounds the memory that only the past keeps in
// use. The newest table is kept for pastTime, even if its commit touched more names.
const (
	maxPast  = 64
	pastTime = 5 * time.Minute
)

// compositePast is the limit of tables in the past of a composite. Each table has its own copy of
// the content that it does not share with the layers, and a store may have as many composites as
// clients.
const compositePast = 4

// trim drops tables that are too old, or exceed the limits.
func (p *past) trim(now time.Time, most int) {
	for n := len(p.tables); n > 0; n-- {
		oldest := &p.tables[0]
		if n <= most && (p.touched <= maxNames || n == 1) && now.Sub(oldest.until) <= pastTime {
			return
		}
		p.touched -= oldest.touched
		*oldest = pastTable{} // otherwise the array would keep the table in memory
		p.tables, p.list = p.tables[1:], nil
	}
}

// newest returns the tables, newest first.
func (p *past) newest() []*xds.Table {
	if p.list == nil {
		p.list = make([]*xds.Table, len(p.tables))
		for i, f := range p.tables {
			p.list[len(p.tables)-1-i] = f.table
		}
	}
	return p.list
}

// remember adds a table that was replaced. The store is locked.
func (g *group) remember(f pastTable) {
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
		return compositePast
	}
	return maxPast
}

// inherit adds the content of another group to the past of this group: nodes that move may hold that
// content. The store is locked.
func (g *group) inherit(from *group, now time.Time) {
	is := g.head.Load().view
	take := func(f pastTable) {
		p := g.past[f.url]
		if f.table == is[f.url] || p != nil && slices.ContainsFunc(p.tables, func(had pastTable) bool { return had.table == f.table }) {
			return
		}
		g.remember(f)
		slices.SortStableFunc(g.past[f.url].tables, func(a, b pastTable) int { return a.until.Compare(b.until) })
	}
	for _, p := range from.past {
		for _, f := range p.tables {
			take(f)
		}
	}
	for url, t := range from.head.Load().view {
		take(pastTable{url: url, table: t, until: now})
	}
	g.forget(now)
}

// forget drops tables of all types that are too old, or exceed the limits. The store is locked.
func (g *group) forget(now time.Time) {
	for url, p := range g.past {
		p.trim(now, g.maxPast())
		if len(p.tables) == 0 {
			delete(g.past, url)
		}
	}
}

// Recent returns the earlier tables of a type in the group of the watch, newest first, without the
// current one. These are the tables of the last 64 commits that changed the type, if the commits
// are not older than 5 minutes and changed at most 16,384 resources together. The tables are
// shared; the caller must not change them.
//
// Old tables are dropped when the group changes, or at a call of Recent.
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
