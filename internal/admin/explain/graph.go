package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A GraphQuery selects the resource of [Explainer.References], and limits the graph.
type GraphQuery struct {
	Type, Name  string
	Group       string // "": the first one that has the resource
	Limit       int    // maximum number of resources
	Depth       int    // maximum distance from the resource
	Subscribers bool   // count the clients of the first 100 resources
}

// maxPlaced is the maximum number of references to missing resources whose places are searched: for each, the source
// reads a file.
const maxPlaced = 20

// References returns the graph of the references of a resource in a group: the resources to which it refers, and the
// resources that refer to it, directly or over others. The nearest resources come first. The error is a [*NotFound] if
// the type, group or name does not exist.
func (e *Explainer) References(ctx context.Context, q GraphQuery) (api.ReferenceGraph, error) {
	t, err := typeNamed(q.Type)
	if err != nil {
		return api.ReferenceGraph{}, err
	}
	all, err := e.served(t, Query{Type: q.Type, Name: q.Name, Group: q.Group})
	if err != nil {
		return api.ReferenceGraph{}, err
	}
	g := e.grapher()
	g.limit = q.Limit
	g.out.Group = all[0].group
	for _, r := range all {
		if !slices.Contains(g.out.Groups, r.group) {
			g.out.Groups = append(g.out.Groups, r.group)
		}
	}
	slices.Sort(g.out.Groups)
	_, _ = g.add(all[0].group, xds.Ref{Type: all[0].Type, Name: all[0].Name}, all[0].Resource)
	down, up := []int{0}, []int{0}
	for depth := 0; len(down)+len(up) > 0; depth++ {
		if ctx.Err() != nil {
			return g.out, context.Cause(ctx)
		}
		g.full = depth >= q.Depth
		down = g.refer(down)
		up = g.referring(ctx, up)
	}
	g.place()
	if q.Subscribers && e.d.Selected != nil {
		return g.out, g.count(ctx)
	}
	return g.out, nil
}

func (e *Explainer) grapher() *grapher {
	return &grapher{e: e, now: e.d.Snapshot(), together: e.d.Source.Together(), at: map[graphKey]int{}, views: map[string]xds.Tables{}}
}

// A grapher makes one graph.
type grapher struct {
	e        *Explainer
	now      *store.Snapshot
	together *groups.Overlap
	limit    int
	full     bool // no resource is added any more
	out      api.ReferenceGraph
	nodes    []graphNode // of out.Nodes
	at       map[graphKey]int
	edges    map[[2]int]bool
	views    map[string]xds.Tables // by group
}

type graphNode struct {
	xds.Ref
	*xds.Resource // nil: it is missing, or of a bootstrap
	group         string
}

type graphKey struct{ group, url, name string }

func (g *grapher) view(group string) xds.Tables {
	v, ok := g.views[group]
	if !ok {
		v = g.now.Effective(group)
		g.views[group] = v
	}
	return v
}

// add returns the index of a resource in the graph, and whether it is new. The index is -1 if the graph is full.
func (g *grapher) add(group string, ref xds.Ref, r *xds.Resource) (at int, added bool) {
	k := graphKey{group, ref.Type.URL, ref.Name}
	if at, ok := g.at[k]; ok {
		return at, false
	}
	if len(g.nodes) >= g.limit || g.full {
		g.out.Cut = true
		return -1, false
	}
	at = len(g.nodes)
	g.at[k] = at
	g.nodes = append(g.nodes, graphNode{ref, r, group})
	n := api.ReferenceNode{Resource: api.Resource{Type: ref.Type.String(), Name: ref.Name}}
	if r != nil {
		n.Group, n.Place = group, g.e.placeIn([]string{group}, ref.Type, ref.Name)
	}
	g.out.Nodes = append(g.out.Nodes, n)
	return at, true
}

func (g *grapher) edge(from, to int) {
	if g.edges == nil {
		g.edges = map[[2]int]bool{}
	}
	if e := [2]int{from, to}; !g.edges[e] {
		g.edges[e] = true
		g.out.Edges = append(g.out.Edges, api.Reference{From: from, To: to})
	}
}

// refer adds the resources to which the nodes refer, and returns those that are new.
func (g *grapher) refer(from []int) (next []int) {
	for _, i := range from {
		n := g.nodes[i]
		if n.Resource == nil {
			continue
		}
		for _, ref := range n.Refs {
			if ref.Name == xds.Wildcard { // it may refer to any resource of the type
				continue
			}
			for _, to := range g.resolve(n.group, ref) {
				at, added := g.add(to.group, to.Ref, to.Resource)
				if at < 0 {
					g.out.Nodes[i].Cut = true
					continue
				}
				g.edge(i, at)
				if added {
					next = append(next, at)
				}
				if to.Resource == nil {
					g.absent(at, n.group, ref)
				}
			}
		}
	}
	return next
}

