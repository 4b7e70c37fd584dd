package tree

import (
	"errors"
	"slices"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// walk looks for all that the root refers to, and begins to watch what is new, until nothing is:
// what cannot be watched is known at once. It reports whether there is a new state.
func (g *grower) walk() bool {
	var t *Tree
	var waiting []Waiting
	for g.moved {
		g.moved = false
		var missing []*node
		t, waiting, missing = g.look()
		g.watch(missing)
	}
	news := !slices.Equal(waiting, g.last.Waiting)
	if g.last.Waiting = waiting; len(waiting) == 0 && (len(g.dirty) > 0 || g.last.Tree == nil) {
		g.last.Tree, news = t, true
		clear(g.dirty)
	}
	g.prune(t, waiting)
	return news
}

// look walks from the root, and returns the members of a tree, for whom they wait, and who of these
// is not watched yet.
func (g *grower) look() (t *Tree, waiting []Waiting, missing []*node) {
	t = &Tree{index: byRef[int32]{}}
	root, _ := g.nodes.get(g.root)
	seen := map[*node]bool{root: true}
	for queue := []*node{root}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if n.is == nil {
			waiting = append(waiting, n.waiting())
			continue
		}
		t.index.set(n.Ref, int32(len(t.Members)))
		t.Members = append(t.Members, n.is)
		for _, r := range n.is.Refs {
			if r.Name == xds.Wildcard || !g.follows(r.Type) {
				continue
			}
			child, _ := g.nodes.get(r)
			if child == nil {
				child = &node{Ref: r}
				g.nodes.set(r, child)
				missing = append(missing, child)
			}
			if !seen[child] {
				seen[child], child.from = true, n
				queue = append(queue, child)
			}
		}
	}
	return t, waiting, missing
}

// watch begins to watch names.
func (g *grower) watch(all []*node) {
	byType := map[*xds.Type][]string{}
	for _, n := range all {
		byType[n.Type] = append(byType[n.Type], n.Name)
	}
	for typ, names := range byType {
		if g.Add(typ, names...) == nil {
			continue
		}
		for _, name := range names { // one of them cannot be watched
			if err := g.Add(typ, name); err != nil && !errors.Is(err, client.ErrClosed) {
				n, _ := g.nodes.get(xds.Ref{Type: typ, Name: name})
				g.set(n, &Member{Ref: n.Ref, Err: err})
			}
		}
	}
}

// prune watches no more what neither the tree nor the next one has.
func (g *grower) prune(next *Tree, waiting []Waiting) {
	waits := byRef[bool]{}
	for _, w := range waiting {
		waits.set(w.Ref, true)
	}
	gone := map[*xds.Type][]string{}
	for _, of := range g.nodes {
		for name, n := range of {
			if _, waits := waits.get(n.Ref); waits || next.has(n.Ref) || g.last.Tree != nil && g.last.Tree.has(n.Ref) {
				continue
			}
			gone[n.Type] = append(gone[n.Type], name)
			delete(of, name)
		}
	}
	for typ, names := range gone {
		g.Remove(typ, names...)
	}
}

func (g *grower) follows(t *xds.Type) bool {
	return g.Types == nil || slices.ContainsFunc(g.Types, t.Is)
}
