package protocoltest

import (
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// This file makes the references between all types besides clusters, assignments, listeners and routes. In
// whole worlds every referred resource exists, and others are removed.

// moreRefs chooses further references of a resource.
func (c *content) moreRefs(url string) (refs []xds.Ref) {
	some := func(n int, ref xds.Ref) {
		if c.dice.IntN(n) == 0 {
			refs = append(refs, ref)
		}
	}
	switch url {
	case xds.Listener.URL:
		some(4, pick(c.dice, atSecrets))
		some(4, pick(c.dice, atFilters))
		some(4, xds.Ref{Type: xds.ScopedRoute, Name: xds.Wildcard})
	case xds.ScopedRoute.URL:
		some(1, pick(c.dice, atRoutes))
		some(4, pick(c.dice, atClusters)) // the routes of a listener may be inline
	case xds.ExtensionConfig.URL:
		some(3, pick(c.dice, atClusters))
		some(3, pick(c.dice, atSecrets))
	case xds.Endpoint.URL:
		globs := kinds[atEndpoints].globs
		some(3, xds.Ref{Type: xds.LbEndpoint, Name: globs[c.dice.IntN(len(globs))]})
	case xds.Route.URL:
		some(4, xds.Ref{Type: xds.VirtualHost, Name: xds.Wildcard})
		some(12, xds.Ref{Type: xds.Cluster, Name: xds.Wildcard})
	}
	return refs
}

// link chooses further references of a resource of a whole world, which stay until the resource is made again.
func (c *content) link(url, name string) (refs []xds.Ref) {
	some := func(n, k int) {
		if c.dice.IntN(n) == 0 {
			refs = append(refs, pick(c.dice, k))
		}
	}
	switch url {
	case xds.Listener.URL:
		some(3, atSecrets)
		some(3, atFilters)
		if c.dice.IntN(3) == 0 {
			refs = append(refs, xds.Ref{Type: xds.ScopedRoute, Name: xds.Wildcard})
		}
	case xds.Route.URL:
		if c.dice.IntN(4) == 0 {
			refs = append(refs, xds.Ref{Type: xds.VirtualHost, Name: xds.Wildcard})
		}
	case xds.ScopedRoute.URL:
		refs = append(refs, pick(c.dice, atRoutes))
	case xds.VirtualHost.URL:
		some(1, atClusters)
	case xds.ExtensionConfig.URL:
		some(2, atClusters)
		some(3, atSecrets)
	case xds.Cluster.URL:
		some(3, atSecrets)
	case xds.Endpoint.URL:
		if globs := kinds[atEndpoints].globs; c.dice.IntN(3) == 0 {
			refs = append(refs, xds.Ref{Type: xds.LbEndpoint, Name: globs[c.dice.IntN(len(globs))]})
		}
	}
	c.links[url+name] = refs
	return refs
}

// linked reports whether any resource refers to a name of a type after an edit.
func (c *content) linked(e *edit, t *xds.Type, name string) bool {
	refers := func(ref xds.Ref) bool { return ref.Type.Is(t) && (ref.Name == name || ref.Name == xds.Wildcard) }
	for _, k := range kinds {
		for _, n := range k.names {
			if slices.ContainsFunc(c.links[k.url+n], refers) && c.exists(e, k, n) {
				return true
			}
		}
	}
	return false
}

// exists reports whether a resource exists after an edit.
func (c *content) exists(e *edit, k kind, name string) bool {
	return c.view.Table(k.typ()).Lookup(name) != nil && !slices.Contains(e.remove[k.url], name) ||
		slices.ContainsFunc(e.set[k.url], func(r *xds.Resource) bool { return r.Name == name })
}

// keep creates the wanted names, replaces some of them, and removes the rest.
func (c *content) keep(e *edit, k kind, wanted func(name string) bool, put func(url, name string, refs ...xds.Ref)) {
	for _, n := range k.names {
		is := c.view.Table(k.typ()).Lookup(n) != nil
		switch {
		case !wanted(n) && is:
			delete(c.links, k.url+n)
			e.drop(k.url, n)
		case wanted(n) && (!is || c.dice.IntN(4) == 0):
			put(k.url, n)
		}
	}
}

// scoping makes the scopes of the listeners that refer to scopes, and marks the routes that these refer to as
// used.
func (c *content) scoping(e *edit, used map[string]bool, put func(url, name string, refs ...xds.Ref)) {
	k := kinds[atScopes]
	first := c.dice.IntN(2) == 0
	c.keep(e, k, func(n string) bool {
		is := c.view.Table(xds.ScopedRoute).Lookup(n) != nil
		return c.linked(e, xds.ScopedRoute, n) && (is || first || n == k.names[0])
	}, put)
	c.referred(k, xds.Route, used)
}

// hosting makes the virtual hosts of the routes that refer to virtual hosts.
func (c *content) hosting(e *edit, needed map[string]bool, put func(url, name string, refs ...xds.Ref)) {
	k := kinds[atHosts]
	for r := range c.targets {
		if slices.Contains(e.remove[xds.Route.URL], r) {
			delete(c.links, xds.Route.URL+r)
		}
	}
	c.keep(e, k, func(n string) bool {
		r, _, _ := strings.Cut(n, "/")
		return c.targets[r] != "" && len(c.links[xds.Route.URL+r]) > 0
	}, put)
	c.referred(k, xds.Cluster, needed)
}

// filtering makes the extension configs of the listeners.
func (c *content) filtering(e *edit, needed map[string]bool, put func(url, name string, refs ...xds.Ref)) {
	k := kinds[atFilters]
	linked := map[string]bool{}
	for _, n := range k.names {
		if c.linked(e, xds.ExtensionConfig, n) {
			linked[n] = true
		}
	}
	again := c.group(k, linked)
	c.keep(e, k, func(n string) bool { return linked[n] }, func(url, name string, refs ...xds.Ref) {
		delete(again, name)
		put(url, name, append(refs, c.members[url+name]...)...)
	})
	for _, n := range slices.Sorted(maps.Keys(again)) {
		put(k.url, n, c.members[k.url+n]...)
	}
	c.referred(k, xds.Cluster, needed)
}

// referred collects the names of a type that resources of a kind refer to.
func (c *content) referred(k kind, t *xds.Type, into map[string]bool) {
	for _, n := range k.names {
		for _, ref := range c.links[k.url+n] {
			if ref.Type.Is(t) {
				into[ref.Name] = true
			}
		}
	}
}

// supply makes the referred endpoints and secrets, and sometimes a runtime layer.
func (c *content) supply(e *edit, put func(url, name string, refs ...xds.Ref)) {
	c.keep(e, kinds[atEndpoints], func(n string) bool {
		return c.linked(e, xds.LbEndpoint, xds.LbEndpoint.Collection(n))
	}, put)
	c.keep(e, kinds[atSecrets], func(n string) bool { return c.linked(e, xds.Secret, n) }, put)
	if c.dice.IntN(4) == 0 {
		put(xds.Runtime.URL, kinds[atLayers].names[c.dice.IntN(2)])
	}
}
