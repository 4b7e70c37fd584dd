package access

import (
	"slices"
	"strconv"
	"sync"
	"weak"

	"github.com/chancery-xds/chancery/xds"
)

// A lens shows the part of a type's tables that a filter shows. Streams of the same groups whose
// filters are equal look through one, so that the part is made once, and what they are told is
// shared.
type lens struct {
	key    lensKey
	filter *filter
	users  int // guarded by shared.mu

	mu    sync.Mutex // guards what follows; held while a part is made
	made  []made     // the newest last
	alive *xds.Table // the newest part, of which the next is made; nil if it is the table itself: that is not kept
}

// Made is the part that was made of a table. Neither is kept by that.
type made struct{ of, part weak.Pointer[xds.Table] }

// A lensKey tells a lens from all others.
type lensKey struct{ groups, url, filter string }

// maxMade is how many tables are remembered of which a part was made.
const maxMade = 8

// table returns the part of a table.
func (l *lens) table(t *xds.Table) *xds.Table {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.known(t); p != nil {
		return p
	}
	p := l.filter.of(t, l.newest())
	if len(l.made) == maxMade {
		l.made = append(l.made[:0], l.made[1:]...)
	}
	l.made = append(l.made, made{weak.Make(t), weak.Make(p)})
	if l.alive = p; p == t {
		l.alive = nil
	}
	return p
}

// newest returns the part that was made last, nil if it is in use no more.
func (l *lens) newest() *xds.Table {
	if len(l.made) == 0 {
		return nil
	}
	return l.made[len(l.made)-1].part.Value()
}

// known returns the part that was made of a table; nil if none is in use. The lens is locked.
func (l *lens) known(t *xds.Table) *xds.Table {
	for _, m := range slices.Backward(l.made) {
		if m.of.Value() == t {
			return m.part.Value()
		}
	}
	return nil
}

// recent returns the parts of tables, each of which is near the one before.
func (l *lens) recent(tables []*xds.Table) []*xds.Table {
	l.mu.Lock()
	defer l.mu.Unlock()
	parts, from := make([]*xds.Table, len(tables)), l.newest()
	for i, t := range tables {
		if parts[i] = l.known(t); parts[i] == nil {
			parts[i] = l.filter.of(t, from)
		}
		from = parts[i]
	}
	return parts
}

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
	return v.lenses.grant.Allows(t, name) && v.of.Undecided(t, name)
}

// listKey returns what tells a list of groups from all others, whatever bytes are in them.
func listKey(names []string) string {
	var key []byte
	for _, name := range names {
		key = strconv.AppendInt(key, int64(len(name)), 10)
		key = append(append(key, ':'), name...)
	}
	return string(key)
}
