package quarantine

import (
	"slices"
	"sync"
	"weak"

	"github.com/chancery-xds/chancery/xds"
)

// A shown view has other resources in the place of some.
type shown struct {
	of    xds.View
	holds map[string]*set // by type URL
	made  *tables
}

// A set is what of a type is in quarantine. It does not change.
type set struct {
	holds  []held
	beside []*xds.Resource // that the view has not, and what is kept refers to
}

// Table implements [xds.View].
func (v *shown) Table(t *xds.Type) *xds.Table {
	table := v.of.Table(t)
	if t == nil || v.holds[t.URL] == nil {
		return table
	}
	return v.made.of(t, table, v.holds[t.URL])
}

// tables are those that were made last, by type, and of which they were made: so that a stream that is
// asked again sees the same. None is kept by that.
type tables struct {
	sets map[string]*set // by the stream's goroutine

	mu     sync.Mutex // others than the stream may look at a view
	newest map[string]made
}

type made struct {
	base, table weak.Pointer[xds.Table]
	holds       *set
}

// group groups what is in quarantine by type: as it did before, where that is the same.
func (m *tables) group(holds, dependents []held, beside []*xds.Resource) map[string]*set {
	by, also := map[string][]held{}, map[string][]*xds.Resource{}
	add := func(h held) {
		h.proven, h.by, h.nonce, h.refs = false, 0, 0, nil // which change nothing
		by[h.typ.URL] = append(by[h.typ.URL], h)
	}
	for _, h := range holds {
		if h.by != Dependent {
			add(h)
		}
	}
	for _, h := range dependents {
		if !slices.ContainsFunc(by[h.typ.URL], func(o held) bool { return o.name == h.name }) { // which has been refused itself
			add(h)
		}
	}
	for _, r := range beside {
		also[r.Type.URL] = append(also[r.Type.URL], r)
		by[r.Type.URL] = append(by[r.Type.URL], nil...)
	}
	sets := make(map[string]*set, len(by))
	for url, holds := range by {
		if was := m.sets[url]; was != nil && slices.Equal(was.holds, holds) && slices.Equal(was.beside, also[url]) {
			sets[url] = was
		} else {
			sets[url] = &set{holds, also[url]}
		}
	}
	m.sets = sets
	return sets
}

func (m *tables) of(t *xds.Type, base *xds.Table, holds *set) *xds.Table {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := m.newest[t.URL]; is.base.Value() == base && is.holds == holds {
		if table := is.table.Value(); table != nil {
			return table
		}
	}
	table := instead(base, holds)
	if m.newest == nil {
		m.newest = map[string]made{}
	}
	m.newest[t.URL] = made{weak.Make(base), weak.Make(table), holds}
	return table
}

// instead returns a table with what is shown in the place of what is held.
func instead(base *xds.Table, of *set) *xds.Table {
	set := slices.Clone(of.beside)
	var remove []string
	for i := range of.holds {
		if h := &of.holds[i]; h.old != nil {
			set = append(set, h.old)
		} else {
			remove = append(remove, h.name)
		}
	}
	table, err := base.Substitute(set, remove...)
	if err != nil { // an alias of what is shown instead has gone to another
		return base
	}
	return table
}

// An undecided view is one of one that is still looking for some names.
type undecided struct {
	*shown
	of xds.Undecided
}

// Undecided implements [xds.Undecided]. What is found, and not shown, is decided.
func (v *undecided) Undecided(t *xds.Type, name string) bool {
	return v.shown.of.Table(t).Lookup(name) == nil && v.of.Undecided(t, name)
}
