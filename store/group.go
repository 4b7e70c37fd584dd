package store

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/chancery-xds/chancery/xds"
)

// A group is a set of resources that the same nodes see, and the watches of
// these nodes.
type group struct {
	name   string               // of an overlay: those of its layers
	layers []*group             // of an overlay; nil: it has resources of its own
	head   atomic.Pointer[head] // never nil
	index  index

	// Guarded by Store.mu.
	watches int              // open ones, and overlays that it is a layer of
	over    map[*group]bool  // these overlays
	past    map[string]*past // by type URL

	edits map[string]int // of an overlay, by type URL, since all was laid anew; owned by the transaction
}

// group returns the group with the name, new if there is none. The store is
// locked.
func (st *Store) group(name string) *group {
	g := st.groups[name]
	if g == nil {
		g = &group{name: name}
		h := &head{}
		if st.emptyGroups || st.overs && IsOver(name) {
			h.view = xds.Tables{}
		}
		g.head.Store(h)
		if st.groups == nil {
			st.groups = map[string]*group{}
		}
		st.groups[name] = g
	}
	return g
}

// tidy drops a group that has neither content nor watches, unless it was said that
// there is none, or of which types that is not known: names of groups may come from
// clients. The store is locked.
func (st *Store) tidy(g *group) {
	if g.layers != nil {
		if g.watches == 0 {
			delete(st.overlays, g.name)
			st.release(g)
		}
		return
	}
	h := g.head.Load()
	if g.watches == 0 && !h.known && len(h.unknown) == 0 && bare(h.view) {
		delete(st.groups, g.name)
	}
}

// bare reports whether there is nothing in a view that a source put there.
func bare(view xds.Tables) bool {
	for _, t := range view {
		if !vacant(t) || !t.Hashed() {
			return false
		}
	}
	return true
}

// vacant reports whether a table has no resources, not even on demand.
func vacant(t *xds.Table) bool {
	for range t.All() {
		return false
	}
	return true
}

// A head is a group after a commit: what is in it, and how it came to that. It
// is immutable, and one pointer to it is all that readers load, so that nobody
// sees a commit's names without its resources, or the reverse.
type head struct {
	seq     uint64          // of the newest commit that touched the group; 0: none did
	view    xds.Tables      // nil: not known, nothing was ever written
	unknown map[string]bool // type URLs of which it is not known what there is
	known   bool            // it is empty, and that was said to be all there is
	forgot  uint64          // the log tells about commits after this one
	entries []entry
	names   []xds.Names // touched by entries, index by index
	total   int         // of all names touched, since the log began
}

// An entry of a group's log.
type entry struct {
	seq    uint64
	before int // names touched by all commits before this one
}

// maxNames is how many touched names a group's log remembers. Whoever missed
// more compares tables, which is then as cheap.
const maxNames = 16384

// next returns the head after a commit that touched count names; keep is how
// many commits to remember. It may be called once only: both heads share the
// memory of the log.
func (h *head) next(seq uint64, r revision, keep int) *head {
	names, count := r.touched, r.count
	if h.view == nil && r.view != nil || len(r.unknown) < len(h.unknown) { // nobody could say what it would hear of
		return &head{seq: seq, view: r.view, unknown: r.unknown, known: r.known, forgot: seq}
	}
	n := &head{
		seq: seq, view: r.view, unknown: r.unknown, known: r.known, forgot: h.forgot,
		entries: append(h.entries, entry{seq, h.total}),
		names:   append(h.names, names),
		total:   h.total + count,
	}
	drop := max(len(n.entries)-keep, 0)
	for drop < len(n.entries) && n.total-n.entries[drop].before > maxNames {
		drop++
	}
	if drop > 0 {
		n.forgot = n.entries[drop-1].seq
		n.entries, n.names = n.entries[drop:], n.names[drop:]
		if len(n.entries) == 0 {
			n.entries, n.names = nil, nil // keep none of it alive
		}
	}
	return n
}

// seen returns what watches see of it.
func (h *head) seen() xds.View {
	switch {
	case h.view == nil:
		return nil
	case len(h.unknown) > 0:
		return partial{h.view, h.unknown}
	}
	return h.view
}

// A partial is a view of which the names of some types are not known.
type partial struct {
	xds.Tables
	unknown map[string]bool // by type URL
}

// Undecided implements [xds.Undecided]. What a wildcard covers is what there is.
func (p partial) Undecided(t *xds.Type, name string) bool {
	return name != xds.Wildcard && p.unknown[t.URL]
}

var none = []xds.Names{}

// since returns what was touched after the commit seq: nil if that is forgotten.
func (h *head) since(seq uint64) []xds.Names {
	switch {
	case seq >= h.seq:
		return none
	case seq < h.forgot:
		return nil
	}
	i := sort.Search(len(h.entries), func(i int) bool { return h.entries[i].seq > seq })
	return slices.Clip(h.names[i:])
}
