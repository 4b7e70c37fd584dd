package dir

import (
	"context"
	"fmt"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// selector returns what the store asks which groups a node sees.
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

// needed returns the groups that are what they are even if they have nothing of their own:
// they include others, or others include them. What is laid over each other is told to
// nobody before all of it is known.
func (l *layout) needed() map[string]bool {
	needed := map[string]bool{}
	for name, d := range l.named {
		for _, other := range d.Include {
			needed[name], needed[other] = true, true
		}
	}
	return needed
}
