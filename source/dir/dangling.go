package dir

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/xds"
)

// A dangling is a warning of a reference to a resource that there is not.
type dangling struct {
	findings.Problem
	from Loaded
	to   xds.Ref
}

// maxCompared is how many names are compared with misspelled ones, of all in one load: it
// takes a tenth of a second.
const maxCompared = 100_000

// dangling returns a warning for each reference to a resource that there is not, and
// that there may not be elsewhere either. Of so many as are shown it says what may be
// meant.
func (w world) dangling(shown func(int) int, elsewhere func(xds.Ref) bool) (found []dangling) {
	collections := map[string]map[string]bool{}
	for _, url := range slices.Sorted(maps.Keys(w.types)) {
		c := w.types[url]
		for _, name := range slices.Sorted(maps.Keys(c.at)) {
			l := c.at[name]
			for _, ref := range l.Refs {
				if ref.Name == xds.Wildcard || w.has(ref, collections) || elsewhere(ref) {
					continue
				}
				p := l.Pos.problem("%s %q refers to %s %q, which no file has", c.typ, name, ref.Type, ref.Name)
				p.Warning, p.Code, p.Hint = true, findings.Dangling, hints[ref.Type.URL]
				found = append(found, dangling{p, l, ref})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b dangling) int { return byPlace(a.Problem, b.Problem) })
	names, budget := map[string][]string{}, maxCompared
	for i, d := range found[:shown(len(found))] {
		c := w.types[d.to.Type.URL]
		if c == nil || len(c.at) > budget {
			continue
		}
		budget -= len(c.at)
		if names[d.to.Type.URL] == nil {
			names[d.to.Type.URL] = slices.Sorted(maps.Keys(c.at))
		}
		if near := protofile.Nearest(d.to.Name, slices.Values(names[d.to.Type.URL])); near != "" {
			found[i].Hint = fmt.Sprintf("did you mean %q?", near)
		}
	}
	return found
}

// problems returns the warnings alone.
func problems(all []dangling) (found []findings.Problem) {
	for _, d := range all {
		found = append(found, d.Problem)
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
