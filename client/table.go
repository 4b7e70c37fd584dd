package client

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A table holds the names of one type in one authority, with their states and watches. A table has
// no I/O and no clock, and the client's loop owns it. The events of a table go to mailboxes, which
// never wait.
//
// A resource stays in use until the active server replaces or removes it, even if the resource came
// from another server: "resources that are cached stay until they are replaced" (gRFC A71).
type table struct {
	typ            *xds.Type
	entries        map[string]*entry
	globs          map[string]*entry // the watched wildcards and collections
	missing        int               // number of entries that are missing
	newlyWatched   []*entry          // entries with a new watch since the last setOutage
	outage         *outage           // outage of the active server, as reported to watches
	entryOutages   bool              // some entries have an outage
	unreadableFrom string            // the server that sent resources without readable names
	sweepAt        time.Time
	counts         [gauges]int
	disk           *disk // nil: none
}

func newTable(t *xds.Type) *table {
	return &table{typ: t, entries: map[string]*entry{}, globs: map[string]*entry{}}
}

// change calls f, which changes e, and updates the counts.
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

// entry returns the entry of a name. It creates the entry if necessary.
func (t *table) entry(name string) *entry {
	e := t.entries[name]
	if e == nil {
		e = &entry{name: name, state: Requested, glob: isGlob(name)}
		t.entries[name] = e
		t.count(e, 1)
	}
	return e
}

// dropIfIdle forgets an entry that is not needed any more.
func (t *table) dropIfIdle(e *entry) {
	if e.idle(t.matched(e.name)) {
		t.count(e, -1)
		delete(t.entries, e.name)
		t.disk.keepUnwatched(t.typ, e)
	}
}

// eachGlobOf yields the watched wildcards and collections that match a name.
func (t *table) eachGlobOf(name string, yield func(*entry)) {
	if len(t.globs) == 0 || isGlob(name) {
		return
	}
	for _, f := range [...]string{xds.Wildcard, t.typ.Collection(name)} {
		if e := t.globs[f]; e != nil {
			yield(e)
		}
	}
}

// matched reports whether a watched wildcard or collection matches the name.
func (t *table) matched(name string) (found bool) {
	t.eachGlobOf(name, func(*entry) { found = true })
	return found
}

// eachMatch yields the entries with a resource that a glob (the parameter finder) matches, sorted
// by name.
func (t *table) eachMatch(finder string, yield func(*entry)) {
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		if e := t.entries[name]; e.res != nil && e.res.Name == name && (finder == xds.Wildcard || t.typ.Collection(name) == finder) {
			yield(e)
		}
	}
}

// event returns the state of an entry as an event.
func (t *table) event(e *entry) Event {
	holds := e.res != nil
	if e.glob && e.outage != nil {
		t.eachMatch(e.name, func(*entry) { holds = true })
	}
	return e.event(holds)
}

// notify puts an event into the mailboxes of the entry's watches. With found set, the event also
// goes to watches of wildcards and collections that match the name.
func (t *table) notify(e *entry, ev Event, found bool) {
	fresh := e.last == 0 || e.last == Removed || e.last == Absent
	if ev.Kind == Absent { // a refused resource may have no entry, but watches of a glob were notified of it
		fresh = false
	}
	e.last = ev.Kind
	for _, w := range e.watching() {
		w.put(ev, fresh, true)
	}
	if found {
		t.eachGlobOf(e.name, func(f *entry) {
			for _, w := range f.watching() {
				if !w.named(e.name) {
					w.put(ev, fresh, false)
				}
			}
		})
	}
}

// addWatch adds a watch to a name and sends the present state to the watch. It reports whether the
// name was not watched before.
func (t *table) addWatch(w *watch, name string) (first bool) {
	e := t.entry(name)
	first = e.watches == nil
	if first {
		t.loadFromDisk(name)
	}
	t.change(e, func() { e.addWatch(w) })
	if first && e.glob {
		t.globs[name] = e
	}
	if e.glob {
		t.eachMatch(name, func(o *entry) {
			if !w.named(o.name) {
				t.sendState(w, o)
			}
		})
	}
	t.sendState(w, e)
	t.newlyWatched = append(t.newlyWatched, e)
	return first
}

// loadFromDisk takes back the stored resource of a name or, for a wildcard or a collection, all
// matching stored resources.
func (t *table) loadFromDisk(name string) {
	for _, r := range t.disk.takeUnwatched(t.typ, name) {
		if !isGlob(name) && name != r.Name { // it is an alias
			t.restore(name, r)
		} else {
			t.restore(r.Name, r)
		}
	}
}

