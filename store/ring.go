package store

import (
	"log/slog"

	"github.com/chancery-xds/chancery/internal/panics"
)

// News is what watches of a group have not been told of.
type news struct {
	since uint64 // commits after this one
	all   bool   // which groups nodes see: it concerns every watch
}

// ring has the doorbells rung of the watches that want to hear of the news of a group. The
// store is locked; nothing is waited for. Commits that come while others are being told of are
// told of together.
func (st *Store) ring(g *group, n news) {
	if due, is := st.unrung[g]; is {
		n = news{due.since, due.all || n.all}
	} else if st.unrung == nil {
		st.unrung = map[*group]news{}
	}
	st.unrung[g] = n
	if !st.ringing {
		st.ringing = true
		go st.rings()
	}
}

// ringAll rings all doorbells. The store is locked.
func (st *Store) ringAll() {
	for _, groups := range []map[string]*group{st.groups, st.overlays} {
		for _, g := range groups {
			if g.watches > 0 {
				st.ring(g, news{since: g.head.Load().seq, all: true})
			}
		}
	}
}

// rings rings until nothing is due. There is one such goroutine at most.
func (st *Store) rings() {
	for {
		st.mu.Lock()
		due := st.unrung
		if len(due) == 0 {
			st.ringing = false
			st.mu.Unlock()
			return
		}
		st.unrung = nil
		st.mu.Unlock()
		for g, n := range due {
			if p := panics.Do(func() { g.ring(n) }); p != nil {
				p.Log(slog.Default(), "doorbells of a group", slog.String("group", g.name))
			}
		}
	}
}

// ring rings the doorbells of the watches that want to hear of the news and were not told of
// the newest commit.
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
			if n.all || w.seen.Load() < h.seq {
				w.ring()
			}
		}
	}
}