// resolve returns the resources of a reference. The nearest ones are in the same group. Otherwise a node may get them
// from another group at the same time. Without any, the result is the reference itself, without a resource.
func (g *grapher) resolve(group string, ref xds.Ref) []graphNode {
	all := g.lookup(group, ref)
	if all != nil {
		return all
	}
	for _, other := range g.now.Groups() {
		if other == group || !g.together.Possible(group, other) {
			continue
		}
		all = g.lookup(other, ref)
		if all != nil {
			return all
		}
	}
	return []graphNode{{ref, nil, group}}
}

// lookup returns the resources of a group with a name or an alias.
func (g *grapher) lookup(group string, ref xds.Ref) (all []graphNode) {
	table := g.view(group).Table(ref.Type)
	if r := table.Lookup(ref.Name); r != nil {
		return []graphNode{{ref, r, group}}
	}
	for r := range table.Aliased(ref.Name).All() {
		all = append(all, graphNode{xds.Ref{Type: ref.Type, Name: r.Name}, r, group})
	}
	return all
}

// absent sets the state of a resource that no group has.
func (g *grapher) absent(at int, group string, ref xds.Ref) {
	n := &g.out.Nodes[at]
	n.Missing, n.Bootstrap, n.Reason = g.state(group, ref)
}

// state reports whether a resource that no group has is missing, with a hint, or whether a bootstrap has it.
func (g *grapher) state(group string, ref xds.Ref) (missing, bootstrap bool, hint string) {
	switch {
	case ref.Type.V2 || g.e.d.Undecided != nil && g.e.d.Undecided(ref.Type, ref.Name):
		return false, false, ""
	case g.e.d.Source.InBootstrap([]string{group}, ref):
		return false, true, ""
	}
	if others := g.e.d.Source.Occurrences(ref.Type, ref.Name); len(others) > 0 && others[0].Served {
		hint = fmt.Sprintf("only group %s has it", quote(others[0].Group))
	} else if near := g.e.d.Source.Nearest(ref.Type, ref.Name); near != "" {
		hint = fmt.Sprintf("did you mean %s?", quote(near))
	}
	return true, false, hint
}

// referring adds the resources that refer to the nodes, and returns those that are new. It reads all resources of the
// types that may refer to them.
func (g *grapher) referring(ctx context.Context, to []int) (next []int) {
	wanted := map[xds.Ref][]int{}
	var types []*xds.Type
	for _, i := range to {
		n := g.nodes[i]
		wanted[n.Ref] = append(wanted[n.Ref], i)
		if n.Resource != nil {
			for _, alias := range n.Aliases {
				ref := xds.Ref{Type: n.Ref.Type, Name: alias}
				wanted[ref] = append(wanted[ref], i)
			}
		}
		for _, t := range n.Ref.Type.ReferredBy() {
			if !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	type hit struct {
		groupedResource
		ref xds.Ref
	}
	var hits []hit
	for _, t := range types {
		for _, group := range g.now.Groups() {
			if ctx.Err() != nil {
				return nil
			}
			for r := range g.view(group).Table(t).All() {
				for _, ref := range r.Refs {
					if wanted[ref] != nil {
						hits = append(hits, hit{groupedResource{r, group}, ref})
					}
				}
			}
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(compareGrouped(a.groupedResource, b.groupedResource), cmp.Compare(a.ref.Name, b.ref.Name))
	})
	for _, h := range hits {
		for _, i := range wanted[h.ref] {
			next = g.refers(h.groupedResource, h.ref, i, next)
		}
	}
	return next
}

// refers adds a resource that refers to a node, unless the reference means a resource of another group.
func (g *grapher) refers(r groupedResource, ref xds.Ref, to int, next []int) []int {
	n := g.nodes[to]
	if !slices.ContainsFunc(g.resolve(r.group, ref), func(is graphNode) bool { return is.group == n.group && is.Ref == n.Ref }) {
		return next
	}
	at, added := g.add(r.group, xds.Ref{Type: r.Type, Name: r.Name}, r.Resource)
	switch {
	case at < 0:
		g.out.Nodes[to].Cut = true
		return next
	case added:
		next = append(next, at)
	}
	g.edge(at, to)
	return next
}

// place sets the places of references to missing resources.
func (g *grapher) place() {
	n := 0
	for i := range g.out.Edges {
		e := &g.out.Edges[i]
		if !g.out.Nodes[e.To].Missing || n == maxPlaced {
			continue
		}
		from := g.nodes[e.From]
		if s, ok := g.e.d.Source.Lookup(from.group, from.Ref.Type, from.Ref.Name); ok {
			e.Place = g.e.reference(s.Loaded, g.nodes[e.To].Ref)
			n++
		}
	}
}

// count sets the number of subscribers of the first resources.
func (g *grapher) count(ctx context.Context) error {
	var of []groupedResource
	var at []int
	for i, n := range g.nodes {
		if n.Resource != nil && len(of) < maxCounted {
			of, at = append(of, groupedResource{n.Resource, n.group}), append(at, i)
		}
	}
	items := make([]api.ServedResource, len(of))
	err := g.e.count(ctx, of, items)
	for i, is := range items {
		g.out.Nodes[at[i]].Clients = is.Clients
	}
	return err
}
