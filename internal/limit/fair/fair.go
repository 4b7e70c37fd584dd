// Package fair says who has most of what there is only so much of. When all is
// taken, the newest thing of whoever has most goes, and not everybody's. It knows
// nothing of what it counts, starts no goroutine, and holds no lock.
package fair

import (
	"container/list"
	"iter"
)

// Shares count things by whose they are. The zero value has no room: set Max. They
// are not safe for concurrent use.
type Shares[T any] struct {
	Max int // things at once

	n      int
	owners map[string]*owner
	most   Ranking[*owner] // all owners, those with most first
}

// A Place is what a thing has until [Shares.Leave]. Owned by its Shares.
type Place[T any] struct {
	thing T
	of    *owner
	at    *list.Element // of of.places; nil: it was taken away, or left
}

// Owner returns whose the place is, or was.
func (p *Place[T]) Owner() string { return p.of.name }

// An owner has at least one thing.
type owner struct {
	Rank
	name   string
	places *list.List // of *Place, in the order of arrival
}

// Before implements [Ranked].
func (o *owner) Before(other *owner) bool { return o.places.Len() > other.places.Len() }

// Enter finds a place for a thing. When all are taken, one is made: lost is the newest
// thing of whoever has most, and lost.OK says that there is one. No place is made, and
// Enter returns nil, for who would then have as much as the one that loses, or has most
// already.
func (s *Shares[T]) Enter(name string, thing T) (p *Place[T], lost Lost[T]) {
	o := s.owners[name]
	if !s.Room(name) {
		return nil, lost
	}
	if s.n >= s.Max {
		p := s.most.First().places.Back().Value.(*Place[T])
		lost = Lost[T]{p.thing, true}
		s.Leave(p)
	}
	if o == nil {
		o = &owner{name: name, places: list.New()}
		if s.owners == nil {
			s.owners = map[string]*owner{}
		}
		s.owners[name] = o
	}
	p = &Place[T]{thing: thing, of: o}
	p.at = o.places.PushBack(p)
	s.most.Put(o)
	s.n++
	return p, lost
}

// Room reports whether Enter would find or make a place.
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

// Lost is a thing that has lost its place.
type Lost[T any] struct {
	Thing T
	OK    bool
}

// Leave gives a place back. A second time does nothing, nor does it for one that was
// lost.
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

// All yields the things that have places, in no order. The shares must not change meanwhile.
func (s *Shares[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range s.owners {
			for e := o.places.Front(); e != nil; e = e.Next() {
				if !yield(e.Value.(*Place[T]).thing) {
					return
				}
			}
		}
	}
}

// Len is how many places are taken.
func (s *Shares[T]) Len() int { return s.n }