func (t *table) restore(name string, r *xds.Resource) {
	if e := t.entry(name); e.res == nil && e.state == Requested {
		t.change(e, func() {
			e.res, e.origin, e.unconfirmed, e.viaGlob, e.last = r, diskOrigin, true, !r.OnDemand, Updated
		})
	}
}

// sendState sends the present state of an entry to a new watch: the resource in use, then its
// fault or outage.
func (t *table) sendState(w *watch, e *entry) {
	ev := t.event(e)
	if e.res != nil {
		w.put(Event{Kind: Updated, Name: e.name, Resource: e.res, Server: e.server()}, true, true)
	}
	if ev.Kind != 0 && ev.Kind != Updated && (e.outage == nil || e.watches != nil) {
		w.put(ev, true, true)
	}
}

// removeWatch removes a watch from a name. It reports whether this was the last watch of the name.
func (t *table) removeWatch(w *watch, name string) (last bool) {
	e := t.entries[name]
	t.change(e, func() { e.removeWatch(w) })
	if e.watches != nil {
		return false
	}
	e.outage = nil
	if e.glob {
		delete(t.globs, name)
		for _, o := range t.entries {
			t.dropIfIdle(o)
		}
	}
	t.dropIfIdle(e)
	return true
}

// setOutage notifies watches that the active server cannot be reached: all watches for a new outage,
// only new ones for a known outage. A nil outage means that no failure is known.
func (t *table) setOutage(o *outage) {
	joined := t.newlyWatched
	t.newlyWatched = nil
	switch {
	case o == nil:
		t.outage = nil // watches keep their state until the server answers
		return
	case t.outage == nil || *t.outage != *o && (t.outage.server != o.server || t.outage.err.Error() != o.err.Error()):
		t.outage = o
		for _, name := range slices.Sorted(maps.Keys(t.entries)) {
			t.setEntryOutage(t.entries[name])
		}
	default:
		for _, e := range joined {
			t.setEntryOutage(e)
		}
	}
}

func (t *table) setEntryOutage(e *entry) {
	known := e.res == nil && e.fault == nil && (e.state == DoesNotExist || e.state == TimedOut)
	if e.watches == nil || known || e.outage == t.outage {
		return
	}
	e.outage, t.entryOutages = t.outage, true
	t.notify(e, t.event(e), false)
}

// clearOutage notifies watches that the active server has answered for the type: resources in use are
// not stale any more.
func (t *table) clearOutage() {
	t.outage = nil
	if !t.entryOutages {
		return
	}
	t.entryOutages = false
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		if e.outage == nil {
			continue
		}
		e.outage = nil
		if ev := t.event(e); ev.Kind != 0 {
			t.notify(e, ev, false)
		}
	}
}

// complete notifies watches that a server has answered for the wildcards and collections.
func (t *table) complete(by *origin, now time.Time) {
	for _, e := range t.globs {
		known := e.state == Acked && e.outage == nil
		if known && e.server() == by.server {
			continue
		}
		t.change(e, func() { e.state, e.origin, e.updated, e.outage, e.fault = Acked, by, now.UnixNano(), nil, nil })
		if !known {
			t.notify(e, t.event(e), false)
		}
		if t.unreadableFrom != by.server {
			t.sweepAt = now.Add(sweepAfter)
		}
	}
}

// unreadable records that a server sent a resource without a readable name. It may be any resource,
// so all resources stay in use, even if the server did not send them.
func (t *table) unreadable(server string) { t.unreadableFrom, t.sweepAt = server, time.Time{} }

// sweepAfter is how long a server may take to send the resources of a wildcard after its first
// answer, because the resources may need several responses.
const sweepAfter = 15 * time.Second

// sweep drops resources that came from another server and that only a wildcard or a collection
// matches. A delta server does not know that the client has these resources, so it never removes
// them.
func (t *table) sweep(server string, now time.Time) {
	if t.sweepAt.IsZero() || t.sweepAt.After(now) {
		return
	}
	t.sweepAt = time.Time{}
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		if e.watches != nil || e.res == nil || e.server() == server || e.fault != nil && e.fault.server == server {
			continue // the name is watched, or the active server has sent an update for it, perhaps an unusable one
		}
		t.change(e, func() { e.dropResource(); e.state, e.fault = DoesNotExist, nil })
		t.notify(e, Event{Kind: Removed, Name: name, Server: server}, true)
		t.disk.changed()
		t.dropIfIdle(e)
	}
}
