package client

import (
	"errors"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A nameUpdate is an event of the core about one resource, with its source.
type nameUpdate struct {
	protocol.ClientEvent
	*origin
	from *Server
	now  time.Time
}

// applyUpdate applies an update to all names that asked for the resource, and notifies their watches.
func (t *table) applyUpdate(w nameUpdate) {
	if w.Kind == protocol.Errored && errors.Is(w.Err, protocol.ErrGone) && w.from.IgnoreDeletion {
		return // "the client ignores the deletion" (gRFC A53)
	}
	own := false // whether the resource's own entry was updated; "*" and collections share it
	for _, asked := range w.Asked {
		if isGlob(asked) && asked != w.Name {
			asked = w.Name
		}
		if asked != w.Name {
			if e := t.entry(asked); e.accepts(w) {
				t.applyToEntry(e, w, false)
			}
		} else if !own {
			own = true
			t.applyToEntry(t.entry(asked), w, slices.ContainsFunc(w.Asked, isGlob))
		}
	}
}

// accepts reports whether an update of resource w.Name concerns e, whose name is an alias of that
// resource. An entry that holds the resource of its own name does not accept updates of other
// resources. A removal concerns e only if e holds the removed resource, or if its fault is about
// that resource.
func (e *entry) accepts(w nameUpdate) bool {
	gone := w.Kind == protocol.Removed || w.Kind == protocol.Absent
	switch {
	case e.holds(e.name):
		return false
	case gone && e.fault != nil:
		return e.holds(w.Name) || e.fault.of == w.Name
	}
	return !gone || e.res == nil || e.holds(w.Name)
}

// holds reports whether the resource in use has this name.
func (e *entry) holds(name string) bool {
	return e.res != nil && xds.CanonicalName(e.res.Name) == name
}

// keepsResource reports whether the resource in use stays although another resource of the same name is
// removed.
func (e *entry) keepsResource(w nameUpdate) bool {
	return e.res != nil && !e.holds(w.Name) && (e.name != w.Name || w.Kind == protocol.Absent && w.Resource != nil)
}

// applyToEntry applies an update to an entry and notifies its watches. found reports whether a
// watched wildcard or collection matches the resource.
func (t *table) applyToEntry(e *entry, w nameUpdate, found bool) {
	before := *e
	t.change(e, func() { e.apply(w) })
	e.viaGlob = found || e.viaGlob && e.res == before.res
	if ev := t.event(e); e.mustNotify(&before, w) {
		switch {
		case ev.Kind == Absent && before.res != nil:
			ev.Kind = Removed
		case ev.Kind == Absent && (before.last == Absent || before.last == Removed):
			ev.Kind = 0 // "deleted: not found, once"
		}
		if ev.Kind != 0 {
			t.notify(e, ev, found)
		}
	}
	t.dropIfIdle(e)
}

// apply changes the entry's state for an update.
func (e *entry) apply(w nameUpdate) {
	e.unconfirmed, e.outage = false, nil
	if w.Kind != protocol.Refused && w.Kind != protocol.Errored {
		e.origin = w.origin
	}
	switch w.Kind {
	case protocol.Updated:
		if !sameContent(e.res, w.Resource) {
			e.updated = w.now.UnixNano()
		}
		e.state, e.fault, e.res = Acked, nil, w.Resource
	case protocol.Removed, protocol.Absent:
		if e.keepsResource(w) {
			e.state, e.fault = Acked, nil
			break
		}
		e.state, e.fault = DoesNotExist, nil
		if errors.Is(w.Err, protocol.ErrSilent) {
			e.state = TimedOut
		}
		e.dropResource()
	case protocol.TimedOut:
		e.state = TimedOut
		e.setFault(w, Stale)
	case protocol.Refused:
		e.state = Nacked
		if w.from.FailOnDataErrors && e.holds(w.Name) {
			e.dropResource()
		}
		e.setFault(w, Refused)
	case protocol.Errored:
		e.state = ReceivedError
		if w.from.FailOnDataErrors && w.Resource == nil && e.holds(w.Name) {
			e.dropResource()
		}
		e.setFault(w, Stale)
	}
}

func (e *entry) dropResource() { e.res, e.updated = nil, 0 }

// setFault records why the newest update cannot be used.
func (e *entry) setFault(w nameUpdate, kind Kind) {
	if kind == Stale && e.res == nil {
		kind = Unavailable
	}
	e.fault = &fault{of: w.Name, kind: kind, err: w.Err, version: w.version, at: w.now, server: w.server}
}

// mustNotify reports whether watches of the entry must be notified of the update. The parameter
// before is the entry as it was before the update.
func (e *entry) mustNotify(before *entry, w nameUpdate) bool {
	switch {
	case before.outage != nil || before.unconfirmed:
		return true // the outage is over, or the state is confirmed
	case e.fault != nil && before.fault != nil:
		return e.fault.kind != before.fault.kind || e.fault.err.Error() != before.fault.err.Error() || e.res != before.res
	case e.fault != nil || before.fault != nil:
		return true
	case e.res != nil:
		return !sameContent(e.res, before.res)
	}
	return true
}

// fromOtherServers returns the resources in use that came from other servers.
func (t *table) fromOtherServers(server string) (list []*xds.Resource) {
	for _, e := range t.entries {
		if e.res != nil && e.server() != server {
			list = append(list, e.res)
		}
	}
	return list
}

// unconfirmed returns the unconfirmed resources from disk for a name: the resource with this name
// or, for a wildcard or a collection, all matching resources.
func (t *table) unconfirmed(name string) (list []*xds.Resource) {
	if t.disk == nil {
		return nil
	}
	if e := t.entries[name]; e.res != nil && e.unconfirmed {
		list = append(list, e.res)
	}
	if isGlob(name) {
		t.eachMatch(name, func(e *entry) {
			if e.unconfirmed {
				list = append(list, e.res)
			}
		})
	}
	return list
}
