package server

import (
	"container/list"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// leavers are the addresses from which streams came that have ended, of which something is
// remembered. What is too much is taken from who left most: a stranger that comes and goes
// makes the server forget what itself has left.
type leavers struct {
	names map[string]*leaver
	most  fair.Ranking[*leaver]
}

// A leaver has left something.
type leaver struct {
	fair.Rank
	name    string
	endings list.List // of *ending, the newest first
	room    int       // that they take
}

// Before implements [shares.Ranked].
func (l *leaver) Before(o *leaver) bool { return l.room > o.room }

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
	}
	e.from, e.at = of, of.endings.PushFront(e)
	of.room += e.room()
	l.most.Put(of)
}

// renew notes that it was left once more.
func (l *leavers) renew(e *ending) { e.from.endings.MoveToFront(e.at) }

// remove forgets it.
func (l *leavers) remove(e *ending) {
	of := e.from
	of.endings.Remove(e.at)
	of.room -= e.room()
	if of.endings.Len() > 0 {
		l.most.Put(of)
		return
	}
	l.most.Remove(of)
	delete(l.names, of.name)
}

// next is the oldest of who left most. There must be something.
func (l *leavers) next() *ending { return l.most.First().endings.Back().Value.(*ending) }
