package tree

import (
	"errors"
	"slices"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// walk collects the members and starts to watch new references, until it finds no new reference. A
// name that cannot be watched becomes a member with an error immediately. walk reports whether the
// state has changed.
func (g *builder) walk() bool {
	var t *Tree
	var waiting []Waiting
	for g.refsChanged {
		g.refsChanged = false
		var missing []*node
		t, waiting, missing = g.collect()
		g.watch(missing)
	}
	news := !slices.Equal(waiting, g.state.Waiting)
	g.state.Waiting = waiting
	if len(waiting) == 0 && (len(g.dirty) > 0 || g.state.Tree == nil) {
		g.state.Tree, news = t, true
		clear(g.dirty)
	}
	g.prune(t, waiting)
	return news
}

// collect walks from the root. It returns the members of the next tree, the names without an event, and
// the nodes that are not watched yet.
func (g *builder) collect() (t *Tree, waiting []Waiting, missing []*node) {
	t = &Tree{index: byRef[int32]{}}
	root, _ := g.nodes.get(g.root)
	seen := map[*node]bool{root: true}
	for queue := []*node{root}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if n.member == nil {
			waiting = append(waiting, n.waiting())
			continue
		}
		t.index.set(n.Ref, int32(len(t.Members)))
		t.Members = append(t.Members, n.member)
		for _, r := range n.member.Refs {
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
				seen[child], child.referrer = true, n
				queue = append(queue, child)
			}
		}
	}
	return t, waiting, missing
}

// watch starts to watch nodes.
func (g *builder) watch(all []*node) {
	byType := map[*xds.Type][]string{}
	for _, n := range all {
		byType[n.Type] = append(byType[n.Type], n.Name)
	}
	for typ, names := range byType {
		if g.Add(typ, names...) == nil {
			continue
		}
		for _, name := range names { // at least one of the names cannot be watched
			if err := g.Add(typ, name); err != nil && !errors.Is(err, client.ErrClosed) {
				n, _ := g.nodes.get(xds.Ref{Type: typ, Name: name})
				g.set(n, &Member{Ref: n.Ref, Err: err})
			}
		}
	}
}

// prune stops watching the names that are neither in the present tree nor in the next tree.
func (g *builder) prune(next *Tree, waiting []Waiting) {
	waits := byRef[bool]{}
	for _, w := range waiting {
		waits.set(w.Ref, true)
	}
	gone := map[*xds.Type][]string{}
	for _, of := range g.nodes {
		for name, n := range of {
			if _, waits := waits.get(n.Ref); waits || next.has(n.Ref) || g.state.Tree != nil && g.state.Tree.has(n.Ref) {
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

func (g *builder) follows(t *xds.Type) bool {
	return g.Types == nil || slices.ContainsFunc(g.Types, t.Is)
}
