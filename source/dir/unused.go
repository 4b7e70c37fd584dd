package dir

import (
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/xds"
)

// referrers are the types whose resources refer to those of a type. If there is none of
// them in the files, they are elsewhere, as in Envoy's bootstrap. What clients ask for
// without a reference, such as listeners, is not here.
var referrers = map[string][]*xds.Type{
	xds.Cluster.URL:         {xds.Listener, xds.Route},
	xds.Endpoint.URL:        {xds.Cluster},
	xds.Route.URL:           {xds.Listener, xds.ScopedRoute},
	xds.Secret.URL:          {xds.Listener, xds.Cluster},
	xds.ExtensionConfig.URL: {xds.Listener, xds.Cluster},
}

// unused returns a warning for each resource that nothing refers to, of the types of which
// that can be known: nothing in the files, and no reference from elsewhere.
func (w world) unused(elsewhere []xds.Ref) (found []findings.Problem) {
	used, all := map[xds.Ref]bool{}, map[string]bool{}
	use := func(refs []xds.Ref) {
		for _, ref := range refs {
			if ref.Name == xds.Wildcard {
				all[ref.Type.URL] = true
			}
			used[ref] = true
		}
	}
	use(elsewhere)
	for _, c := range w.types {
		for _, l := range c.at {
			use(l.Refs)
		}
	}
	for _, url := range slices.Sorted(maps.Keys(referrers)) {
		c := w.types[url]
		if c == nil || all[url] || !slices.ContainsFunc(referrers[url], func(t *xds.Type) bool { return w.types[t.URL] != nil }) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.at)) {
			l := c.at[name]
			if used[xds.Ref{Type: c.typ, Name: name}] || l.OnDemand || c.typ.Collection(name) != "" || strings.HasPrefix(name, "xdstp:") ||
				slices.ContainsFunc(l.Aliases, func(alias string) bool { return used[xds.Ref{Type: c.typ, Name: alias}] }) {
				continue
			}
			p := l.Pos.problem("nothing refers to %s %q", c.typ, name)
			p.Warning, p.Code = true, findings.Unused
			found = append(found, p)
		}
	}
	return found
}
