package dir

import (
	"context"
	"fmt"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// selector returns the function that selects groups of the store for a node.
func (s *Source) selector(r *groups.Rules) store.Selector {
	return func(_ context.Context, n *xds.Node) ([]string, error) {
		names := r.Decide(n).Groups
		if names == nil {
			return nil, fmt.Errorf("no group matches node id %q, cluster %q, and nodes that match none are refused (otherwise: refuse)", n.ID, n.Cluster)
		}
		if s.opts.Group != groups.Default {
			for i, name := range names {
				names[i] = s.storeGroup(name)
			}
		}
		return names, nil
	}
}

// needed returns the groups that are marked known even if they are empty: groups with a file of their
// own, and groups that others include. A node gets no resources before all of its groups are known. So
// a new group without resources must not block the other groups of its nodes.
func (l *layout) needed() map[string]bool {
	needed := map[string]bool{}
	for name, d := range l.named {
		needed[name] = needed[name] || name != groups.Default
		for _, other := range d.Include {
			needed[other] = true
		}
	}
	return needed
}
