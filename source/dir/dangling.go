package dir

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// A dangling is a warning of a reference to a missing resource.
type dangling struct {
	findings.Problem
	from Loaded
	to   xds.Ref
	path string // of the field in the resource; "": not known
}

// maxCompared limits how many names are compared with misspelled ones in one load. That many take a
// tenth of a second.
const maxCompared = 100_000

// A reach has the resources of all groups, and which groups a node may get at the same time.
type reach struct {
	layout   *layout
	contents map[string]groupContent
	together *groups.Overlap
	where    map[xds.Ref][]string // the groups that have a resource; filled by have

	bootstraps *bootstrapSet
	kept       map[string][]string // see bootstrapSet.byCluster; filled by inBootstrap
}

func newReach(l *layout, worlds map[string]groupContent, b *bootstrapSet) *reach {
	return &reach{layout: l, contents: worlds, together: l.together(), bootstraps: b}
}

// missingIn returns a function that returns [reach.dangling] of a configuration. It searches once, at its first call.
func missingIn(l layout, contents map[string]groupContent, b *bootstrapSet) func() []dangling {
	return sync.OnceValue(func() []dangling { return newReach(&l, contents, b).dangling(nil) })
}

// dangling returns the warnings of missing references in the served configuration, without the references of
// [Source.required].
func (s *Source) dangling(r *reach, found []dangling) []dangling {
	s.suggest(r, found)
	if r.bootstraps.mayComplete() {
		_, found = s.splitRequired(r, found)
		return found
	}
	required := requirer{source: s}
	for i, d := range found[:s.shown(len(found))] {
		if d.Hint == hints[xds.Cluster.URL] && required.path(d) != "" {
			found[i].Hint = requiredHint
		}
	}
	return found
}

// dangling returns a warning for each reference to a missing resource, unless a bootstrap has it, or elsewhere,
// if set, reports that it may be in another place. A resource or bootstrap counts if its group can be seen by a
// node together with the group of the reference.
func (r *reach) dangling(elsewhere func(xds.Ref) bool) (found []dangling) {
	for _, group := range slices.SortedFunc(maps.Keys(r.contents), byGroup) {
		found = append(found, r.within(group, elsewhere)...)
	}
	slices.SortStableFunc(found, func(a, b dangling) int { return byPlace(a.Problem, b.Problem) })
	return found
}

// suggest adds similar names to the first warnings.
func (s *Source) suggest(r *reach, found []dangling) {
	type where struct{ group, url string }
	names, budget := map[where][]string{}, maxCompared
	for i, d := range found[:s.shown(len(found))] {
		c, at := r.contents[d.Group].types[d.to.Type.URL], where{d.Group, d.to.Type.URL}
		if d.Group == "" {
			for _, w := range r.contents {
				c = w.types[d.to.Type.URL]
			}
		}
		if c == nil || len(c.at) > budget {
			continue
		}
		budget -= len(c.at)
		if names[at] == nil {
			names[at] = slices.Sorted(maps.Keys(c.at))
		}
		if near := protoyaml.Nearest(d.to.Name, slices.Values(names[at])); near != "" {
			found[i].Hint = fmt.Sprintf("did you mean %q?", near)
		}
	}
}

// within returns the warnings of one group.
func (r *reach) within(group string, elsewhere func(xds.Ref) bool) (found []dangling) {
	w := r.contents[group]
	collections := map[string]map[string]bool{}
	for _, c := range w.types {
		for name, l := range c.at {
			for _, ref := range l.Refs {
				if ref.Name == xds.Wildcard || w.has(ref, collections) || r.inBootstrap(group, ref) || elsewhere != nil && elsewhere(ref) {
					continue
				}
				others := r.have(ref)
				if r.together.FirstPossible(group, others) != "" {
					continue
				}
				if len(others) > 0 && (r.layout.invalid(group) || slices.ContainsFunc(others, r.layout.invalid)) {
					continue // the nodes of an invalid group are unknown
				}
				p := l.Pos.problem("%s %q refers to %s %q, which no file has", c.typ, name, ref.Type, ref.Name)
				p.Warning, p.Code, p.Hint = true, findings.Dangling, hints[ref.Type.URL]
				p.Type, p.Name = c.typ.String(), name
				if len(r.contents) > 1 {
					p.Group = group
				}
				if len(others) > 0 {
					p.Message = fmt.Sprintf("%s %q refers to %s %q, which no group has that a node sees together with %q", c.typ, name, ref.Type, ref.Name, group)
					p.Hint = fmt.Sprintf("group %q has it", others[0])
				}
				found = append(found, dangling{p, l, ref, ""})
			}
		}
	}
	// The order must not change from load to load. Sorting is cheap: few references are dangling.
	slices.SortStableFunc(found, func(a, b dangling) int {
		return cmp.Or(cmp.Compare(a.from.Type.URL, b.from.Type.URL), cmp.Compare(a.from.Name, b.from.Name))
	})
	return found
}

// have returns the groups that have the resource of a reference.
func (r *reach) have(ref xds.Ref) []string {
	if len(r.contents) == 1 {
		return nil
	}
	if r.where == nil {
		r.where = map[xds.Ref][]string{}
		for _, group := range slices.SortedFunc(maps.Keys(r.contents), byGroup) {
			for _, c := range r.contents[group].types {
				add := func(name string) {
					ref := xds.Ref{Type: c.typ, Name: name}
					if in := r.where[ref]; len(in) == 0 || in[len(in)-1] != group {
						r.where[ref] = append(in, group)
					}
				}
				for name := range c.at {
					add(name)
					if in := c.typ.Collection(name); in != "" {
						add(in)
					}
				}
				for name := range c.aliases {
					add(name)
				}
			}
		}
	}
	return r.where[ref]
}

// problems returns the warnings without the references.
func problems(all []dangling) (found []findings.Problem) {
	for _, d := range all {
		found = append(found, d.Problem)
	}
	return found
}

// has reports whether the group has the resource of a reference, by its name, by an alias or as a
// collection. It caches the collections by type URL in the map.
func (w groupContent) has(ref xds.Ref, collections map[string]map[string]bool) bool {
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

// hints explain what a missing resource means for a client, by type URL.
var hints = map[string]string{
	xds.Cluster.URL:  "requests to it fail, unless the client's bootstrap has it",
	xds.Endpoint.URL: "Envoy waits 15 s for endpoints that are missing, at each start",
}
