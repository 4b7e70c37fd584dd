package store

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/chancery-xds/chancery/xds"
)

// A group is a set of resources that the same nodes see, with the watches of these nodes. A composite group
// has no resources of its own (see composite.go).
type group struct {
	name   string               // for a composite, the key of its layers
	layers []*group             // non-nil: this is a composite of these groups
	head   atomic.Pointer[head] // never nil
	index  index

	// Guarded by Store.mu.
	watches    int              // open watches, plus composites that have it as a layer
	composites map[*group]bool  // these composites
	past       map[string]*past // by type URL

	edits map[string]int // only for a composite: number of names edited since the last full merge, by type URL; owned by the transaction
}

// group returns the group with the name. It creates the group if it does not exist. The store is locked.
func (st *Store) group(name string) *group {
	g := st.groups[name]
	if g == nil {
		g = &group{name: name}
		h := &head{}
		if st.emptyGroups || IsOverlay(name) {
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

// dropIfUnused deletes a group without content and watches, because clients may choose the names of
// groups. It keeps a group that was marked as known to be empty, and a group with types that were
// marked as unknown. The store is locked.
func (st *Store) dropIfUnused(g *group) {
	if g.layers != nil {
		if g.watches == 0 {
			delete(st.composites, g.name)
			st.release(g)
		}
		return
	}
	h := g.head.Load()
	if g.watches == 0 && !h.known && len(h.unknown) == 0 && hasNoContent(h.view) {
		delete(st.groups, g.name)
	}
}

// hasNoContent reports whether a view has neither resources nor versions supplied by a source.
func hasNoContent(view xds.Tables) bool {
	for _, t := range view {
		if !hasNoResources(t) || !t.Hashed() {
			return false
		}
	}
	return true
}

// hasNoResources reports whether a table has no resources, on demand or not.
func hasNoResources(t *xds.Table) bool {
	for range t.All() {
		return false
	}
	return true
}

// A head is the state of a group after a commit, with a log of recent commits. A head is immutable.
// Readers load one pointer to a head. So they cannot see the names of a commit without its
// resources, or the reverse.
type head struct {
	seq      uint64          // number of the newest commit that changed the group; 0: no commit
	view     xds.Tables      // nil: the content is not known, because nothing was ever written
	unknown  map[string]bool // URLs of types whose resources are not all known
	known    bool            // the group is empty and was marked as known
	complete uint64          // the log has the commits after this one
	entries  []entry
	names    []xds.Names // touched names; names[i] belongs to entries[i]
	total    int         // number of names touched since the log began
}

// An entry is a commit in the log of a group.
type entry struct {
	seq    uint64
	before int // number of names touched by all earlier commits
}

// maxNames is how many touched names the log of a group remembers. A stream that missed more names
// compares tables, because a comparison then costs no more than the names.
const maxNames = 16384

// next returns the head after a commit that touched the names of r. The log remembers at most keep
// commits. Call next only once for a head, because both heads share the memory of the log.
func (h *head) next(seq uint64, r revision, keep int) *head {
	names, count := r.touched, r.count
	if h.view == nil && r.view != nil || len(r.unknown) < len(h.unknown) { // the names that become known cannot be listed
		return &head{seq: seq, view: r.view, unknown: r.unknown, known: r.known, complete: seq}
	}
	n := &head{
		seq: seq, view: r.view, unknown: r.unknown, known: r.known, complete: h.complete,
		entries: append(h.entries, entry{seq, h.total}),
		names:   append(h.names, names),
		total:   h.total + count,
	}
	drop := max(len(n.entries)-keep, 0)
	for drop < len(n.entries) && n.total-n.entries[drop].before > maxNames {
		drop++
	}
	if drop > 0 {
		n.complete = n.entries[drop-1].seq
		n.entries, n.names = n.entries[drop:], n.names[drop:]
		if len(n.entries) == 0 {
			n.entries, n.names = nil, nil // so that their memory is freed
		}
	}
	return n
}

// visible returns the view for watches of the group.
func (h *head) visible() xds.View {
	switch {
	case h.view == nil:
		return nil
	case len(h.unknown) > 0:
		return partial{h.view, h.unknown}
	}
	return h.view
}

// A partial is a view in which some types are unknown: names that are missing in the tables may
// exist.
type partial struct {
	xds.Tables
	unknown map[string]bool // by type URL
}

// Undecided implements [xds.Undecided]. A wildcard gets the resources that the tables have.
func (p partial) Undecided(t *xds.Type, name string) bool {
	return name != xds.Wildcard && p.unknown[t.URL]
}

var none = []xds.Names{}

// since returns the names touched after the commit seq. It returns nil if the log no longer has them.
func (h *head) since(seq uint64) []xds.Names {
	switch {
	case seq >= h.seq:
		return none
	case seq < h.complete:
		return nil
	}
	i := sort.Search(len(h.entries), func(i int) bool { return h.entries[i].seq > seq })
	return slices.Clip(h.names[i:])
}
