// Package tablecache caches tables computed from store tables. Streams with equal inputs share one result
// and are sent the same resources. The next result can share its unchanged parts with the last.
package tablecache

import (
	"slices"
	"strconv"
	"sync"
	"weak"

	"github.com/chancery-xds/chancery/xds"
)

// Tables caches the results of one [Rule] for the tables of one type. It is safe for concurrent
// use; the zero value is empty and ready.
type Tables struct {
	mu     sync.Mutex // guards the fields below; held while a rule runs
	cached []result   // the newest last
	newest *xds.Table // keeps the newest result alive for the next rule; nil if the rule returned its input
}

// A result does not keep its tables alive.
type result struct{ input, output weak.Pointer[xds.Table] }

// maxCached is the number of cached results.
const maxCached = 8

// A Rule computes a table from t. It may share parts with near, its result for a similar table; near is
// nil if there is none.
type Rule func(t, near *xds.Table) *xds.Table

// Of returns the result of the rule for t, from the cache if it is there.
func (ts *Tables) Of(t *xds.Table, rule Rule) *xds.Table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if output := ts.lookup(t); output != nil {
		return output
	}
	output := rule(t, ts.last())
	if len(ts.cached) == maxCached {
		ts.cached = append(ts.cached[:0], ts.cached[1:]...)
	}
	ts.cached = append(ts.cached, result{weak.Make(t), weak.Make(output)})
	ts.newest = output
	if output == t {
		ts.newest = nil
	}
	return output
}

// OfEach returns the results for a sequence of tables, each similar to the one before. It does not
// cache them.
func (ts *Tables) OfEach(tables []*xds.Table, rule Rule) []*xds.Table {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all, near := make([]*xds.Table, len(tables)), ts.last()
	for i, t := range tables {
		all[i] = ts.lookup(t)
		if all[i] == nil {
			all[i] = rule(t, near)
		}
		near = all[i]
	}
	return all
}

// last returns the newest result, or nil if it was collected as garbage.
func (ts *Tables) last() *xds.Table {
	if len(ts.cached) == 0 {
		return nil
	}
	return ts.cached[len(ts.cached)-1].output.Value()
}

// lookup returns the cached result for t, or nil.
func (ts *Tables) lookup(t *xds.Table) *xds.Table {
	for _, c := range slices.Backward(ts.cached) {
		if c.input.Value() == t {
			return c.output.Value()
		}
	}
	return nil
}

// Key returns a map key for a list of group names. Each name is written with its length, because a name
// may come from a client and contain any separator.
func Key(names []string) string {
	var key []byte
	for _, name := range names {
		key = strconv.AppendInt(key, int64(len(name)), 10)
		key = append(append(key, ':'), name...)
	}
	return string(key)
}
