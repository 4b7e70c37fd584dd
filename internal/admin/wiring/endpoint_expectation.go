package wiring

import (
	"slices"
	"sync"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An endpointExpectation decides whether clients are expected to subscribe to endpoints. A client
// with static clusters only is not. The zero value is ready to use.
type endpointExpectation struct {
	mu   sync.Mutex
	seen map[xds.Sum]bool // key: content of a table of clusters; value: whether a cluster in it refers, or may refer, to endpoints
}

// maxRemembered is the maximum number of remembered tables.
const maxRemembered = 1000

// endpoints reports whether a cluster of one of the groups refers to endpoints (EDS), or has unknown
// references.
func (e *endpointExpectation) endpoints(all *store.Snapshot, groups []string) bool {
	return slices.ContainsFunc(groups, func(g string) bool {
		view := all.View(g)
		return view != nil && e.refers(view.Table(xds.Cluster))
	})
}

func (e *endpointExpectation) refers(t *xds.Table) bool {
	sum := t.Versions().Sum() // not by version: files can give two groups the same version
	e.mu.Lock()
	refers, seen := e.seen[sum]
	e.mu.Unlock()
	if seen {
		return refers
	}
	for c := range t.All() {
		if c.Refs == nil || slices.ContainsFunc(c.Refs, func(r xds.Ref) bool { return r.Type.Is(xds.Endpoint) }) {
			refers = true
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil || len(e.seen) >= maxRemembered {
		e.seen = map[xds.Sum]bool{}
	}
	e.seen[sum] = refers
	return refers
}
