package xds

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// A tree is an immutable map from names to values: a hash trie of 16-way nodes. Trees share structure. A
// change copies one path, and the cost of comparing two trees depends on their difference. The zero value
// is empty.
//
// Invariant: the shape is canonical, so it depends on the names only and not on the order of edits. A
// subtree holds two names or more, and the root of an empty tree is nil.
type tree[V any] struct{ root *node[V] }

type node[V any] struct {
	bitmap uint16
	slots  []slot[V] // one slot for each set bit of bitmap; at maxDepth a list without a bitmap
}

// A slot is a value or a subtree.
type slot[V any] struct {
	name  string
	value V
	sub   *node[V] // non-nil: a subtree; then name and value are unused
}

// An edit sets the value of a name, or removes the name.
type edit[V any] struct {
	hash  uint64
	name  string
	value V
	gone  bool
	order int32 // of several edits of the same name, the edit with the highest order wins
}

const maxDepth = 16 // of 4 bits each; below it, names with equal hashes are in a list

var seed = maphash.MakeSeed()

// hash is a variable so that tests can make hashes collide.
var hash = func(name string) uint64 { return maphash.String(seed, name) }

// nibble returns the slot of a hash at a depth. The highest bits come first, so that sorted hashes
// are in slot order at every depth.
func nibble(h uint64, depth int) int { return int(h >> (60 - 4*depth) & 15) }

func (t tree[V]) get(name string) (V, bool) { return t.find(hash(name), name) }

func (t tree[V]) find(h uint64, name string) (v V, ok bool) {
	n := t.root
	for depth := 0; n != nil && depth < maxDepth; depth++ {
		bit := uint16(1) << nibble(h, depth)
		if n.bitmap&bit == 0 {
			return v, false
		}
		s := &n.slots[bits.OnesCount16(n.bitmap&(bit-1))]
		if s.sub == nil {
			if s.name != name {
				return v, false
			}
			return s.value, true
		}
		n = s.sub
	}
	if n != nil {
		if i := n.index(name); i >= 0 {
			return n.slots[i].value, true
		}
	}
	return v, false
}

// index finds a name in a list of names with equal hashes.
func (n *node[V]) index(name string) int {
	return slices.IndexFunc(n.slots, func(s slot[V]) bool { return s.name == name })
}

func (t tree[V]) without(name string) tree[V] {
	return t.apply([]edit[V]{{hash: hash(name), name: name, gone: true}})
}

// apply applies sorted edits (see [ordered]). It copies each changed node once, even if several
// edits change the node. If nothing changes, it returns the same tree.
func (t tree[V]) apply(edits []edit[V]) tree[V] {
	if len(edits) == 0 {
		return t
	}
	return tree[V]{t.root.apply(0, edits)}
}

// ordered sorts edits by hash and keeps the last edit of each name.
func ordered[V any](edits []edit[V]) []edit[V] {
	if len(edits) < 2 {
		return edits
	}
	for i := range edits {
		edits[i].order = int32(i)
	}
	slices.SortFunc(edits, func(a, b edit[V]) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.order, b.order))
	})
	kept := edits[:0]
	for i, e := range edits {
		if i+1 == len(edits) || edits[i+1].name != e.name {
			kept = append(kept, e)
		}
	}
	clear(edits[len(kept):])
	return kept
}

func (n *node[V]) apply(depth int, edits []edit[V]) *node[V] {
	if depth == maxDepth {
		return n.list(edits)
	}
	var old node[V]
	if n != nil {
		old = *n
	}
	var c node[V]
	var room [16]slot[V]
	changed := false
	c.slots = room[:0]
	for i := range 16 {
		var s slot[V]
		bit := uint16(1) << i
		has := old.bitmap&bit != 0
		if has {
			s, old.slots = old.slots[0], old.slots[1:]
		}
		here := 0
		for here < len(edits) && nibble(edits[here].hash, depth) == i {
			here++
		}
		if here > 0 {
			var moved bool
			s, has, moved = s.apply(has, depth+1, edits[:here])
			changed = changed || moved
			edits = edits[here:]
		}
		if has {
			c.bitmap |= bit
			c.slots = append(c.slots, s)
		}
	}
	switch {
	case !changed:
		return n
	case c.bitmap == 0:
		return nil
	}
	return &node[V]{c.bitmap, slices.Clone(c.slots)}
}

