package server

import (
	"container/heap"
	"container/list"
)

// leavers are the addresses from which streams came that have ended, of which something is
// remembered. What is too much is taken from who left most: a stranger that comes and goes
// makes the server forget what itself has left.
type leavers struct {
	names map[string]*leaver
	most  leaverRanking
}

// A leaver has left something.
type leaver struct {
	name    string
	endings list.List // of *ending, the newest first
	room    int       // that they take
	rank    int       // its index in the ranking
}

// room is what an ending takes of all that may be remembered.
func (e *ending) room() int { return e.bytes + 1<<10 }

// add notes what an address left.
func (l *leavers) add(name string, e *ending) {
	of := l.names[name]
	if of == nil {
		if l.names == nil {
			l.names = map[string]*leaver{}
		}
		of = &leaver{name: name}
		l.names[name] = of
		heap.Push(&l.most, of)
	}
	e.from, e.at = of, of.endings.PushFront(e)
	of.room += e.room()
	heap.Fix(&l.most, of.rank)
}

// renew notes that it was left once more.
func (l *leavers) renew(e *ending) { e.from.endings.MoveToFront(e.at) }

// remove forgets it.
func (l *leavers) remove(e *ending) {
	of := e.from
	of.endings.Remove(e.at)
	of.room -= e.room()
	if of.endings.Len() > 0 {
		heap.Fix(&l.most, of.rank)
		return
	}
	heap.Remove(&l.most, of.rank)
	delete(l.names, of.name)
}

// next is the oldest of who left most. There must be something.
func (l *leavers) next() *ending { return l.most[0].endings.Back().Value.(*ending) }

// A leaverRanking is a heap of leavers, those who left most first.
type leaverRanking []*leaver

func (r leaverRanking) Len() int           { return len(r) }
func (r leaverRanking) Less(i, j int) bool { return r[i].room > r[j].room }
func (r leaverRanking) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank, r[j].rank = i, j
}

// Push implements [heap.Interface].
func (r *leaverRanking) Push(x any) {
	l := x.(*leaver)
	l.rank = len(*r)
	*r = append(*r, l)
}

// Pop implements [heap.Interface].
func (r *leaverRanking) Pop() any {
	last := len(*r) - 1
	l := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return l
}
