package fair

// Loads is like [Shares] for items of different and changing size, such as bytes. When the sum exceeds Max,
// it evicts the largest item of the owner with the largest sum. Of equal items it evicts the newest. The zero
// value has no limit: set Max. It is not safe for concurrent use.
type Loads[T any] struct {
	Max int // limit of the sum; 0: none

	all    int
	born   int // number of calls of Enter
	owners map[string]*carrier[T]
	most   Ranking[*carrier[T]]
}

// A Load is the size of one item. The Loads own it.
type Load[T any] struct {
	Rank // in of.loads
	item T
	of   *carrier[T]
	n    int
	born int  // Loads.born at Enter: a newer load has a larger number
	lost bool // the item left or was evicted
}

// A carrier is an owner with at least one load.
type carrier[T any] struct {
	Rank  // in Loads.most
	name  string
	n     int // sum of its loads
	loads Ranking[*Load[T]]
}

// Enter returns a load of size zero for an item. The caller must call [Loads.Leave] in the end.
func (l *Loads[T]) Enter(name string, item T) *Load[T] {
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
	p := &Load[T]{item: item, of: of, born: l.born}
	of.loads.Put(p)
	return p
}

// Set sets the size of an item to n. It returns the items that it evicted to make room; p itself may be
// among them. It does nothing for an item that has left or was evicted.
func (l *Loads[T]) Set(p *Load[T], n int) (evicted []T) {
	if p.lost {
		return nil
	}
	l.add(p, n-p.n)
	for l.Max > 0 && l.all > l.Max {
		largest := l.most.First().loads.First()
		l.Leave(largest)
		evicted = append(evicted, largest.item)
	}
	return evicted
}

// Leave removes a load. It does nothing if the item has left or was evicted.
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

// Lost reports whether the item of a load has left or was evicted.
func (l *Loads[T]) Lost(p *Load[T]) bool { return p.lost }

// All returns the sum of all loads.
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
