package access

import (
	"sync"

	"github.com/chancery-xds/chancery/internal/tablecache"
	"github.com/chancery-xds/chancery/xds"
)

// A lens shows the visible part of the tables of a type. Streams with the same groups and equal
// filters share one lens. So the visible part is computed once, and the streams share encoded
// responses.
type lens struct {
	key    lensKey
	filter *filter
	users  int // guarded by shared.mu
	parts  tablecache.Tables
}

// A lensKey identifies a lens.
type lensKey struct{ groups, url, filter string }

// table returns the visible part of a table.
func (l *lens) table(t *xds.Table) *xds.Table { return l.parts.Of(t, l.filter.of) }

// recent returns the visible parts of tables; each table is similar to the one before.
func (l *lens) recent(tables []*xds.Table) []*xds.Table { return l.parts.OfEach(tables, l.filter.of) }

// Lenses are the lenses of one stream until its groups or its grant change. Other goroutines than the
// stream's may use them.
type lenses struct {
	shared *shared
	groups string
	grant  Grant

	mu     sync.Mutex // guards the fields below; never held during I/O
	by     map[string]*lens
	closed bool
}

// of returns the lens of a type.
func (ls *lenses) of(t *xds.Type) *lens {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.by[t.URL]; l != nil {
		return l
	}
	f := ls.grant.filter(t)
	if ls.closed { // nothing would release a shared lens
		return &lens{filter: f}
	}
	l := ls.shared.lens(lensKey{ls.groups, t.URL, f.key}, f)
	if ls.by == nil {
		ls.by = map[string]*lens{}
	}
	ls.by[t.URL] = l
	return l
}

// close releases the lenses.
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

// lens returns the shared lens for a key, and counts one more user.
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
		l.users--
		if l.users == 0 {
			delete(s.lenses, l.key)
		}
	}
}

// A limitedView shows the visible part of another view. The other view does not change.
type limitedView struct {
	of     xds.View
	lenses *lenses

	mu     sync.Mutex // guards tables; other goroutines than the stream may read the view
	tables map[string]*xds.Table
}

// Table implements [xds.View].
func (v *limitedView) Table(t *xds.Type) *xds.Table {
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

// An undecidedView is a limited view of a view that still looks for some names.
type undecidedView struct {
	limitedView
	of xds.Undecided
}

// Undecided implements [xds.Undecided]. An invisible name does not exist, and is not looked for.
func (v *undecidedView) Undecided(t *xds.Type, name string) bool {
	if name == xds.Wildcard { // visibility does not apply to the wildcard itself
		return v.lenses.grant.some(t, name) && v.of.Undecided(t, name)
	}
	return v.lenses.grant.Allows(t, name) && v.of.Undecided(t, name)
}
