package dir

import (
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

// referrers are the types whose resources refer to resources of a type. If the files have none of
// them, the references are elsewhere, for example in Envoy's bootstrap. Types that clients subscribe
// to without a reference, such as listeners, are not here.
var referrers = map[string][]*xds.Type{
	xds.Cluster.URL:         {xds.Listener, xds.Route},
	xds.Endpoint.URL:        {xds.Cluster},
	xds.Route.URL:           {xds.Listener, xds.ScopedRoute},
	xds.Secret.URL:          {xds.Listener, xds.Cluster},
	xds.ExtensionConfig.URL: {xds.Listener, xds.Cluster},
}

// unused returns a warning for each resource without a reference to it. References in all groups that
// a node may get together with its group count, and so do references in bootstraps. Only types in
// referrers are checked.
func (r *reach) unused() (found []findings.Problem) {
	outside := map[xds.Ref]bool{}
	for _, ref := range r.bootstraps.all.refs {
		outside[ref] = true
	}
	used, all, have := map[xds.Ref][]string{}, map[string][]string{}, map[string][]string{}
	order := slices.SortedFunc(maps.Keys(r.contents), byGroup)
	for _, group := range order {
		note := func(in []string) []string {
			if len(in) > 0 && in[len(in)-1] == group {
				return in
			}
			return append(in, group)
		}
		use := func(refs []xds.Ref) {
			for _, ref := range refs {
				if ref.Name == xds.Wildcard {
					all[ref.Type.URL] = note(all[ref.Type.URL])
				}
				used[ref] = note(used[ref])
			}
		}
		use(r.bootstrapOf(group).refs)
		for url, c := range r.contents[group].types {
			have[url] = append(have[url], group)
			for _, l := range c.at {
				use(l.Refs)
			}
		}
	}
	for _, group := range order {
		// The group itself comes first: most references are in the same group, and the other check is slower.
		together := func(in []string) bool { return slices.Contains(in, group) || r.together.FirstPossible(group, in) != "" }
		w := r.contents[group]
		for _, url := range slices.Sorted(maps.Keys(referrers)) {
			c := w.types[url]
			if c == nil || together(all[url]) || outside[xds.Ref{Type: c.typ, Name: xds.Wildcard}] || !slices.ContainsFunc(referrers[url], func(t *xds.Type) bool {
				return w.types[t.URL] != nil || together(have[t.URL])
			}) {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(c.at)) {
				l := c.at[name]
				use := func(name string) bool {
					ref := xds.Ref{Type: c.typ, Name: name}
					return outside[ref] || together(used[ref])
				}
				if use(name) || l.OnDemand || c.typ.Collection(name) != "" || strings.HasPrefix(name, "xdstp:") ||
					slices.ContainsFunc(l.Aliases, use) {
					continue
				}
				p := l.Pos.problem("nothing refers to %s %q", c.typ, name)
				p.Warning, p.Code = true, findings.Unused
				if len(r.contents) > 1 {
					p.Group = group
				}
				found = append(found, p)
			}
		}
	}
	return found
}
