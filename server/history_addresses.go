package server

import (
	"container/list"

	"github.com/chancery-xds/chancery/internal/limit/fair"
)

// addressUsage counts the remembered content of ended streams by address. If the content of all
// addresses exceeds the limits, the address with the most content loses its oldest content. So a
// stranger that connects again and again displaces only its own content.
type addressUsage struct {
	names map[string]*addressContent
	most  fair.Ranking[*addressContent]
}

// addressContent is an address with remembered content.
type addressContent struct {
	fair.Rank
	name    string
	endings list.List // of *endedContent, the newest first
	room    int       // memory of its contents
}

// Before implements [fair.Ranked].
func (l *addressContent) Before(o *addressContent) bool { return l.room > o.room }

// room is the memory of an ended stream's content that counts against the limits.
func (e *endedContent) room() int { return e.bytes + 1<<10 }

// add adds a content of an address.
func (l *addressUsage) add(name string, e *endedContent) {
	of := l.names[name]
	if of == nil {
		if l.names == nil {
			l.names = map[string]*addressContent{}
		}
		of = &addressContent{name: name}
		l.names[name] = of
	}
	e.from, e.at = of, of.endings.PushFront(e)
	of.room += e.room()
	l.most.Put(of)
}

// renew moves a content to the front, because an equal one was added.
func (l *addressUsage) renew(e *endedContent) { e.from.endings.MoveToFront(e.at) }

// remove removes a content.
func (l *addressUsage) remove(e *endedContent) {
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

// next returns the oldest content of the address that uses most. At least one address must have
// content.
func (l *addressUsage) next() *endedContent {
	return l.most.First().endings.Back().Value.(*endedContent)
}
