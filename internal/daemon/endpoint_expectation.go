package daemon

import (
	"slices"
	"sync"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// An endpointExpectation knows whether clients are to ask for a type, since something of their groups refers
// to it: a client whose clusters are all static asks for no endpoints. The zero value is ready to use.
type endpointExpectation struct {
	mu   sync.Mutex
	seen map[xds.Sum]bool // by the content of clusters, so that nothing old is kept: whether one refers to endpoints
}

// maxSeen is of how many tables it is remembered.
const maxRemembered = 1000

// endpoints reports whether one of the clusters of some groups refers to endpoints (EDS).
func (e *endpointExpectation) endpoints(all *store.Snapshot, groups []string) bool {
	return slices.ContainsFunc(groups, func(g string) bool {
		view := all.View(g)
		return view != nil && e.refers(view.Table(xds.Cluster))
	})
}

func (e *endpointExpectation) refers(t *xds.Table) bool {
	sum := t.Versions().Sum() // a version that the files state may be that of several groups
	e.mu.Lock()
	is, seen := e.seen[sum]
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
	if e.seen == nil || len(e.seen) >= maxRemembered {
		e.seen = map[xds.Sum]bool{}
	}
	e.seen[sum] = is
	return is
}
