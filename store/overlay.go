package store

import (
	"cmp"
	"maps"
	"slices"

	"github.com/chancery-xds/chancery/internal/tablecache"
	"github.com/chancery-xds/chancery/xds"
)

// An overlay is a group that has nothing of its own: what several groups have, its layers, laid
// over each other. Nodes with the same list of groups share one. It is made when the first of
// them comes, goes with the last, and is revised by each commit to a layer of it, at the cost of
// the names that this touches.

// see returns what the nodes see that see these groups, and counts one watch more of it.
func (st *Store) see(names []string) *group {
	names = st.layered(names)
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(names) == 1 {
		g := st.group(names[0])
		g.watches++
		return g
	}
	key := tablecache.Key(names)
	g := st.overlays[key]
	for tries := 0; g == nil; tries++ {
		g = &group{name: key}
		for _, name := range names {
			l := st.group(name)
			l.watches++
			g.layers = append(g.layers, l)
		}
		heads := g.heads()
		if tries == maxTries { // commits come faster than this is done: they wait once
			g.head.Store(laid(heads))
			st.join(key, g)
			break
		}
		st.mu.Unlock() // the first to lay much over much keep nobody waiting
		h := laid(heads)
		st.mu.Lock()
		if other := st.overlays[key]; other != nil {
			st.release(g)
			g = other
		} else if !slices.Equal(g.heads(), heads) { // there was a commit meanwhile
			st.release(g)
			g = nil
		} else {
			g.head.Store(h)
			st.join(key, g)
		}
	}
	g.watches++
	return g
}

// maxTries is how often an overlay is laid beside commits, before they have to wait for it.
const maxTries = 3

// join makes an overlay known. The store is locked.
func (st *Store) join(key string, g *group) {
	if st.overlays == nil {
		st.overlays = map[string]*group{}
	}
	st.overlays[key] = g
	for _, l := range g.layers {
		if l.over == nil {
			l.over = map[*group]bool{}
		}
		l.over[g] = true
	}
}

// leave counts one watch less of a group. The store is locked.
func (st *Store) leave(g *group) {
	g.watches--
	st.tidy(g)
}

