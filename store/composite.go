package store

import (
	"cmp"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/internal/tablecache"
	"github.com/chancery-xds/chancery/xds"
)

// A composite is a group without resources of its own: it merges several groups, its layers. A
// layer hides resources with the same names in the layers after it. Nodes with the same list of
// groups share one composite, which exists while a node watches it. Each commit to a layer updates
// the composite. The cost of an update depends on the number of touched names.

// openGroup returns the group for watches that see these layers, and counts one more watch of this
// group.
func (st *Store) openGroup(names []string) *group {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(names) == 1 {
		g := st.group(names[0])
		g.watches++
		return g
	}
	key := tablecache.Key(names)
	g := st.composites[key]
	for tries := 0; g == nil; tries++ {
		g = &group{name: key}
		for _, name := range names {
			l := st.group(name)
			l.watches++
			g.layers = append(g.layers, l)
		}
		heads := g.heads()
		if tries == maxTries { // commits come faster than the merge, so they must wait for it now
			g.head.Store(mergeHeads(heads))
			st.register(key, g)
			break
		}
		st.mu.Unlock() // a large first merge does not block other users of the store
		h := mergeHeads(heads)
		st.mu.Lock()
		if other := st.composites[key]; other != nil {
			st.release(g)
			g = other
		} else if !slices.Equal(g.heads(), heads) { // a commit happened during the merge
			st.release(g)
			g = nil
		} else {
			g.head.Store(h)
			st.register(key, g)
		}
	}
	g.watches++
	return g
}

// maxTries is how often a composite is merged without the lock, before commits have to wait for it.
const maxTries = 3

// register registers a composite with the store and its layers. The store is locked.
func (st *Store) register(key string, g *group) {
	if st.composites == nil {
		st.composites = map[string]*group{}
	}
	st.composites[key] = g
	for _, l := range g.layers {
		if l.composites == nil {
			l.composites = map[*group]bool{}
		}
		l.composites[g] = true
	}
}

// closeGroup subtracts one watch of a group. The store is locked.
func (st *Store) closeGroup(g *group) {
	g.watches--
	st.dropIfUnused(g)
}

// release ends the use of the layers by a composite. The store is locked.
func (st *Store) release(g *group) {
	for _, l := range g.layers {
		delete(l.composites, g)
		st.closeGroup(l)
	}
}

// heads returns the heads of the layers.
func (g *group) heads() []*head {
	heads := make([]*head, len(g.layers))
	for i, l := range g.layers {
		heads[i] = l.head.Load()
	}
	return heads
}

// mergeHeads merges heads. The result is unknown as long as the content of one head is unknown.
func mergeHeads(heads []*head) *head {
	h := &head{unknown: unknownTypes(heads)}
	for _, l := range heads {
		h.seq = max(h.seq, l.seq)
		if l.view == nil {
			return &head{seq: h.seq}
		}
	}
	h.complete, h.view = h.seq, xds.Tables{}
	for _, l := range heads {
		for url := range l.view {
			if h.view[url] == nil {
				h.view[url] = layersOf(heads, url).table()
			}
		}
	}
	return h
}

// unknownTypes returns the types that are unknown in one of the heads.
func unknownTypes(heads []*head) (all map[string]bool) {
	for _, h := range heads {
		if len(h.unknown) > 0 && all == nil {
			all = map[string]bool{}
		}
		maps.Copy(all, h.unknown)
	}
	return all
}

// reviseComposite returns the revision of a composite after revisions of its layers, or nil if nothing changes.
func (g *group) reviseComposite(revised map[*group]*revision) *revision {
	was, heads := g.head.Load(), g.heads()
	urls := map[string]xds.Names{}
	for i, l := range g.layers {
		r := revised[l]
		if r == nil {
			continue
		}
		heads[i] = &head{view: r.view, unknown: r.unknown}
		for url := range r.touched {
			urls[url] = nil
		}
		for _, c := range r.changes {
			urls[c.Type.URL] = nil
		}
	}
	r := &revision{at: g, view: was.view, unknown: unknownTypes(heads), touched: xds.Names{}}
	if was.view == nil {
		r.view = mergeHeads(heads).view
		if r.view == nil {
			return nil
		}
		return r
	}
	for url := range urls {
		var touched []string
		for _, l := range g.layers {
			if lr := revised[l]; lr != nil {
				touched = union(touched, lr.touched[url])
			}
		}
		old, ls := was.view[url], layersOf(heads, url)
		table := old
		if len(ls) > 0 { // without a layer that has the type, Notify has touched the names
			names := ls.affected(touched)
			table = g.remerge(ls, old, url, names)
			if old == nil {
				old = xds.NewTable(table.Type())
			}
			touched = union(touched, changedNames(old, table, names))
		}
		if len(touched) > 0 {
			r.touched[url] = touched
			r.count += len(touched)
		}
		if table == was.view[url] {
			continue
		}
		if len(r.past) == 0 {
			r.view = maps.Clone(r.view)
		}
		r.view[url] = table
		r.past = append(r.past, pastTable{url: url, table: old, touched: len(touched)})
	}
	if r.count == 0 && len(r.past) == 0 && maps.Equal(r.unknown, was.unknown) {
		return nil
	}
	return r
}

