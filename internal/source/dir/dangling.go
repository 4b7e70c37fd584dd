package dir

import (
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/xds"
)

// dangling returns a warning for each reference to a resource that there is not, and
// that there may not be either, if it is known of more names that they are there.
func (w world) dangling(maybe func(name string) bool) []protofile.Problem {
	var found []protofile.Problem
	collections := map[string]map[string]bool{}
	for _, url := range slices.Sorted(maps.Keys(w.types)) {
		c := w.types[url]
		for _, name := range slices.Sorted(maps.Keys(c.at)) {
			l := c.at[name]
			for _, ref := range l.Refs {
				if ref.Name == xds.Wildcard || w.has(ref, collections) || maybe(ref.Name) {
					continue
				}
				p := l.Pos.problem("%s %q refers to %s %q, which no file has", c.typ, name, ref.Type, ref.Name)
				p.Warning, p.Hint = true, hints[ref.Type.URL]
				found = append(found, p)
			}
		}
	}
	return found
}

// has reports whether a reference finds something, by a name, an alias or as a
// collection. It keeps which collections there are, by type URL.
func (w world) has(ref xds.Ref, collections map[string]map[string]bool) bool {
	c := w.types[ref.Type.URL]
	if c == nil {
		return false
	}
	if _, ok := c.at[ref.Name]; ok {
		return true
	}
	if _, ok := c.aliases[ref.Name]; ok {
		return true
	}
	all := collections[ref.Type.URL]
	if all == nil {
		all = map[string]bool{}
		for name := range c.at {
			if in := c.typ.Collection(name); in != "" {
				all[in] = true
			}
		}
		collections[ref.Type.URL] = all
	}
	return all[ref.Name]
}

// hints say what a missing resource means to a client.
var hints = map[string]string{
	xds.Cluster.URL:  "requests to it fail, unless the client's bootstrap has it",
	xds.Endpoint.URL: "Envoy waits 15 s for endpoints that are missing, at each start",
}
