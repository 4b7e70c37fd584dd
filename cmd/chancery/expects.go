package main

import (
	"slices"
	"sync"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An expecting knows whether clients are to ask for a type, since something of their groups refers
// to it: a client whose clusters are all static asks for no endpoints. The zero value is ready to use.
type expecting struct {
	mu   sync.Mutex
	seen map[string]bool // by the version of clusters, so that nothing old is kept: whether one refers to endpoints
}

// maxSeen is of how many tables it is remembered.
const maxSeen = 1000

// endpoints reports whether one of the clusters of some groups refers to endpoints (EDS).
func (e *expecting) endpoints(all *store.Snapshot, groups []string) bool {
	return slices.ContainsFunc(groups, func(g string) bool {
		view := all.View(g)
		return view != nil && e.refers(view.Table(xds.Cluster))
	})
}

func (e *expecting) refers(t *xds.Table) bool {
	e.mu.Lock()
	is, seen := e.seen[t.Version()]
	e.mu.Unlock()
	if seen {
		return is
	}
	for c := range t.All() {
		if c.Refs == nil || slices.ContainsFunc(c.Refs, func(r xds.Ref) bool { return r.Type.Is(xds.Endpoint) }) {
			is = true
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil || len(e.seen) >= maxSeen {
		e.seen = map[string]bool{}
	}
	e.seen[t.Version()] = is
	return is
}