// union returns the union of two sorted lists.
func union(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// changedNames returns the names and aliases that now find another resource in the table of a
// composite, in any order, and some of them twice. The argument names has the resource names that may
// have changed.
func changedNames(old, table *xds.Table, names []string) (touched []string) {
	for _, name := range names {
		was, is := old.Lookup(name), table.Lookup(name)
		if was == is {
			continue
		}
		for _, r := range []*xds.Resource{was, is} {
			if r != nil {
				touched = append(touched, namesOf(r)...)
			}
		}
	}
	return touched
}

// remerge returns the table of a type after changes of names in the layers. It edits the old table, until the
// edits exceed the size of all layers except the largest. Then it merges the layers again, so that the
// table shares memory with the largest layer. Otherwise each of a thousand composites would in time have its
// own copy.
func (g *group) remerge(ls layers, old *xds.Table, url string, names []string) *xds.Table {
	if len(ls) == 1 || old == nil {
		return ls.table()
	}
	if g.edits == nil {
		g.edits = map[string]int{}
	}
	g.edits[url] += len(names)
	if g.edits[url] > ls.editSize() {
		delete(g.edits, url)
		return ls.table()
	}
	if table := ls.edit(old, names); table != old {
		return table.WithLayers(ls...)
	}
	return old
}

// layers are the tables of one type in a composite. The first table that has a name hides the others. No
// element is nil.
type layers []*xds.Table

func layersOf(heads []*head, url string) (ls layers) {
	for _, h := range heads {
		if t := h.view[url]; t != nil {
			ls = append(ls, t)
		}
	}
	return ls
}

// base returns the largest layer. The merged table is this layer with edits.
func (ls layers) base() *xds.Table {
	return slices.MaxFunc(ls, func(a, b *xds.Table) int { return cmp.Compare(a.Len(), b.Len()) })
}

// editSize returns the number of resources in all layers except the largest.
func (ls layers) editSize() (n int) {
	for _, t := range ls {
		n += t.Len()
	}
	return n - ls.base().Len()
}

// table merges the layers. If only one layer has the type, the composite shares its table and version.
func (ls layers) table() *xds.Table {
	base := ls.base()
	if len(ls) == 1 {
		return base
	}
	var names []string
	for _, t := range ls {
		if t != base {
			for r := range t.All() {
				names = append(names, r.Name)
				names = append(names, r.Aliases...)
			}
		}
	}
	return ls.edit(base, ls.affected(names)).WithVersion("").WithLayers(ls...)
}

// affected returns the touched names, and the names of resources that have one of them as an alias.
func (ls layers) affected(touched []string) []string {
	var more []string
	for _, t := range ls {
		if !t.HasAliases() {
			continue
		}
		for _, name := range touched {
			for r := range t.Aliased(name).All() {
				if slices.Contains(r.Aliases, name) { // not a member of a collection
					more = append(more, r.Name)
				}
			}
		}
	}
	return slices.Concat(touched, more)
}

// edit returns the table with the given names replaced by the resources that the layers have for
// these names.
func (ls layers) edit(t *xds.Table, names []string) *xds.Table {
	var set []*xds.Resource
	var remove []string
	for _, name := range names {
		if r := ls.find(name); r != nil {
			set = append(set, r)
		} else {
			remove = append(remove, name)
		}
	}
	table, err := t.With(set, remove...)
	if err != nil {
		panic("store: invalid resource in a layer: " + err.Error())
	}
	return table
}

// find returns the resource for a name, from the first layer that has the name. It returns nil if
// an earlier layer uses the name or one of the aliases of this resource, because a name must find
// only one resource.
func (ls layers) find(name string) *xds.Resource {
	for i, t := range ls {
		r := t.Lookup(name)
		if r == nil {
			continue
		}
		for _, above := range ls[:i] {
			if conflictsWith(above, r) {
				return nil
			}
		}
		return r
	}
	return nil
}

// conflictsWith reports whether the name or an alias of r is used by an alias of the table, or an alias of r is a name
// in the table.
func conflictsWith(t *xds.Table, r *xds.Resource) bool {
	return aliased(t, r.Name, "") != "" || slices.ContainsFunc(r.Aliases, func(a string) bool {
		return t.Lookup(a) != nil || aliased(t, a, "") != ""
	})
}
