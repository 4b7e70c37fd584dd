package xds

import (
	"hash/maphash"
	"iter"
	"math/bits"
)

// A tree is an immutable map from names to values: a hash trie of 16-way
// nodes. Trees share structure, so that a change copies one path and two trees
// can be compared in the size of their difference. The zero value is empty.
type tree[V any] struct{ root *node[V] }

type node[V any] struct {
	bitmap uint16
	slots  []slot[V] // one per bit of bitmap; at maxDepth a plain list
}

// A slot is a value or a subtree.
type slot[V any] struct {
	name  string
	value V
	sub   *node[V] // non-nil: a subtree, name and value are unused
}

const maxDepth = 16 // of 4 bits each; below, names whose hashes are equal are listed

var seed = maphash.MakeSeed()

func hash(name string) uint64 { return maphash.String(seed, name) }

func nibble(h uint64, depth int) uint16 { return 1 << (h >> (4 * depth) & 15) }

func (n *node[V]) index(bit uint16) int { return bits.OnesCount16(n.bitmap & (bit - 1)) }

func (t tree[V]) get(name string) (v V, ok bool) {
	h := hash(name)
	n := t.root
	for depth := 0; n != nil; depth++ {
		if depth == maxDepth {
			for i := range n.slots {
				if n.slots[i].name == name {
					return n.slots[i].value, true
				}
			}
			return v, false
		}
		bit := nibble(h, depth)
		if n.bitmap&bit == 0 {
			return v, false
		}
		s := &n.slots[n.index(bit)]
		if s.sub == nil {
			return s.value, s.name == name
		}
		n = s.sub
	}
	return v, false
}

func (t tree[V]) with(name string, v V) tree[V] {
	return tree[V]{t.root.with(hash(name), 0, slot[V]{name: name, value: v})}
}

func (n *node[V]) with(h uint64, depth int, leaf slot[V]) *node[V] {
	if n == nil {
		n = &node[V]{}
	}
	if depth == maxDepth {
		for i := range n.slots {
			if n.slots[i].name == leaf.name {
				return n.replace(i, leaf)
			}
		}
		return n.insert(len(n.slots), leaf)
	}
	bit := nibble(h, depth)
	i := n.index(bit)
	if n.bitmap&bit == 0 {
		c := n.insert(i, leaf)
		c.bitmap |= bit
		return c
	}
	switch s := n.slots[i]; {
	case s.sub != nil:
		return n.replace(i, slot[V]{sub: s.sub.with(h, depth+1, leaf)})
	case s.name == leaf.name:
		return n.replace(i, leaf)
	default: // two names share this prefix
		var sub *node[V]
		sub = sub.with(hash(s.name), depth+1, s)
		return n.replace(i, slot[V]{sub: sub.with(h, depth+1, leaf)})
	}
}

func (t tree[V]) without(name string) tree[V] {
	return tree[V]{t.root.without(hash(name), 0, name)}
}

// without keeps the shape canonical: a node that is left with one value is
// folded into its parent, so that equal sets have equal shapes.
func (n *node[V]) without(h uint64, depth int, name string) *node[V] {
	if n == nil {
		return nil
	}
	if depth == maxDepth {
		for i := range n.slots {
			if n.slots[i].name == name {
				return n.remove(i)
			}
		}
		return n
	}
	bit := nibble(h, depth)
	if n.bitmap&bit == 0 {
		return n
	}
	i := n.index(bit)
	s := n.slots[i]
	if s.sub == nil {
		if s.name != name {
			return n
		}
		c := n.remove(i)
		if c != nil {
			c.bitmap &^= bit
		}
		return c
	}
	sub := s.sub.without(h, depth+1, name)
	switch {
	case sub == s.sub:
		return n
	case sub == nil: // cannot happen in a canonical tree, and is harmless
		c := n.remove(i)
		if c != nil {
			c.bitmap &^= bit
		}
		return c
	case len(sub.slots) == 1 && sub.slots[0].sub == nil:
		return n.replace(i, sub.slots[0])
	}
	return n.replace(i, slot[V]{sub: sub})
}

