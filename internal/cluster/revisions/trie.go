package revisions

import (
	"cmp"
	"slices"
)

// An entry is an item in its stored form.
type entry struct {
	at     uint64 // position of the item
	raw    []byte // bytes of the first encoding: an unchanged item is never encoded again
	item   *Item
	pieces []place // pieces of the body, if raw does not contain it
}

func (e *entry) compare(o *entry) int {
	return cmp.Or(cmp.Compare(e.at, o.at), e.item.Key().Compare(o.item.Key()))
}

// size is the space that the entry takes in a page.
func (e *entry) size() int { return len(e.raw) + 4 }

// A node holds all items whose positions begin with some bits. A small node is a page; a larger one
// has a kid for each value of the next bit. So the shape depends only on the items: equal items make
// equal trees, and a change of one item changes one page. A node is immutable, except for the place
// of its page, which the writer sets before it shares the node.
type node struct {
	size  int      // total size of the entries
	items int      // number of items
	pages int      // number of pages
	kids  [2]*node // nil: the node is a page
	page  []*entry // sorted entries

	// renamed is true if an item below was stored under a name that is not canonical.
	renamed bool
	at      place // where the page is stored; zero: not stored yet
}

// pageMost is the maximum size of a page with more than one entry. With it, a change of one item
// writes less than 64 KB, including the manifests above the page.
const pageMost = 24 << 10

// build returns a node of sorted entries whose positions share the first depth bits.
func build(depth int, entries []*entry) *node {
	n := &node{items: len(entries), pages: 1}
	for _, e := range entries {
		n.size += e.size()
	}
	if n.size <= pageMost || len(entries) < 2 || depth == 64 {
		n.page = entries
		return n
	}
	i := half(depth, len(entries), func(i int) uint64 { return entries[i].at })
	return join(build(depth+1, entries[:i]), build(depth+1, entries[i:]))
}

// half returns the number of positions, of n sorted ones, whose bit at a depth is zero.
func half(depth, n int, at func(int) uint64) int {
	i := 0
	for i < n && !bit(at(i), depth) {
		i++
	}
	return i
}

func bit(at uint64, depth int) bool { return at<<depth>>63 == 1 }

func join(a, b *node) *node {
	return &node{size: a.size + b.size, items: a.items + b.items, pages: a.pages + b.pages, kids: [2]*node{a, b}, renamed: a.renamed || b.renamed}
}

func (n *node) isPage() bool { return n.kids[0] == nil }

// entries appends all entries of a node, sorted.
func (n *node) entries(all []*entry) []*entry {
	if n.isPage() {
		return append(all, n.page...)
	}
	return n.kids[1].entries(n.kids[0].entries(all))
}

// canonical returns the tree with each item at the position of its canonical name. Only the changed pages are new,
// and they have no place, so the next commit stores them. Of two items with one canonical name, the newer counts,
// because its author meant to replace the other. If both have the same revision, the one that was stored
// under the canonical name counts, or else the one with the last position.
func (n *node) canonical() *node {
	if !n.renamed {
		return n
	}
	var writes []write
	set := map[Key]*entry{}
	n.walk(func(e *entry) bool {
		k := e.item.Key()
		at := k.position()
		if at == e.at {
			return true
		}
		writes = append(writes, write{at: e.at, key: k})
		other := set[k]
		if other == nil {
			other = n.get(k)
		}
		if other == nil || e.item.Since > other.item.Since || e.item.Since == other.item.Since && other.at != at {
			set[k] = e
		}
		return true
	})
	for k, e := range set {
		at := k.position()
		writes = append(writes, write{at, k, &entry{at: at, raw: e.item.encode(e.pieces), item: e.item, pieces: e.pieces}})
	}
	slices.SortFunc(writes, write.compare)
	return n.apply(0, writes)
}

// private returns the tree with copies of the pages that are not stored, because the writer sets their places and a
// reader may have the originals.
func (n *node) private() *node {
	if n.isPage() {
		if n.at != (place{}) {
			return n
		}
		own := *n
		return &own
	}
	a, b := n.kids[0].private(), n.kids[1].private()
	if a == n.kids[0] && b == n.kids[1] {
		return n
	}
	return join(a, b)
}

// A write is the new value of a key.
type write struct {
	at  uint64
	key Key
	set *entry // new value; nil: the key is removed
}

func (w write) compare(o write) int { return cmp.Or(cmp.Compare(w.at, o.at), w.key.Compare(o.key)) }

// apply applies sorted writes to a node, and shares the unchanged parts.
func (n *node) apply(depth int, writes []write) *node {
	switch {
	case len(writes) == 0:
		return n
	case n.isPage():
		return build(depth, merge(n.page, writes))
	}
	i := half(depth, len(writes), func(i int) uint64 { return writes[i].at })
	a, b := n.kids[0].apply(depth+1, writes[:i]), n.kids[1].apply(depth+1, writes[i:])
	if a.size+b.size <= pageMost || a.items+b.items < 2 {
		return build(depth, b.entries(a.entries(nil)))
	}
	return join(a, b)
}

// merge applies writes to the entries of a page; both are sorted.
func merge(page []*entry, writes []write) []*entry {
	all := make([]*entry, 0, len(page)+len(writes))
	for _, w := range writes {
		for len(page) > 0 && cmp.Or(cmp.Compare(page[0].at, w.at), page[0].item.Key().Compare(w.key)) < 0 {
			all, page = append(all, page[0]), page[1:]
		}
		if len(page) > 0 && page[0].at == w.at && page[0].item.Key() == w.key {
			page = page[1:]
		}
		if w.set != nil {
			all = append(all, w.set)
		}
	}
	return append(all, page...)
}

// get returns the entry of a key, or nil.
func (n *node) get(k Key) *entry {
	at := k.position()
	for depth := 0; !n.isPage(); depth++ {
		if bit(at, depth) {
			n = n.kids[1]
		} else {
			n = n.kids[0]
		}
	}
	i, found := slices.BinarySearchFunc(n.page, write{at: at, key: k}, func(e *entry, w write) int {
		return cmp.Or(cmp.Compare(e.at, w.at), e.item.Key().Compare(w.key))
	})
	if !found {
		return nil
	}
	return n.page[i]
}

// walk calls f with each entry, until f returns false.
func (n *node) walk(f func(*entry) bool) bool {
	if !n.isPage() {
		return n.kids[0].walk(f) && n.kids[1].walk(f)
	}
	for _, e := range n.page {
		if !f(e) {
			return false
		}
	}
	return true
}

// differ calls f with each key whose entries differ, until f returns false. A new entry has a nil
// `was`, and a removed entry has a nil `is`. Parts that both nodes share, in memory or by their
// place, cost nothing.
func differ(was, is *node, f func(was, is *entry) bool) bool {
	switch {
	case was == is, was.at != place{} && was.at == is.at:
		return true
	case !was.isPage() && !is.isPage():
		return differ(was.kids[0], is.kids[0], f) && differ(was.kids[1], is.kids[1], f)
	}
	a, b := was.entries(nil), is.entries(nil)
	for len(a) > 0 || len(b) > 0 {
		var c int
		switch {
		case len(a) == 0:
			c = 1
		case len(b) == 0:
			c = -1
		default:
			c = a[0].compare(b[0])
		}
		var old, cur *entry
		if c <= 0 {
			old, a = a[0], a[1:]
		}
		if c >= 0 {
			cur, b = b[0], b[1:]
		}
		if old != nil && cur != nil && (old == cur || old.item.same(cur.item)) {
			continue
		}
		if !f(old, cur) {
			return false
		}
	}
	return true
}
