// Package tablecache helps who shows streams tables that it makes of those of a store: it remembers
// what was made of which, so that streams that see the same share it and are told the same, and
// so that what is made next can share with it what has not changed.
package tablecache

import (
	"slices"
	"strconv"
	"sync"
	"weak"

	"github.com/chancery-xds/chancery/xds"
)

// Tables remembers what was made of the tables of one type by one rule. It is safe for concurrent
// use; the zero value remembers nothing yet.
type Tables struct {
	mu    sync.Mutex // guards what follows; held while a table is made
	made  []made     // the newest last
	alive *xds.Table // the newest that was made, of which the next is; nil if it is the table itself: that is not kept
}

// Made is what was made of a table. Neither is kept by that.
type made struct{ of, table weak.Pointer[xds.Table] }

// most is how many are remembered.
const most = 8

// A Rule makes a table of another, of what it made of one that is near it: nil if there is none.
type Rule func(of, near *xds.Table) *xds.Table

// Of returns what the rule makes of a table.
func (ts *Tables) Of(t *xds.Table, rule Rule) *xds.Table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if is := ts.known(t); is != nil {
		return is
	}
	is := rule(t, ts.newest())
	if len(ts.made) == most {
		ts.made = append(ts.made[:0], ts.made[1:]...)
	}
	ts.made = append(ts.made, made{weak.Make(t), weak.Make(is)})
	if ts.alive = is; is == t {
		ts.alive = nil
	}
	return is
}

// OfEach returns the same of tables each of which is near the one before. It remembers none of
// them.
func (ts *Tables) OfEach(tables []*xds.Table, rule Rule) []*xds.Table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all, near := make([]*xds.Table, len(tables)), ts.newest()
	for i, t := range tables {
		if all[i] = ts.known(t); all[i] == nil {
			all[i] = rule(t, near)
		}
		near = all[i]
	}
	return all
}

// newest returns what was made last, nil if it is in use no more.
func (ts *Tables) newest() *xds.Table {
	if len(ts.made) == 0 {
		return nil
	}
	return ts.made[len(ts.made)-1].table.Value()
}

// known returns what was made of a table; nil if that is not in use.
func (ts *Tables) known(t *xds.Table) *xds.Table {
	for _, m := range slices.Backward(ts.made) {
		if m.of.Value() == t {
			return m.table.Value()
		}
	}
	return nil
}

// Key returns what tells a list of groups from all others. Names may come from clients, and have
// any bytes: what only stands between them could be in one, and bring in a group that nobody chose.
func Key(names []string) string {
	var key []byte
	for _, name := range names {
		key = strconv.AppendInt(key, int64(len(name)), 10)
		key = append(append(key, ':'), name...)
	}
	return string(key)
}
