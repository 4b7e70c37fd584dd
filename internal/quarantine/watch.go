package quarantine

import (
	"fmt"
	"slices"
	"sync"
	"weak"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A Watch is one stream's. It implements [server.Recalling], and belongs to the stream's goroutine,
// but for put.
type Watch struct {
	of     server.Watch
	source *Source
	node   *xds.Node

	counted int // of the source's count; guarded by source.mu

	made tables

	mu      sync.Mutex
	pending []held
	holds   []held // that the stream's goroutine has taken; it alone writes
	closed  bool
}

// held is a resource in quarantine.
type held struct {
	typ        *xds.Type
	name       string
	refused    xds.Sum
	version    string
	has        bool // the client has accepted something of that name
	had        xds.Sum
	hadVersion string

	old *xds.Resource // what is shown instead; nil: nothing
}

func (h *held) is(o *held) bool { return h.typ.Is(o.typ) && h.name == o.name }

// A ringer has its doorbell rung by others.
type ringer interface{ Ring() }

// put adds resources, and returns those that were not there. The stream takes them when it is rung.
func (w *Watch) put(all []held) (added []Held) {
	r, ok := w.of.(ringer)
	if !ok {
		return nil
	}
	w.mu.Lock()
	for _, h := range all {
		known := func(o held) bool { return h.is(&o) && h.refused == o.refused }
		if w.closed || len(w.holds)+len(w.pending) >= maxHeld || slices.ContainsFunc(w.holds, known) || slices.ContainsFunc(w.pending, known) {
			continue
		}
		w.pending = append(w.pending, h)
		added = append(added, Held{h.typ, h.name, h.version, h.hadVersion})
	}
	w.mu.Unlock()
	if len(added) > 0 {
		r.Ring()
	}
	return added
}

// take takes what was put, and lets go of what has changed. It reports whether that moved anything.
func (w *Watch) take(view xds.View) (moved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending)+len(w.holds) == 0 {
		return false
	}
	was := len(w.holds)
	w.holds = slices.DeleteFunc(slices.Clone(w.holds), func(h held) bool { return !h.stands(view) })
	moved = len(w.holds) != was
	for _, h := range w.pending {
		w.holds = slices.DeleteFunc(w.holds, func(o held) bool { return o.is(&h) })
		if h.stands(view) && w.remembers(&h) {
			w.holds = append(w.holds, h)
			moved = true
		}
	}
	w.pending = nil
	w.count(len(w.holds))
	return moved
}

// stands reports whether the view has still just what was refused.
func (h *held) stands(view xds.View) bool {
	r := view.Table(h.typ).Lookup(h.name)
	return r != nil && r.Sum == h.refused
}

// remembers finds what the client has accepted last. What is not known any more cannot be shown: a working
// resource is never taken away.
func (w *Watch) remembers(h *held) bool {
	if !h.has {
		return true
	}
	for _, t := range w.Recent(h.typ) {
		r := t.Lookup(h.name)
		if r != nil && (r.Sum == h.had || h.had == xds.Sum{} && r.Version == h.hadVersion) {
			h.old = r
			return true
		}
	}
	return false
}

func (w *Watch) count(n int) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.source.held += n - w.counted
	w.counted = n
}

// Next implements [server.Watch].
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	view, names, err := w.of.Next()
	if err != nil || view == nil {
		return view, names, err
	}
	if w.take(view) {
		names = nil
	}
	if len(w.holds) == 0 {
		return view, names, nil
	}
	s := &shown{of: view, holds: w.holds, made: &w.made}
	if u, ok := view.(xds.Undecided); ok {
		return &undecided{shown: s, of: u}, names, nil
	}
	return s, names, nil
}

// Holds implements [server.Holding].
func (w *Watch) Holds(t *xds.Type) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.holds, func(h held) bool { return h.typ.Is(t) })
}

func (w *Watch) held(t *xds.Type) (all []Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.holds {
		if !h.typ.Is(t) {
			continue
		}
		is := Held{h.typ, h.name, h.version, ""}
		if h.old != nil {
			is.Instead = h.old.Version
		}
		all = append(all, is)
	}
	return all
}

// C implements [server.Watch].
func (w *Watch) C() <-chan struct{} { return w.of.C() }

// Interested implements [server.Watch].
func (w *Watch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	w.of.Interested(t, wildcard, added, removed)
}

// Recent implements [server.Recalling].
func (w *Watch) Recent(t *xds.Type) []*xds.Table {
	if r, ok := w.of.(server.Recalling); ok {
		return r.Recent(t)
	}
	return nil
}

// Identity implements [server.Identified].
func (w *Watch) Identity() fmt.Stringer {
	if i, ok := w.of.(server.Identified); ok {
		return i.Identity()
	}
	return nil
}

// Close implements [server.Watch].
func (w *Watch) Close() {
	w.mu.Lock()
	w.closed, w.pending = true, nil
	w.mu.Unlock()
	w.source.leave(w)
	w.of.Close()
}

// A shown view has other resources in the place of some.
type shown struct {
	of    xds.View
	holds []held
	made  *tables
}

// Table implements [xds.View].
func (v *shown) Table(t *xds.Type) *xds.Table {
	table := v.of.Table(t)
	if t == nil || !slices.ContainsFunc(v.holds, func(h held) bool { return h.typ.Is(t) }) {
		return table
	}
	return v.made.of(t, table, v.holds)
}

// tables are those that were made last, by type, and of which they were made: so that a stream that is
// asked again sees the same. None is kept by that.
type tables struct {
	mu     sync.Mutex // others than the stream may look at a view
	newest map[string]made
}

type made struct {
	base, table weak.Pointer[xds.Table]
	holds       []held
}

func (m *tables) of(t *xds.Type, base *xds.Table, holds []held) *xds.Table {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := m.newest[t.URL]; is.base.Value() == base && slices.Equal(is.holds, holds) {
		if table := is.table.Value(); table != nil {
			return table
		}
	}
	table := instead(t, base, holds)
	if m.newest == nil {
		m.newest = map[string]made{}
	}
	m.newest[t.URL] = made{weak.Make(base), weak.Make(table), holds}
	return table
}

// instead returns a table with what is shown in the place of what is held.
func instead(t *xds.Type, base *xds.Table, holds []held) *xds.Table {
	var set []*xds.Resource
	var remove []string
	for i := range holds {
		switch h := &holds[i]; {
		case !h.typ.Is(t):
		case h.old != nil:
			set = append(set, h.old)
		default:
			remove = append(remove, h.name)
		}
	}
	table, err := base.With(set, remove...)
	if err != nil { // an alias of what is shown instead has gone to another
		return base
	}
	return table.WithVersion("")
}

// An undecided view is one of one that is still looking for some names.
type undecided struct {
	*shown
	of xds.Undecided
}

// Undecided implements [xds.Undecided].
func (v *undecided) Undecided(t *xds.Type, name string) bool { return v.of.Undecided(t, name) }
