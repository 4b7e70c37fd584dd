package fair

// Loads are as [Shares] of things that differ in how much they take, and take more or
// less from time to time: bytes. When all together take too much, the largest of whoever
// has most goes, the newest of equals. The zero value has room for any number: set Max.
// They are not safe for concurrent use.
type Loads[T any] struct {
	Max int // of all together; 0: any number

	all    int
	born   int // loads, ever
	owners map[string]*carrier[T]
	most   Ranking[*carrier[T]]
}

// A Load is what one thing takes. Owned by its Loads.
type Load[T any] struct {
	Rank  // in of.loads
	thing T
	of    *carrier[T]
	n     int
	born  int
	lost  bool
}

// A carrier is an owner that has loads.
type carrier[T any] struct {
	Rank  // in Loads.most
	name  string
	n     int // of all of them
	loads Ranking[*Load[T]]
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
		l.most.Put(of)
	}
	l.born++
	p := &Load[T]{thing: thing, of: of, born: l.born}
	of.loads.Put(p)
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
		largest := l.most.First().loads.First()
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
	p.of.loads.Remove(p)
	if p.of.loads.Len() == 0 {
		l.most.Remove(p.of)
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
	p.of.loads.Put(p)
	l.most.Put(p.of)
}

// Before implements [Ranked].
func (p *Load[T]) Before(o *Load[T]) bool { return p.n > o.n || p.n == o.n && p.born > o.born }

// Before implements [Ranked].
func (c *carrier[T]) Before(o *carrier[T]) bool { return c.n > o.n }
