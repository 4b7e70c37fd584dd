package store

import (
	"log/slog"

	"github.com/chancery-xds/chancery/internal/guard"
)

// ring has the doorbells rung of the watches that want to hear of the commits
// of a group after since. The store is locked; nothing is waited for. Commits
// that come while others are being told of are told of together.
func (st *Store) ring(g *group, since uint64) {
	if _, due := st.unrung[g]; !due {
		if st.unrung == nil {
			st.unrung = map[*group]uint64{}
		}
		st.unrung[g] = since
	}
	if !st.ringing {
		st.ringing = true
		go st.rings()
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
		for g, since := range due {
			if p := guard.Do(func() { g.ring(since) }); p != nil {
				p.Log(slog.Default(), "doorbells of a group", slog.String("group", g.name))
			}
		}
	}
}

// ring rings the doorbells of the watches that want to hear of the commits
// after since and were not told of the newest one.
func (g *group) ring(since uint64) {
	var ids idBits
	h := g.head.Load()
	if names := h.since(since); names != nil {
		ids = g.index.touched(names)
	} else {
		ids = g.index.all()
	}
	for some := range g.index.open(ids) {
		for _, w := range some {
			if w.seen.Load() < h.seq {
				w.ring()
			}
		}
	}
}
