package client

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A table is what is known of one type in one authority, and who watches it. It is a value
// without I/O and clock; the loop owns it. Events go to mailboxes, which never wait.
//
// What is in use stays until a server that is in charge replaces or removes it, whichever
// server it came from: "resources that are cached stay until they are replaced" (gRFC A71).
type table struct {
	typ     *xds.Type
	entries map[string]*entry
	finders map[string]*entry // those that are wildcards or collections and watched
	missing int               // entries that are missing
	joined  []*entry          // watched since the last time that the loop looked
	outage  *outage           // of the server in charge, as it was told
	lost    bool              // some entry has an outage
	unread  string            // the server that has sent what cannot be read, of which nobody knows the names
	sweepAt time.Time
	counts  [gauges]int
	disk    *disk // nil: none
}

func newTable(t *xds.Type) *table {
	return &table{typ: t, entries: map[string]*entry{}, finders: map[string]*entry{}}
}

// change makes a change of an entry, and keeps the counts.
func (t *table) change(e *entry, f func()) {
	t.count(e, -1)
	f()
	t.count(e, 1)
}

func (t *table) count(e *entry, by int) {
	t.counts[e.gauge()] += by
	if e.missing() {
		t.missing += by
	}
}

// entry returns the entry of a name, and makes one.
func (t *table) entry(name string) *entry {
	e := t.entries[name]
	if e == nil {
		e = &entry{name: name, state: Requested, finder: finds(name)}
		t.entries[name] = e
		t.count(e, 1)
	}
	return e
}

// tidy forgets an entry of which nobody needs to know anything.
func (t *table) tidy(e *entry) {
	if e.idle(t.found(e.name)) {
		t.count(e, -1)
		delete(t.entries, e.name)
		t.disk.shelve(t.typ, e)
	}
}

// finding yields the watched wildcards and collections that find a name.
func (t *table) finding(name string, yield func(*entry)) {
	if len(t.finders) == 0 || finds(name) {
		return
	}
	for _, f := range [...]string{xds.Wildcard, t.typ.Collection(name)} {
		if e := t.finders[f]; e != nil {
			yield(e)
		}
	}
}

// found reports whether a watched wildcard or collection finds the name.
func (t *table) found(name string) (found bool) {
	t.finding(name, func(*entry) { found = true })
	return found
}

// holds yields the entries with a resource that a finder finds, by name.
func (t *table) holds(finder string, yield func(*entry)) {
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		if e := t.entries[name]; e.res != nil && e.res.Name == name && (finder == xds.Wildcard || t.typ.Collection(name) == finder) {
			yield(e)
		}
	}
}

// event is how an entry stands.
func (t *table) event(e *entry) Event {
	holds := e.res != nil
	if e.finder && e.outage != nil {
		t.holds(e.name, func(*entry) { holds = true })
	}
	return e.event(holds)
}

// tell tells the watches of an entry, and with found those that find it by a wildcard or a
// collection.
func (t *table) tell(e *entry, ev Event, found bool) {
	fresh := e.last == 0 || e.last == Removed || e.last == Absent
	if ev.Kind == Absent { // of what was refused there may be no entry: whoever finds it was told of it
		fresh = false
	}
	e.last = ev.Kind
	for _, w := range e.watching() {
		w.put(ev, fresh, true)
	}
	if found {
		t.finding(e.name, func(f *entry) {
			for _, w := range f.watching() {
				if !w.named(e.name) {
					w.put(ev, fresh, false)
				}
			}
		})
	}
}

// join adds a watch to a name and tells it how that stands. It reports whether nobody watched
// the name before.
func (t *table) join(w *watch, name string) (first bool) {
	e := t.entry(name)
	if first = e.watches == nil; first {
		t.recall(name)
	}
	t.change(e, func() { e.join(w) })
	if first && e.finder {
		t.finders[name] = e
	}
	if e.finder {
		t.holds(name, func(o *entry) {
			if !w.named(o.name) {
				t.greet(w, o)
			}
		})
	}
	t.greet(w, e)
	t.joined = append(t.joined, e)
	return first
}

// recall takes back what is on disk of a name, or of what it finds.
func (t *table) recall(name string) {
	for _, r := range t.disk.take(t.typ, name) {
		if !finds(name) && name != r.Name { // it is an alias
			t.restore(name, r)
		} else {
			t.restore(r.Name, r)
		}
	}
}

