package endpoints

import (
	"container/heap"
	"time"
)

// leases are the leases of one process, without a clock: the caller passes the time. The zero value has
// none.
type leases struct {
	last LeaseID
	by   map[LeaseID]*lease
	due  dueFirst
}

type lease struct {
	id    LeaseID
	ttl   time.Duration
	until time.Time
	at    int // index in due
	keys  map[Key]bool
}

func (l *leases) grant(now time.Time, ttl time.Duration) LeaseID {
	if l.by == nil {
		l.by = map[LeaseID]*lease{}
	}
	l.last++
	one := &lease{id: l.last, ttl: ttl, until: now.Add(ttl), keys: map[Key]bool{}}
	l.by[one.id] = one
	heap.Push(&l.due, one)
	return one.id
}

// renew restarts a lease. It reports whether the lease exists.
func (l *leases) renew(now time.Time, id LeaseID) bool {
	one := l.by[id]
	if one == nil {
		return false
	}
	one.until = now.Add(one.ttl)
	heap.Fix(&l.due, one.at)
	return true
}

// attach adds a key to a lease. It reports whether the lease exists.
func (l *leases) attach(id LeaseID, k Key) bool {
	if one := l.by[id]; one != nil {
		one.keys[k] = true
		return true
	}
	return false
}

func (l *leases) detach(id LeaseID, k Key) {
	if one := l.by[id]; one != nil {
		delete(one.keys, k)
	}
}

// revoke ends a lease without keys.
func (l *leases) revoke(id LeaseID) {
	if one := l.by[id]; one != nil && len(one.keys) == 0 {
		delete(l.by, id)
		heap.Remove(&l.due, one.at)
	}
}

// deadline returns the end of the next lease; false: there is none.
func (l *leases) deadline() (time.Time, bool) {
	if len(l.due) == 0 {
		return time.Time{}, false
	}
	return l.due[0].until, true
}

// expire ends the leases whose time has passed, and returns their keys.
func (l *leases) expire(now time.Time) (keys []Key) {
	for len(l.due) > 0 && !l.due[0].until.After(now) {
		one := heap.Pop(&l.due).(*lease) //nolint:forcetypeassert // the only type in it
		delete(l.by, one.id)
		for k := range one.keys {
			keys = append(keys, k)
		}
	}
	return keys
}

// dueFirst is a heap: the lease that ends first is on top.
type dueFirst []*lease

func (d dueFirst) Len() int           { return len(d) }
func (d dueFirst) Less(i, j int) bool { return d[i].until.Before(d[j].until) }
func (d dueFirst) Swap(i, j int)      { d[i], d[j] = d[j], d[i]; d[i].at, d[j].at = i, j }

// Push implements [heap.Interface].
func (d *dueFirst) Push(x any) {
	one := x.(*lease) //nolint:forcetypeassert // the only type in it
	one.at = len(*d)
	*d = append(*d, one)
}

// Pop implements [heap.Interface].
func (d *dueFirst) Pop() any {
	last := len(*d) - 1
	one := (*d)[last]
	(*d)[last], *d = nil, (*d)[:last]
	return one
}