func (n *node[V]) replace(i int, s slot[V]) *node[V] {
	c := &node[V]{n.bitmap, make([]slot[V], len(n.slots))}
	copy(c.slots, n.slots)
	c.slots[i] = s
	return c
}

func (n *node[V]) insert(i int, s slot[V]) *node[V] {
	c := &node[V]{n.bitmap, make([]slot[V], len(n.slots)+1)}
	copy(c.slots, n.slots[:i])
	c.slots[i] = s
	copy(c.slots[i+1:], n.slots[i:])
	return c
}

func (n *node[V]) remove(i int) *node[V] {
	if len(n.slots) == 1 {
		return nil
	}
	c := &node[V]{n.bitmap, make([]slot[V], len(n.slots)-1)}
	copy(c.slots, n.slots[:i])
	copy(c.slots[i:], n.slots[i+1:])
	return c
}

// all yields every name and value, in no particular order.
func (t tree[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { t.root.walk(yield) }
}

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

// diff calls f with each name whose value may differ between a and b, as told
// by same; shared structure is skipped. has tells on which side it exists.
func diff[V any](a, b *node[V], depth int, same func(V, V) bool, f func(name string, old, new V, inOld, inNew bool) bool) bool {
	if a == b {
		return true
	}
	var zero V
	only := func(n *node[V], old bool) bool {
		return n.walk(func(name string, v V) bool {
			if old {
				return f(name, v, zero, true, false)
			}
			return f(name, zero, v, false, true)
		})
	}
	if a == nil || b == nil {
		return only(a, true) && only(b, false)
	}
	if depth == maxDepth {
		return diffLists(a.slots, b.slots, same, f)
	}
	for rest := a.bitmap | b.bitmap; rest != 0; rest &= rest - 1 {
		bit := rest & -rest
		var x, y slot[V]
		inA, inB := a.bitmap&bit != 0, b.bitmap&bit != 0
		if inA {
			x = a.slots[a.index(bit)]
		}
		if inB {
			y = b.slots[b.index(bit)]
		}
		ok := true
		switch {
		case x.sub != nil && y.sub != nil:
			ok = diff(x.sub, y.sub, depth+1, same, f)
		case x.sub == nil && y.sub == nil:
			switch {
			case inA && inB && x.name == y.name:
				ok = same(x.value, y.value) || f(x.name, x.value, y.value, true, true)
			default:
				ok = (!inA || f(x.name, x.value, zero, true, false)) && (!inB || f(y.name, zero, y.value, false, true))
			}
		default: // a value on one side, a subtree (or nothing) on the other
			ok = diffLists(flatten(x, inA), flatten(y, inB), same, f)
		}
		if !ok {
			return false
		}
	}
	return true
}

func flatten[V any](s slot[V], in bool) (out []slot[V]) {
	if !in {
		return nil
	}
	if s.sub == nil {
		return []slot[V]{s}
	}
	s.sub.walk(func(name string, v V) bool { out = append(out, slot[V]{name: name, value: v}); return true })
	return out
}

// diffLists compares short lists; one of them has at most a handful of slots.
func diffLists[V any](a, b []slot[V], same func(V, V) bool, f func(name string, old, new V, inOld, inNew bool) bool) bool {
	var zero V
	find := func(l []slot[V], name string) *slot[V] {
		for i := range l {
			if l[i].name == name {
				return &l[i]
			}
		}
		return nil
	}
	for i := range a {
		if y := find(b, a[i].name); y == nil {
			if !f(a[i].name, a[i].value, zero, true, false) {
				return false
			}
		} else if !same(a[i].value, y.value) && !f(a[i].name, a[i].value, y.value, true, true) {
			return false
		}
	}
	for i := range b {
		if find(a, b[i].name) == nil && !f(b[i].name, zero, b[i].value, false, true) {
			return false
		}
	}
	return true
}
