package fair

import "container/heap"

// A Ranking is things of which one comes first: who has most, or whose turn is next. The
// zero value is empty. It is not safe for concurrent use.
type Ranking[T Ranked[T]] struct{ order order[T] }

// A Ranked thing embeds a [Rank].
type Ranked[T any] interface {
	Before(other T) bool // of equals either comes first
	rank() *Rank
}

// A Rank says where a thing stands in the one ranking that it may be in. The zero value
// stands in none.
type Rank struct{ at int } // its index, counted from one

func (r *Rank) rank() *Rank { return r }

// Ranked reports whether the thing is in a ranking.
func (r *Rank) Ranked() bool { return r.at > 0 }

// Put puts a thing where it belongs. One that is there already must be put again when its
// order has changed.
func (r *Ranking[T]) Put(x T) {
	if k := x.rank(); k.Ranked() {
		heap.Fix(&r.order, k.at-1)
		return
	}
	heap.Push(&r.order, x)
}

// Remove takes a thing out, if it is there.
func (r *Ranking[T]) Remove(x T) {
	if k := x.rank(); k.Ranked() {
		heap.Remove(&r.order, k.at-1)
	}
}

// First is who comes first. There must be somebody.
func (r *Ranking[T]) First() T { return r.order[0] }

// Len is how many there are.
func (r *Ranking[T]) Len() int { return len(r.order) }

// An order is a heap.
type order[T Ranked[T]] []T

func (o order[T]) Len() int           { return len(o) }
func (o order[T]) Less(i, j int) bool { return o[i].Before(o[j]) }
func (o order[T]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].rank().at, o[j].rank().at = i+1, j+1
}

// Push implements [heap.Interface].
func (o *order[T]) Push(x any) {
	*o = append(*o, x.(T))
	x.(T).rank().at = len(*o)
}

// Pop implements [heap.Interface].
func (o *order[T]) Pop() any {
	last := len(*o) - 1
	x := (*o)[last]
	x.rank().at = 0
	var none T
	(*o)[last] = none // nothing is kept by what is used again
	*o = (*o)[:last]
	return x
}
