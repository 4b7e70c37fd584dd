package shares

import "container/heap"

// Loads are as [Shares] of things that differ in how much they take, and take more or
// less from time to time: bytes. When all together take too much, the largest of whoever
// has most goes, the newest of equals. The zero value has room for any number: set Max.
// They are not safe for concurrent use.
type Loads[T any] struct {
	Max int // of all together; 0: any number

	all    int
	born   int // loads, ever
	owners map[string]*carrier[T]
	most   heaviest // of *carrier[T]
}

// A Load is what one thing takes. Owned by its Loads.
type Load[T any] struct {
	thing T
	of    *carrier[T]
	n     int
	born  int
	place int // in of.loads
	lost  bool
}

// A carrier is an owner that has loads.
type carrier[T any] struct {
	name  string
	n     int      // of all of them
	loads heaviest // of *Load[T]
	place int      // in Loads.most
}

// Enter returns the load of a thing that takes nothing yet. Who enters must leave.
func (l *Loads[T]) Enter(name string, thing T) *Load[T] {
	of := l.owners[name]
	if of == nil {
		of = &carrier[T]{name: name}
		if l.owners == nil {
			l.owners = map[string]*carrier[T]{}
		}
		l.owners[name] = of
		heap.Push(&l.most, of)
	}
	l.born++
	p := &Load[T]{thing: thing, of: of, born: l.born}
	heap.Push(&of.loads, p)
	return p
}

// Set says that a thing takes n now. It returns the things that lose all they have, of
// which this may be one: those that must go so that there is room for the others. For one
// that is lost already it does nothing.
func (l *Loads[T]) Set(p *Load[T], n int) (lost []T) {
	if p.lost {
		return nil
	}
	more := n - p.n
	l.add(p, more)
	for more > 0 && l.Max > 0 && l.all > l.Max && l.all > 0 {
		largest := l.most[0].(*carrier[T]).loads[0].(*Load[T])
		l.Leave(largest)
		lost = append(lost, largest.thing)
	}
	return lost
}

// Leave takes a load away. A second time does nothing, nor does it for one that was lost.
func (l *Loads[T]) Leave(p *Load[T]) {
	if p.lost {
		return
	}
	l.add(p, -p.n)
	p.lost = true
	heap.Remove(&p.of.loads, p.place)
	if len(p.of.loads) == 0 {
		heap.Remove(&l.most, p.of.place)
		delete(l.owners, p.of.name)
	}
}

// Lost reports whether a load was taken away, or left.
func (l *Loads[T]) Lost(p *Load[T]) bool { return p.lost }

// All is what all things take together.
func (l *Loads[T]) All() int { return l.all }

func (l *Loads[T]) add(p *Load[T], more int) {
	l.all += more
	p.n += more
	p.of.n += more
	heap.Fix(&p.of.loads, p.place)
	heap.Fix(&l.most, p.of.place)
}

func (p *Load[T]) weight() (n, born int) { return p.n, p.born }
func (p *Load[T]) at(i int)              { p.place = i }

func (c *carrier[T]) weight() (n, born int) { return c.n, 0 }
func (c *carrier[T]) at(i int)              { c.place = i }

// A heaviest is a heap of what knows its place in it.
type heaviest []weighed

// A weighed thing takes n; of equals the one born last comes first.
type weighed interface {
	weight() (n, born int)
	at(place int)
}

func (h heaviest) Len() int { return len(h) }

func (h heaviest) Less(i, j int) bool {
	a, bornA := h[i].weight()
	b, bornB := h[j].weight()
	return a > b || a == b && bornA > bornB
}

func (h heaviest) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at(i)
	h[j].at(j)
}

// Push implements [heap.Interface].
func (h *heaviest) Push(x any) {
	e := x.(weighed)
	e.at(len(*h))
	*h = append(*h, e)
}

// Pop implements [heap.Interface].
func (h *heaviest) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
