// Package fair chooses what to evict when a shared limit is full: the newest item of the owner that holds
// most. It starts no goroutine and holds no lock.
package fair

import (
	"container/list"
	"iter"
)

// Shares limits the number of items and counts them by owner. An owner's items belong to groups, such as the streams
// of a connection. An item is new until [Shares.Settle]; new items give way before settled ones. The zero value has
// no room: set Max. It is not safe for concurrent use.
type Shares[T any] struct {
	Max int // number of items

	// Rotate evicts the oldest new item instead of the newest, also for another item of the same owner. Use it for
	// items that settle soon if they are good: a flood then replaces itself, and a good item has time to settle.
	Rotate bool

	fresh, settled tier[T]
}

// A tier is the new items or the settled items.
type tier[T any] struct {
	n      int
	owners map[string]*owner[T]
	most   Ranking[*owner[T]] // all owners; the one with most items first
}

// A Place belongs to one item until [Shares.Leave] or its eviction. The Shares own it.
type Place[T any] struct {
	item T
	in   *tier[T]
	of   *group[T]
	at   *list.Element // in of.places; nil after the item left or was evicted
}

// Owner returns the name of the item's owner, also after the item left.
func (p *Place[T]) Owner() string { return p.of.owner.name }

// An owner has at least one item.
type owner[T any] struct {
	Rank
	name   string
	n      int
	groups map[any]*group[T]
	most   Ranking[*group[T]] // all groups; the one with most items first
}

// Before implements [Ranked].
func (o *owner[T]) Before(other *owner[T]) bool { return o.n > other.n }

// A group has at least one item.
type group[T any] struct {
	Rank
	owner  *owner[T]
	key    any
	places list.List // of *Place[T], in the order of arrival
}

// Before implements [Ranked].
func (g *group[T]) Before(other *group[T]) bool { return g.places.Len() > other.places.Len() }

// crowd is the part of Max above which new items do not evict settled ones: a flood of new items evicts itself.
const crowd = 8

// Enter returns a place for an item of a group of the named owner. If there is no room, it evicts a new item: the
// newest of the largest group of the owner with most new items. But the named owner must then still have fewer
// items than that owner had. Within one owner, the same rule holds for its groups. If the rule forbids to evict a
// new item, it applies to settled items, unless more than an eighth of Max are new. If nothing can be evicted,
// Enter returns nil. [Shares.Rotate] changes the rule for new items.
func (s *Shares[T]) Enter(name string, of any, item T) (p *Place[T], evicted Evicted[T]) {
	if s.Len() >= s.Max {
		p := s.victim(name, of)
		if p == nil {
			return nil, evicted
		}
		evicted = Evicted[T]{p.item, true}
		s.Leave(p)
	}
	p = &Place[T]{item: item}
	s.fresh.put(p, name, of)
	return p, evicted
}

// Room reports whether Enter would return a place.
func (s *Shares[T]) Room(name string, of any) bool {
	return s.Len() < s.Max || s.victim(name, of) != nil
}

// victim returns the place to evict for a new item of an owner's group, or nil.
func (s *Shares[T]) victim(name string, of any) *Place[T] {
	g := s.fresh.victim(name, of)
	if g == nil && s.Rotate {
		g = s.fresh.largest(name)
	}
	switch {
	case g != nil && s.Rotate:
		return g.oldest()
	case g == nil && s.fresh.n <= s.Max/crowd:
		g = s.settled.victim(name, of)
	}
	if g == nil {
		return nil
	}
	return g.newest()
}

// Settle makes an item a settled one. It does nothing if the item has left, was evicted, or is settled.
func (s *Shares[T]) Settle(p *Place[T]) {
	if p.at == nil || p.in == &s.settled {
		return
	}
	name, of := p.of.owner.name, p.of.key
	p.in.remove(p)
	s.settled.put(p, name, of)
}

// Leave releases a place. It does nothing if the item has left or was evicted.
func (s *Shares[T]) Leave(p *Place[T]) {
	if p.at != nil {
		p.in.remove(p)
	}
}

// All yields all items, in no order. The loop must not change the shares.
func (s *Shares[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, t := range []*tier[T]{&s.fresh, &s.settled} {
			for _, o := range t.owners {
				for _, g := range o.groups {
					for e := g.places.Front(); e != nil; e = e.Next() {
						if !yield(e.Value.(*Place[T]).item) {
							return
						}
					}
				}
			}
		}
	}
}

// Len returns the number of items.
func (s *Shares[T]) Len() int { return s.fresh.n + s.settled.n }

// victim returns the group to evict an item from, or nil: the largest group of the owner with most items. The named
// owner (or group, if the owner is the same) must have fewer items than it, also with one more.
func (t *tier[T]) victim(name string, of any) *group[T] {
	if t.n == 0 {
		return nil
	}
	most, own := t.most.First(), t.owners[name]
	g := most.most.First()
	mine, limit := 0, most.n
	switch {
	case own == most:
		limit = g.places.Len()
		if same := own.groups[of]; same != nil {
			mine = same.places.Len()
		}
	case own != nil:
		mine = own.n
	}
	if mine+1 >= limit {
		return nil
	}
	return g
}

// largest returns the largest group of an owner, or nil.
func (t *tier[T]) largest(name string) *group[T] {
	o := t.owners[name]
	if o == nil {
		return nil
	}
	return o.most.First()
}

func (g *group[T]) oldest() *Place[T] { return g.places.Front().Value.(*Place[T]) }
func (g *group[T]) newest() *Place[T] { return g.places.Back().Value.(*Place[T]) }

// put adds a place.
func (t *tier[T]) put(p *Place[T], name string, of any) {
	o := t.owners[name]
	if o == nil {
		o = &owner[T]{name: name, groups: map[any]*group[T]{}}
		if t.owners == nil {
			t.owners = map[string]*owner[T]{}
		}
		t.owners[name] = o
	}
	g := o.groups[of]
	if g == nil {
		g = &group[T]{owner: o, key: of}
		o.groups[of] = g
	}
	p.in, p.of, p.at = t, g, g.places.PushBack(p)
	t.n++
	o.n++
	o.most.Put(g)
	t.most.Put(o)
}

// remove removes a place.
func (t *tier[T]) remove(p *Place[T]) {
	g := p.of
	o := g.owner
	g.places.Remove(p.at)
	p.at = nil
	t.n--
	o.n--
	if g.places.Len() > 0 {
		o.most.Put(g)
	} else {
		o.most.Remove(g)
		delete(o.groups, g.key)
	}
	if o.n > 0 {
		t.most.Put(o)
	} else {
		t.most.Remove(o)
		delete(t.owners, o.name)
	}
}

// Evicted is an item that has lost its place, if OK.
type Evicted[T any] struct {
	Item T
	OK   bool
}
