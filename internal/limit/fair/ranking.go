package fair

import "container/heap"

// A Ranking is a priority queue. The zero value is empty. It is not safe for concurrent use.
type Ranking[T Ranked[T]] struct{ order order[T] }

// A Ranked item embeds a [Rank] and has an order.
type Ranked[T any] interface {
	Before(other T) bool // equal items have no order
	rank() *Rank
}

// A Rank is the position of an item in a ranking. An item is in at most one ranking. The zero value is
// not in a ranking.
type Rank struct{ at int } // its index, counted from one

func (r *Rank) rank() *Rank { return r }

// Ranked reports whether the item is in a ranking.
func (r *Rank) Ranked() bool { return r.at > 0 }

// Put inserts an item, or moves it to its place after its order has changed.
func (r *Ranking[T]) Put(x T) {
	if k := x.rank(); k.Ranked() {
		heap.Fix(&r.order, k.at-1)
		return
	}
	heap.Push(&r.order, x)
}

// Remove removes an item if it is in the ranking.
func (r *Ranking[T]) Remove(x T) {
	if k := x.rank(); k.Ranked() {
		heap.Remove(&r.order, k.at-1)
	}
}

// First returns the first item. It panics if the ranking is empty.
func (r *Ranking[T]) First() T { return r.order[0] }

// Len returns the number of items.
func (r *Ranking[T]) Len() int { return len(r.order) }

// order implements [heap.Interface].
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
	(*o)[last] = none // the array must not keep the item alive
	*o = (*o)[:last]
	return x
}
