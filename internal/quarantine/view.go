package quarantine

import (
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/chancery-xds/chancery/internal/quarantine/evidence"
	"github.com/chancery-xds/chancery/xds"
)

// A substituted is a view with replacements for some resources of another view. It withholds the resources
// without a replacement (HEAL-1). It implements [xds.Withholding].
type substituted struct {
	of    xds.View
	holds map[string]*set // by type URL
	made  *tables
}

// A set has the resources of a type that are in quarantine. It is immutable.
type set struct {
	holds    []held
	withheld []string        // names of holds without a replacement
	extra    []*xds.Resource // resources that the view lacks and that replacements refer to
}

// Table implements [xds.View].
func (v *substituted) Table(t *xds.Type) *xds.Table {
	table := v.of.Table(t)
	if t == nil || v.holds[t.URL] == nil {
		return table
	}
	return v.made.of(t, table, v.holds[t.URL])
}

// Withheld implements [xds.Withholding].
func (v *substituted) Withheld(t *xds.Type) []string {
	if set := v.holds[t.URL]; set != nil {
		return set.withheld
	}
	return nil
}

// tables has the last substituted table of each type, with the inputs from which it was made. So equal
// inputs give the same table. The pointers are weak: tables does not keep tables in memory.
type tables struct {
	sets map[string]*set // owned by the stream's goroutine

	mu     sync.Mutex // goroutines other than the stream may read a view
	newest map[string]made
}

type made struct {
	base, table weak.Pointer[xds.Table]
	holds       *set
}

// group groups the resources in quarantine by type. If the set of a type is equal to the previous set,
// group returns the previous one.
func (m *tables) group(holds, dependents []held, extra []*xds.Resource) map[string]*set {
	by, also := map[string][]held{}, map[string][]*xds.Resource{}
	add := func(h held) {
		h.proven, h.by, h.nonce, h.refs, h.alsoRefused = false, 0, 0, nil, [evidence.MaxBack]xds.Sum{} // these fields do not affect the table
		h.text, h.tries, h.retryAt, h.planned = "", 0, time.Time{}, time.Time{}
		by[h.typ.URL] = append(by[h.typ.URL], h)
	}
	for _, h := range holds {
		if h.by != Dependent {
			add(h)
		}
	}
	for _, h := range dependents {
		if !slices.ContainsFunc(by[h.typ.URL], func(o held) bool { return o.name == h.name }) { // the dependent was not refused itself
			add(h)
		}
	}
	for _, r := range extra {
		also[r.Type.URL] = append(also[r.Type.URL], r)
		by[r.Type.URL] = append(by[r.Type.URL], nil...)
	}
	sets := make(map[string]*set, len(by))
	for url, holds := range by {
		if was := m.sets[url]; was != nil && slices.Equal(was.holds, holds) && slices.Equal(was.extra, also[url]) {
			sets[url] = was
		} else {
			sets[url] = newSet(holds, also[url])
		}
	}
	m.sets = sets
	return sets
}

func newSet(holds []held, extra []*xds.Resource) *set {
	s := &set{holds: holds, extra: extra}
	for i := range holds {
		if h := &holds[i]; h.old == nil && !h.applied && !h.trying {
			s.withheld = append(s.withheld, h.name)
		}
	}
	return s
}

func (m *tables) of(t *xds.Type, base *xds.Table, holds *set) *xds.Table {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is := m.newest[t.URL]; is.base.Value() == base && is.holds == holds {
		if table := is.table.Value(); table != nil {
			return table
		}
	}
	table := substitute(base, holds)
	if m.newest == nil {
		m.newest = map[string]made{}
	}
	m.newest[t.URL] = made{weak.Make(base), weak.Make(table), holds}
	return table
}

// substitute returns a table with the replacements of the held resources.
func substitute(base *xds.Table, of *set) *xds.Table {
	set := slices.Clone(of.extra)
	var remove []string
	for i := range of.holds {
		switch h := &of.holds[i]; {
		case h.trying: // the refused version
		case h.old != nil:
			set = append(set, h.old)
		case h.hidden, h.applied:
			remove = append(remove, h.name)
		}
	}
	table, err := base.Substitute(set, remove...)
	if err != nil { // another resource now has an alias of a replacement
		return base
	}
	return table
}

// An undecided is a substituted view whose source has not yet found out whether some names exist.
type undecided struct {
	*substituted
	of xds.Undecided
}

// Undecided implements [xds.Undecided]. A name is decided if the wrapped view has it, even if the name is
// hidden by quarantine.
func (v *undecided) Undecided(t *xds.Type, name string) bool {
	return v.substituted.of.Table(t).Lookup(name) == nil && v.of.Undecided(t, name)
}
