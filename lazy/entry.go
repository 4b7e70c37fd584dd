package lazy

import (
	"container/heap"
	"container/list"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A key is a name of a type in a group.
type key struct{ group, url, name string }

// An entry is a name that somebody asked for and that the store does not have
// by itself.
type entry struct {
	key
	typ *xds.Type

	status  status
	phase   phase
	again   bool     // look again after this time
	holding *holding // if found

	asked  time.Time // undecided: since when
	next   time.Time // when to look again; zero: not by itself
	failed int       // times in a row

	users int           // watches that are subscribed to it
	idle  *list.Element // in Source.idle, if there are none
	slot  int           // in Source.due; -1: none
}

// A status is what streams are told of a name.
type status uint8

const (
	undecided status = iota
	found
	absent
)

// A phase says where an entry is on its way to a resolver.
type phase uint8

const (
	resting phase = iota
	queued
	running
)

// A holding is a resource that was put into the store, and the names that find
// it.
type holding struct {
	key   // the resource's own name
	typ   *xds.Type
	sum   xds.Sum
	names map[string]bool
}

// asked reports whether a resolver is asked for names like this: the wildcard
// and collections have many members, and none on demand.
func asked(t *xds.Type, name string) bool {
	if name == "" || name == xds.Wildcard {
		return false
	}
	i := strings.LastIndex(name, "/*")
	return i < 0 || t.Collection(name[:i]+"/-"+name[i+2:]) != name
}

// finds reports whether a view has a resource for the name.
func finds(v xds.View, t *xds.Type, name string) bool {
	table := v.Table(t)
	return table.Lookup(name) != nil || table.Aliased(name).Len() > 0
}

// want returns the entry of a name that a stream asks for, and begins to look if
// need be. It returns nil for a name that others have put into the store, and if
// there are too many.
func (s *Source) want(k key, t *xds.Type, newest xds.View) *entry {
	e, has := s.entries[k], finds(newest, t, k.name)
	var h *holding
	if has && e == nil {
		h = s.holds(k, newest, t)
	}
	switch {
	case e != nil && e.status == found && !has: // somebody has deleted it
		s.let(e)
		s.search(e)
	case e != nil || has && h == nil || !s.room():
	case has:
		e = s.add(k, t)
		s.hold(e, h)
	default:
		e = s.add(k, t)
		s.search(e)
	}
	return e
}

// holds returns the holding that a name finds in a view, or nil.
func (s *Source) holds(k key, v xds.View, t *xds.Type) *holding {
	if h := s.found[k]; h != nil {
		return h
	}
	for r := range v.Table(t).Aliased(k.name).All() {
		if h := s.found[key{k.group, k.url, r.Name}]; h != nil {
			return h
		}
	}
	return nil
}

func (s *Source) add(k key, t *xds.Type) *entry {
	k.name = strings.Clone(k.name) // requests share their memory
	e := &entry{key: k, typ: t, slot: -1}
	s.entries[k] = e
	return e
}

// room makes room for another entry, if there is any to be had.
func (s *Source) room() bool {
	if len(s.entries) < s.limit {
		s.full = false
		return true
	}
	if front := s.idle.Front(); front != nil {
		s.forget(front.Value.(*entry))
		return true
	}
	if !s.full {
		s.full = true
		s.log.Warn("streams subscribe to too many names: further names are not resolved", "limit", s.limit)
	}
	return false
}

// forget drops an entry. What it held leaves the store when Run comes to it.
func (s *Source) forget(e *entry) {
	s.let(e)
	s.schedule(e, time.Time{})
	if e.idle != nil {
		s.idle.Remove(e.idle)
		e.idle = nil
	}
	delete(s.entries, e.key)
}

// hold makes an entry one of the names that find a resource in the store.
func (s *Source) hold(e *entry, h *holding) {
	if e.holding != h {
		s.let(e)
		e.holding, h.names[e.name] = h, true
	}
	e.status = found
}

// let is the reverse of hold.
func (s *Source) let(e *entry) {
	if h := e.holding; h != nil {
		delete(h.names, e.name)
		e.holding = nil
		if len(h.names) == 0 {
			s.orphans = append(s.orphans, h)
		}
	}
}

// search has an entry looked for, and streams wait for what is found.
func (s *Source) search(e *entry) {
	e.status, e.asked = undecided, time.Now()
	s.settle(e)
	s.enqueue(e)
}

// enqueue has an entry looked for.
func (s *Source) enqueue(e *entry) {
	if e.phase != resting {
		return
	}
	e.phase, e.next = queued, time.Time{}
	if len(s.queue) > 2*len(s.entries) {
		s.queue = slices.DeleteFunc(s.queue, func(e *entry) bool { return !s.current(e) })
	}
	s.queue = append(s.queue, e)
	s.settle(e)
	s.ring()
}

// settle brings an entry's place in timetable and list up to date.
func (s *Source) settle(e *entry) {
	at := e.next
	if e.status == undecided {
		if patience := e.asked.Add(s.patience); at.IsZero() || patience.Before(at) {
			at = patience
		}
	}
	s.schedule(e, at)
	switch {
	case e.users == 0 && e.idle == nil:
		e.idle = s.idle.PushBack(e)
	case e.users > 0 && e.idle != nil:
		s.idle.Remove(e.idle)
		e.idle = nil
	}
}

// current reports whether an entry was not forgotten while it was looked for.
func (s *Source) current(e *entry) bool { return s.entries[e.key] == e }

// A timetable has the entries that something is due of, the earliest first.
type timetable []due

type due struct {
	*entry
	at time.Time
}

// schedule sets when something is due of an entry; zero: never.
func (s *Source) schedule(e *entry, at time.Time) {
	switch {
	case at.IsZero() && e.slot >= 0:
		heap.Remove(&s.due, e.slot)
	case at.IsZero():
	case e.slot < 0:
		heap.Push(&s.due, due{e, at})
	default:
		s.due[e.slot].at = at
		heap.Fix(&s.due, e.slot)
	}
}

func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].slot, t[j].slot = i, j
}

func (t *timetable) Push(x any) {
	d := x.(due)
	d.slot = len(*t)
	*t = append(*t, d)
}

func (t *timetable) Pop() any {
	d := (*t)[len(*t)-1]
	d.slot = -1
	*t = slices.Delete(*t, len(*t)-1, len(*t))
	return d
}
