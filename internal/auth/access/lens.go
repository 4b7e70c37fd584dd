package access

import (
	"sync"

	"github.com/chancery-xds/chancery/internal/tablecache"
	"github.com/chancery-xds/chancery/xds"
)

// A lens shows the part of a type's tables that a filter shows. Streams of the same groups whose
// filters are equal look through one, so that the part is made once, and what they are told is
// shared.
type lens struct {
	key    lensKey
	filter *filter
	users  int // guarded by shared.mu
	parts  tablecache.Tables
}

// A lensKey tells a lens from all others.
type lensKey struct{ groups, url, filter string }

// table returns the part of a table.
func (l *lens) table(t *xds.Table) *xds.Table { return l.parts.Of(t, l.filter.of) }

// recent returns the parts of tables, each of which is near the one before.
func (l *lens) recent(tables []*xds.Table) []*xds.Table { return l.parts.OfEach(tables, l.filter.of) }

// Lenses are those that one stream looks through, as long as it sees the same groups by the same
// grant. They may be asked by others than the stream.
type lenses struct {
	shared *shared
	groups string
	grant  Grant

	mu     sync.Mutex // guards what follows; held for memory only
	by     map[string]*lens
	closed bool
}

// of returns the lens for a type.
func (ls *lenses) of(t *xds.Type) *lens {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.by[t.URL]; l != nil {
		return l
	}
	f := ls.grant.filter(t)
	if ls.closed { // nobody would let go of one that is shared
		return &lens{filter: f}
	}
	l := ls.shared.lens(lensKey{ls.groups, t.URL, f.key}, f)
	if ls.by == nil {
		ls.by = map[string]*lens{}
	}
	ls.by[t.URL] = l
	return l
}

// close lets go of them.
func (ls *lenses) close() {
	if ls == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	ls.shared.release(ls.by)
	ls.by = nil
}

// lens returns the lens that all have who see the same, and counts one user more.
func (s *shared) lens(key lensKey, f *filter) *lens {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lenses[key]
	if l == nil {
		l = &lens{key: key, filter: f}
		s.lenses[key] = l
	}
	l.users++
	return l
}

func (s *shared) release(ls map[string]*lens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range ls {
		if l.users--; l.users == 0 {
			delete(s.lenses, l.key)
		}
	}
}

// A limited view shows of another what lenses do. It never changes, as that does not.
type limited struct {
	of     xds.View
	lenses *lenses

	mu     sync.Mutex // guards what follows; others than the stream may look, too
	tables map[string]*xds.Table
}

// Table implements [xds.View].
func (v *limited) Table(t *xds.Type) *xds.Table {
	table := v.of.Table(t)
	if t == nil || v.lenses.grant.All(t) {
		return table
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := v.tables[t.URL]
	if seen == nil {
		if v.tables == nil {
			v.tables = map[string]*xds.Table{}
		}
		seen = v.lenses.of(t).table(table)
		v.tables[t.URL] = seen
	}
	return seen
}

// An undecided view is a limited one of one that is still looking for some names.
type undecided struct {
	limited
	of xds.Undecided
}

// Undecided implements [xds.Undecided]. A name that may not be seen does not exist, and is not
// looked for.
func (v *undecided) Undecided(t *xds.Type, name string) bool {
	if name == xds.Wildcard { // which is no name that may be seen or not
		return v.lenses.grant.some(t, name) && v.of.Undecided(t, name)
	}
	return v.lenses.grant.Allows(t, name) && v.of.Undecided(t, name)
}
