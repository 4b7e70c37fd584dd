package store

import (
	"log/slog"

	"github.com/chancery-xds/chancery/internal/panics"
)

// news are changes of a group for which its watches got no signal yet.
type news struct {
	since uint64 // the changes of the commits after this one
	all   bool   // the selection of groups changed, so all watches are signalled
}

// ring schedules a signal to the watches that are interested in the news of a group. The store is locked, and
// ring does not wait. Commits during the signalling are combined into the next round.
func (st *Store) ring(g *group, n news) {
	if due, is := st.dueRings[g]; is {
		n = news{due.since, due.all || n.all}
	} else if st.dueRings == nil {
		st.dueRings = map[*group]news{}
	}
	st.dueRings[g] = n
	if !st.ringing {
		st.ringing = true
		go st.ringLoop()
	}
}

// ringAll schedules a signal to all watches. The store is locked.
func (st *Store) ringAll() {
	for _, groups := range []map[string]*group{st.groups, st.composites} {
		for _, g := range groups {
			if g.watches > 0 {
				st.ring(g, news{since: g.head.Load().seq, all: true})
			}
		}
	}
}

// ringLoop signals watches until no signal is due. At most one goroutine runs it.
func (st *Store) ringLoop() {
	for {
		st.mu.Lock()
		due := st.dueRings
		if len(due) == 0 {
			st.ringing = false
			st.mu.Unlock()
			return
		}
		st.dueRings = nil
		st.mu.Unlock()
		for g, n := range due {
			if p := panics.Do(func() { g.ring(n) }); p != nil {
				p.Log(slog.Default(), "doorbells of a group", slog.String("group", g.name))
			}
		}
	}
}

// ring signals the watches that are interested in the news and have not seen the newest commit.
func (g *group) ring(n news) {
	var ids idBits
	h := g.head.Load()
	if names := h.since(n.since); names != nil && !n.all {
		ids = g.index.touched(names)
	} else {
		ids = g.index.all()
	}
	for some := range g.index.open(ids) {
		for _, w := range some {
			if n.all || w.seenSeq.Load() < h.seq {
				w.ring()
			}
		}
	}
}