// release lets go of the layers of an overlay. The store is locked.
func (st *Store) release(g *group) {
	for _, l := range g.layers {
		delete(l.over, g)
		st.leave(l)
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

// laid returns heads laid over each other. It is not known what there is as long as that is
// not known of one of them.
func laid(heads []*head) *head {
	h := &head{unknown: unknown(heads)}
	for _, l := range heads {
		if h.seq = max(h.seq, l.seq); l.view == nil {
			return &head{seq: h.seq}
		}
	}
	h.forgot, h.view = h.seq, xds.Tables{}
	for _, l := range heads {
		for url := range l.view {
			if h.view[url] == nil {
				h.view[url] = layersOf(heads, url).table()
			}
		}
	}
	return h
}

// unknown returns the types of which it is not known what one of the heads has.
func unknown(heads []*head) (all map[string]bool) {
	for _, h := range heads {
		if len(h.unknown) > 0 && all == nil {
			all = map[string]bool{}
		}
		maps.Copy(all, h.unknown)
	}
	return all
}

// relay returns what the revisions of layers make of an overlay, nil if nothing.
func (g *group) relay(revised map[*group]*revision) *revision {
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
	r := &revision{at: g, view: was.view, unknown: unknown(heads), touched: xds.Names{}}
	if was.view == nil {
		if r.view = laid(heads).view; r.view == nil {
			return nil
		}
		return r
	}
	for url := range urls {
		var touched []string
		for _, l := range g.layers {
			if lr := revised[l]; lr != nil {
				touched = merge(touched, lr.touched[url])
			}
		}
		old, ls := was.view[url], layersOf(heads, url)
		names := ls.moved(touched)
		table := g.relaid(ls, old, url, names)
		if old == nil {
			old = xds.NewTable(table.Type())
		}
		touched = merge(touched, seen(old, table, names))
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
		r.past = append(r.past, former{url: url, table: old, touched: len(touched)})
	}
	if r.count == 0 && len(r.past) == 0 && maps.Equal(r.unknown, was.unknown) {
		return nil
	}
	return r
}

// merge returns what is in either of two sorted lists.
func merge(a, b []string) []string {
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

// seen returns what may find something else than before in a table of an overlay, sorted, since
// other resources are seen under these names.
func seen(old, table *xds.Table, names []string) (touched []string) {
	for _, name := range names {
		was, is := old.Lookup(name), table.Lookup(name)
		if was == is {
			continue
		}
		for _, r := range []*xds.Resource{was, is} {
			if r != nil {
				touched = append(touched, found(r)...)
			}
		}
	}
	slices.Sort(touched)
	return slices.Compact(touched)
}

// relaid returns the table of a type after what these names find in its layers may have moved. The old
// table is edited, until it shares too little with the largest layer any more: then all is laid
// anew, or a thousand overlays would each have in time a copy of what they have in common.
func (g *group) relaid(ls layers, old *xds.Table, url string, names []string) *xds.Table {
	if len(ls) == 1 || old == nil {
		return ls.table()
	}
	if g.edits == nil {
		g.edits = map[string]int{}
	}
	if g.edits[url] += len(names); g.edits[url] > ls.above() {
		delete(g.edits, url)
		return ls.table()
	}
	if table := ls.edit(old, names); table != old {
		return table.WithLayers(ls...)
	}
	return old
}

// Layers are the tables of one type that are laid over each other: the first that has a name
// is seen. None is nil.
type layers []*xds.Table

func layersOf(heads []*head, url string) (ls layers) {
	for _, h := range heads {
		if t := h.view[url]; t != nil {
			ls = append(ls, t)
		}
	}
	return ls
}

// base returns the largest layer, of which the others are edits.
func (ls layers) base() *xds.Table {
	return slices.MaxFunc(ls, func(a, b *xds.Table) int { return cmp.Compare(a.Len(), b.Len()) })
}

// above returns how much there is in the layers but the largest.
func (ls layers) above() (n int) {
	for _, t := range ls {
		n += t.Len()
	}
	return n - ls.base().Len()
}

// table lays all anew. A type that one layer alone has is shared with it, with its version.
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
	return ls.edit(base, ls.moved(names)).WithVersion("").WithLayers(ls...)
}

// moved returns the names of resources that may be seen, or not, since names or aliases were
// touched.
func (ls layers) moved(touched []string) []string {
	var more []string
	for _, t := range ls {
		if !t.HasAliases() {
			continue
		}
		for _, name := range touched {
			for r := range t.Aliased(name).All() {
				if slices.Contains(r.Aliases, name) { // and is no member of a collection
					more = append(more, r.Name)
				}
			}
		}
	}
	return slices.Concat(touched, more)
}

// edit returns a table in which each of the names is what the layers have it to be.
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
		panic("store: a layer has what no table can have: " + err.Error())
	}
	return table
}

// find returns the resource that is seen under a name, nil if none is: that of the first layer
// that has it, unless a layer above has its name as an alias, or one of its aliases. A name
// finds one resource only.
func (ls layers) find(name string) *xds.Resource {
	for i, t := range ls {
		r := t.Lookup(name)
		if r == nil {
			continue
		}
		for _, above := range ls[:i] {
			if taken(above, r) {
				return nil
			}
		}
		return r
	}
	return nil
}

// taken reports whether a resource's name is an alias in a table, or one of its aliases is found there.
func taken(t *xds.Table, r *xds.Resource) bool {
	return aliased(t, r.Name, "") != "" || slices.ContainsFunc(r.Aliases, func(a string) bool {
		return t.Lookup(a) != nil || aliased(t, a, "") != ""
	})
}