func (t *table) restore(name string, r *xds.Resource) {
	if e := t.entry(name); e.res == nil && e.state == Requested {
		t.change(e, func() {
			e.res, e.said, e.unproven, e.found, e.last = r, ofDisk, true, !r.OnDemand, Updated
		})
	}
}

// greet tells a watch that is new how an entry stands: what is in use, then what is wrong.
func (t *table) greet(w *watch, e *entry) {
	ev := t.event(e)
	if e.res != nil {
		w.put(Event{Kind: Updated, Name: e.name, Resource: e.res, Server: e.server()}, true, true)
	}
	if ev.Kind != 0 && ev.Kind != Updated && (e.outage == nil || e.watches != nil) {
		w.put(ev, true, true)
	}
}

// leave takes a watch from a name. It reports whether it was the last.
func (t *table) leave(w *watch, name string) (last bool) {
	e := t.entries[name]
	t.change(e, func() { e.leave(w) })
	if e.watches != nil {
		return false
	}
	if e.outage = nil; e.finder {
		delete(t.finders, name)
		for _, o := range t.entries {
			t.tidy(o)
		}
	}
	t.tidy(e)
	return true
}

// down tells that the server in charge cannot be reached, all watches or, if that was told,
// those who came since. Nil: it can, as far as is known.
func (t *table) down(o *outage) {
	joined := t.joined
	t.joined = nil
	switch {
	case o == nil:
		t.outage = nil // what was told holds until the server answers
		return
	case t.outage == nil || *t.outage != *o && (t.outage.server != o.server || t.outage.err.Error() != o.err.Error()):
		t.outage = o
		for _, name := range slices.Sorted(maps.Keys(t.entries)) {
			t.lose(t.entries[name])
		}
	default:
		for _, e := range joined {
			t.lose(e)
		}
	}
}

func (t *table) lose(e *entry) {
	known := e.res == nil && e.fault == nil && (e.state == DoesNotExist || e.state == TimedOut)
	if e.watches == nil || known || e.outage == t.outage {
		return
	}
	e.outage, t.lost = t.outage, true
	t.tell(e, t.event(e), false)
}

// up tells that the server in charge has answered for the type: what is in use is as good as
// before the outage.
func (t *table) up() {
	t.outage = nil
	if !t.lost {
		return
	}
	t.lost = false
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		if e.outage == nil {
			continue
		}
		e.outage = nil
		if ev := t.event(e); ev.Kind != 0 {
			t.tell(e, ev, false)
		}
	}
}

// complete tells that a server has answered for the wildcards and collections.
func (t *table) complete(by *said, now time.Time) {
	for _, e := range t.finders {
		known := e.state == Acked && e.outage == nil
		if known && e.server() == by.server {
			continue
		}
		t.change(e, func() { e.state, e.said, e.updated, e.outage, e.fault = Acked, by, now.UnixNano(), nil, nil })
		if !known {
			t.tell(e, t.event(e), false)
		}
		if t.unread != by.server {
			t.sweepAt = now.Add(sweepAfter)
		}
	}
}

// unreadable notes that a server has sent what cannot be read, and may be of any name. So what is in
// use stays, though the server says nothing of it.
func (t *table) unreadable(server string) { t.unread, t.sweepAt = server, time.Time{} }

// sweepAfter is how long after a server has answered for a wildcard it may take to send what
// belongs to it, as that may be several responses.
const sweepAfter = 15 * time.Second

// sweep drops what only a wildcard or a collection finds, and only another server has sent: with
// delta the one that is asked now does not know that it was there, and removes it never.
func (t *table) sweep(server string, now time.Time) {
	if t.sweepAt.IsZero() || t.sweepAt.After(now) {
		return
	}
	t.sweepAt = time.Time{}
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		if e.watches != nil || e.res == nil || e.server() == server || e.fault != nil && e.fault.server == server {
			continue // the server in charge has said something of it, if only what cannot be used
		}
		t.change(e, func() { e.drop(); e.state, e.fault = DoesNotExist, nil })
		t.tell(e, Event{Kind: Removed, Name: name, Server: server}, true)
		t.disk.changed()
		t.tidy(e)
	}
}