// apply applies edits to a slot and returns the new slot. The argument has reports whether the slot
// is occupied before the edits, and the result has2 whether it is occupied after them. The result
// changed reports whether the new slot is different.
func (s slot[V]) apply(has bool, depth int, edits []edit[V]) (_ slot[V], has2, changed bool) {
	if e := &edits[0]; len(edits) == 1 && s.sub == nil && (!has || s.name == e.name) {
		if e.gone {
			return slot[V]{}, false, has
		}
		return slot[V]{name: e.name, value: e.value}, true, true
	}
	n := s.node(has, depth)
	c := n.apply(depth, edits)
	switch {
	case c == n:
		return s, has, false
	case c == nil:
		return slot[V]{}, false, true
	case len(c.slots) == 1 && c.slots[0].sub == nil:
		return c.slots[0], true, true // a single name needs no subtree
	}
	return slot[V]{sub: c}, true, true
}

// node returns the content of a slot as a node at the given depth.
func (s slot[V]) node(has bool, depth int) *node[V] {
	switch {
	case !has || s.sub != nil:
		return s.sub
	case depth == maxDepth:
		return &node[V]{slots: []slot[V]{s}}
	}
	return &node[V]{1 << nibble(hash(s.name), depth), []slot[V]{s}}
}

// list applies edits to a list of names with equal hashes.
func (n *node[V]) list(edits []edit[V]) *node[V] {
	c, changed := &node[V]{}, false
	if n != nil {
		c.slots = slices.Clone(n.slots)
	}
	for _, e := range edits {
		i := c.index(e.name)
		switch {
		case i < 0 && e.gone:
			continue
		case i < 0:
			c.slots = append(c.slots, slot[V]{name: e.name, value: e.value})
		case e.gone:
			c.slots = slices.Delete(c.slots, i, i+1)
		default:
			c.slots[i].value = e.value
		}
		changed = true
	}
	switch {
	case !changed:
		return n
	case len(c.slots) == 0:
		return nil
	}
	return c
}

// walk yields every name and value in no particular order. It returns false if yield stopped it.
func (n *node[V]) walk(yield func(string, V) bool) bool {
	if n == nil {
		return true
	}
	for i := range n.slots {
		s := &n.slots[i]
		if s.sub != nil {
			if !s.sub.walk(yield) {
				return false
			}
		} else if !yield(s.name, s.value) {
			return false
		}
	}
	return true
}

// diff calls f with each pair of values that differ in a and b, until f returns false. If only one
// tree has a name, the other value is the zero value. The search skips nodes that a and b share.
func diff[V any](a, b *node[V], depth int, same, f func(old, new V) bool) bool {
	var zero V
	switch {
	case a == b:
		return true
	case b == nil:
		return a.walk(func(_ string, v V) bool { return f(v, zero) })
	case a == nil:
		return b.walk(func(_ string, v V) bool { return f(zero, v) })
	case depth == maxDepth:
		return diffLists(a, b, same, f)
	}
	x, y := a.slots, b.slots
	for rest := a.bitmap | b.bitmap; rest != 0; rest &= rest - 1 {
		var s, u slot[V]
		bit := rest & -rest
		inA, inB := a.bitmap&bit != 0, b.bitmap&bit != 0
		if inA {
			s, x = x[0], x[1:]
		}
		if inB {
			u, y = y[0], y[1:]
		}
		var ok bool
		if inA && inB && s.sub == nil && u.sub == nil && s.name == u.name {
			ok = same(s.value, u.value) || f(s.value, u.value)
		} else {
			ok = diff(s.node(inA, depth+1), u.node(inB, depth+1), depth+1, same, f)
		}
		if !ok {
			return false
		}
	}
	return true
}

// diffLists does the same as diff, for two lists of names with equal hashes.
func diffLists[V any](a, b *node[V], same, f func(old, new V) bool) bool {
	var zero V
	for _, s := range a.slots {
		if i := b.index(s.name); i < 0 {
			if !f(s.value, zero) {
				return false
			}
		} else if v := b.slots[i].value; !same(s.value, v) && !f(s.value, v) {
			return false
		}
	}
	for _, u := range b.slots {
		if a.index(u.name) < 0 && !f(zero, u.value) {
			return false
		}
	}
	return true
}
