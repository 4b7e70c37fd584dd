// Package fair chooses what to evict when a shared limit is full: the newest item of the owner that holds
// most. It starts no goroutine and holds no lock.
package fair

import (
	"container/list"
	"iter"
)

// Shares limits the number of items and counts them by owner. The zero value has no room: set Max.
// It is not safe for concurrent use.
type Shares[T any] struct {
	Max int // number of items

	n      int
	owners map[string]*owner
	most   Ranking[*owner] // all owners; the one with most items first
}

// A Place belongs to one item until [Shares.Leave] or its eviction. It is owned by its Shares.
type Place[T any] struct {
	item T
	of   *owner
	at   *list.Element // in of.places; nil after the item left or was evicted
}

// Owner returns the name of the item's owner, also after the item left.
func (p *Place[T]) Owner() string { return p.of.name }

// An owner has at least one item.
type owner struct {
	Rank
	name   string
	places *list.List // of *Place, in the order of arrival
}

// Before implements [Ranked].
func (o *owner) Before(other *owner) bool { return o.places.Len() > other.places.Len() }

// Enter returns a place for an item of the named owner. If there is no room, it evicts the newest item of
// the owner that holds most, and returns it in evicted. It returns nil, and evicts nothing, if this would
// leave the named owner with as many items as the other or more.
func (s *Shares[T]) Enter(name string, item T) (p *Place[T], evicted Evicted[T]) {
	o := s.owners[name]
	if !s.Room(name) {
		return nil, evicted
	}
	if s.n >= s.Max {
		p := s.most.First().places.Back().Value.(*Place[T])
		evicted = Evicted[T]{p.item, true}
		s.Leave(p)
	}
	if o == nil {
		o = &owner{name: name, places: list.New()}
		if s.owners == nil {
			s.owners = map[string]*owner{}
		}
		s.owners[name] = o
	}
	p = &Place[T]{item: item, of: o}
	p.at = o.places.PushBack(p)
	s.most.Put(o)
	s.n++
	return p, evicted
}

// Room reports whether Enter would return a place.
func (s *Shares[T]) Room(name string) bool {
	if s.n < s.Max {
		return true
	}
	have := 0
	if o := s.owners[name]; o != nil {
		have = o.places.Len()
	}
	return s.n > 0 && have+1 < s.most.First().places.Len()
}

// Evicted is an item that has lost its place, if OK.
type Evicted[T any] struct {
	Item T
	OK   bool
}

// Leave releases a place. It does nothing if the item has left or was evicted.
func (s *Shares[T]) Leave(p *Place[T]) {
	if p.at == nil {
		return
	}
	p.of.places.Remove(p.at)
	p.at = nil
	s.n--
	if p.of.places.Len() > 0 {
		s.most.Put(p.of)
		return
	}
	s.most.Remove(p.of)
	delete(s.owners, p.of.name)
}

// All yields all items, in no order. The loop must not change the shares.
func (s *Shares[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range s.owners {
			for e := o.places.Front(); e != nil; e = e.Next() {
				if !yield(e.Value.(*Place[T]).item) {
					return
				}
			}
		}
	}
}

// Len returns the number of items.
func (s *Shares[T]) Len() int { return s.n }
