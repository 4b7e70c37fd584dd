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

// An entry is a subscribed name that the store has only if the resolver finds it.
type entry struct {
	key
	typ *xds.Type

	status  status
	phase   phase
	refresh bool            // resolve again after the present resolver returns
	stored  *storedResource // if status is found

	waitingSince time.Time // since when streams wait, if status is undecided
	nextTry      time.Time // when to resolve again; zero: not scheduled
	failures     int       // consecutive failures of the resolver

	users       int           // number of watches that are subscribed to the name
	idleElement *list.Element // in Source.idle, if users is 0
	heapIndex   int           // index index in Source.due; -1: not in Source.due
}

// A status is the state of a name for streams.
type status uint8

const (
	undecided status = iota
	found
	absent
)

// A phase is the progress of resolving an entry.
type phase uint8

const (
	notQueued phase = iota
	queued
	running
)

// A storedResource is a resolved resource in the store, with the names that match it.
type storedResource struct {
	key   // the resource's own name
	typ   *xds.Type
	names map[string]bool
}

// canResolve reports whether the resolver may be called for this name. The wildcard and collections
// match many resources, but no resources on demand.
func canResolve(t *xds.Type, name string) bool {
	if name == "" || name == xds.Wildcard {
		return false
	}
	i := strings.LastIndex(name, "/*")
	return i < 0 || t.Collection(name[:i]+"/-"+name[i+2:]) != name
}

// inView reports whether a view has a resource for the name. The view is nil if a group is unknown.
func inView(v xds.View, t *xds.Type, name string) bool {
	if v == nil {
		return false
	}
	table := v.Table(t)
	return table.Lookup(name) != nil || table.Aliased(name).Len() > 0
}

// lookUp returns the entry of a subscribed name, and starts to resolve it if necessary. It returns nil
// if the store has the name from another source, or if there are too many names.
func (s *Source) lookUp(k key, t *xds.Type, newest xds.View) *entry {
	e, has := s.entries[k], inView(newest, t, k.name)
	var h *storedResource
	if has && e == nil {
		h = s.storedFor(k, newest, t)
	}
	switch {
	case e != nil || has && h == nil || !s.makeRoom():
	case has:
		e = s.add(k, t)
		s.attach(e, h)
	default:
		e = s.add(k, t)
		s.resolve(e)
	}
	return e
}

// storedFor returns the resolved resource that a name matches in a view, or nil.
func (s *Source) storedFor(k key, v xds.View, t *xds.Type) *storedResource {
	if h := s.stored[k]; h != nil {
		return h
	}
	for r := range v.Table(t).Aliased(k.name).All() {
		if h := s.stored[key{k.group, k.url, r.Name}]; h != nil {
			return h
		}
	}
	return nil
}

func (s *Source) add(k key, t *xds.Type) *entry {
	k.name = strings.Clone(k.name) // names of one request share their memory
	e := &entry{key: k, typ: t, heapIndex: -1}
	s.entries[k] = e
	return e
}

// makeRoom reports whether another entry may be added. It forgets an unused entry if necessary.
func (s *Source) makeRoom() bool {
	if len(s.entries) < s.limit {
		s.limitLogged = false
		return true
	}
	if front := s.idle.Front(); front != nil {
		s.forget(front.Value.(*entry))
		return true
	}
	if !s.limitLogged {
		s.limitLogged = true
		s.log.Warn("streams subscribe to too many names: further names are not resolved", "limit", s.limit)
	}
	return false
}

// forget removes an entry. Run later removes its resource from the store.
func (s *Source) forget(e *entry) {
	s.detach(e)
	s.schedule(e, time.Time{})
	if e.idleElement != nil {
		s.idle.Remove(e.idleElement)
		e.idleElement = nil
	}
	delete(s.entries, e.key)
}

// attach makes an entry one of the names of a stored resource.
func (s *Source) attach(e *entry, h *storedResource) {
	if e.stored != h {
		s.detach(e)
		e.stored, h.names[e.name] = h, true
	}
	e.status = found
}

// detach removes an entry from the names of its stored resource.
func (s *Source) detach(e *entry) {
	if h := e.stored; h != nil {
		delete(h.names, e.name)
		e.stored = nil
		if len(h.names) == 0 {
			s.orphans = append(s.orphans, h)
		}
	}
}

// resolve queues an entry. Its status is undecided until the resolver returns.
func (s *Source) resolve(e *entry) {
	e.status, e.waitingSince = undecided, time.Now()
	s.reschedule(e)
	s.enqueue(e)
}

// enqueue queues an entry without changing its status.
func (s *Source) enqueue(e *entry) {
	if e.phase != notQueued {
		return
	}
	e.phase, e.nextTry = queued, time.Time{}
	if len(s.queue) > 2*len(s.entries) {
		s.queue = slices.DeleteFunc(s.queue, func(e *entry) bool { return !s.isCurrent(e) })
	}
	s.queue = append(s.queue, e)
	s.reschedule(e)
	s.ring()
}

// reschedule updates the place of an entry in the timetable and in the list of unused entries.
func (s *Source) reschedule(e *entry) {
	at := e.nextTry
	if e.status == undecided {
		if patience := e.waitingSince.Add(s.timeout); at.IsZero() || patience.Before(at) {
			at = patience
		}
	}
	s.schedule(e, at)
	switch {
	case e.users == 0 && e.idleElement == nil:
		e.idleElement = s.idle.PushBack(e)
	case e.users > 0 && e.idleElement != nil:
		s.idle.Remove(e.idleElement)
		e.idleElement = nil
	}
}

// isCurrent reports whether an entry was not forgotten while it was being resolved.
func (s *Source) isCurrent(e *entry) bool { return s.entries[e.key] == e }

// A timetable is a heap of entries by the time of their next work.
type timetable []due

type due struct {
	*entry
	at time.Time
}

// schedule sets the time of the next work on an entry; zero: none.
func (s *Source) schedule(e *entry, at time.Time) {
	switch {
	case at.IsZero() && e.heapIndex >= 0:
		heap.Remove(&s.due, e.heapIndex)
	case at.IsZero():
	case e.heapIndex < 0:
		heap.Push(&s.due, due{e, at})
	default:
		s.due[e.heapIndex].at = at
		heap.Fix(&s.due, e.heapIndex)
	}
}

func (t timetable) Len() int           { return len(t) }
func (t timetable) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

func (t timetable) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].heapIndex, t[j].heapIndex = i, j
}

func (t *timetable) Push(x any) {
	d := x.(due)
	d.heapIndex = len(*t)
	*t = append(*t, d)
}

func (t *timetable) Pop() any {
	d := (*t)[len(*t)-1]
	d.heapIndex = -1
	*t = slices.Delete(*t, len(*t)-1, len(*t))
	return d
}
