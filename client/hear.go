package client

import (
	"errors"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A word is what a server in charge says of a name.
type word struct {
	protocol.ClientEvent
	*said
	by  *Server
	now time.Time
}

// hear applies a word to all names that ask for it, and tells their watches.
func (t *table) hear(w word) {
	if w.Kind == protocol.Errored && errors.Is(w.Err, protocol.ErrGone) && w.by.IgnoreDeletion {
		return // "the client ignores the deletion" (gRFC A53)
	}
	own := false // the resource's own entry, for "*" and collections
	for _, asked := range w.Asked {
		if finds(asked) && asked != w.Name {
			asked = w.Name
		}
		if asked != w.Name {
			if e := t.entry(asked); e.hears(w) {
				t.apply(e, w, false)
			}
		} else if !own {
			own = true
			t.apply(t.entry(asked), w, slices.ContainsFunc(w.Asked, finds))
		}
	}
}

// hears reports whether a word of another name is one of an entry, which asks for it by an alias.
// It is none if the entry holds the resource that is called so, or if one went that it neither
// holds nor was told to be refused.
func (e *entry) hears(w word) bool {
	gone := w.Kind == protocol.Removed || w.Kind == protocol.Absent
	switch {
	case e.holds(e.name):
		return false
	case gone && e.fault != nil:
		return e.holds(w.Name) || e.fault.of == w.Name
	}
	return !gone || e.res == nil || e.holds(w.Name)
}

// holds reports whether the resource in use is the one called so.
func (e *entry) holds(name string) bool {
	return e.res != nil && xds.CanonicalName(e.res.Name) == name
}

// keeps reports whether a resource stays in use though another goes that the name finds, too.
func (e *entry) keeps(w word) bool {
	return e.res != nil && !e.holds(w.Name) && (e.name != w.Name || w.Kind == protocol.Absent && w.Resource != nil)
}

// apply applies a word to an entry.
func (t *table) apply(e *entry, w word, found bool) {
	before := *e
	t.change(e, func() { e.take(w) })
	e.found = found || e.found && e.res == before.res
	if ev := t.event(e); e.tells(&before, w) {
		switch {
		case ev.Kind == Absent && before.res != nil:
			ev.Kind = Removed
		case ev.Kind == Absent && (before.last == Absent || before.last == Removed):
			ev.Kind = 0 // "deleted: not found, once"
		}
		if ev.Kind != 0 {
			t.tell(e, ev, found)
		}
	}
	t.tidy(e)
}

// take takes a word in.
func (e *entry) take(w word) {
	e.unproven, e.outage = false, nil
	if w.Kind != protocol.Refused && w.Kind != protocol.Errored {
		e.said = w.said
	}
	switch w.Kind {
	case protocol.Updated:
		if !alike(e.res, w.Resource) {
			e.updated = w.now.UnixNano()
		}
		e.state, e.fault, e.res = Acked, nil, w.Resource
	case protocol.Removed, protocol.Absent:
		if e.keeps(w) {
			e.state, e.fault = Acked, nil
			break
		}
		e.state, e.fault = DoesNotExist, nil
		if errors.Is(w.Err, protocol.ErrSilent) {
			e.state = TimedOut
		}
		e.drop()
	case protocol.TimedOut:
		e.state = TimedOut
		e.blame(w, Stale)
	case protocol.Refused:
		if e.state = Nacked; w.by.FailOnDataErrors && e.holds(w.Name) {
			e.drop()
		}
		e.blame(w, Refused)
	case protocol.Errored:
		if e.state = ReceivedError; w.by.FailOnDataErrors && w.Resource == nil && e.holds(w.Name) {
			e.drop()
		}
		e.blame(w, Stale)
	}
}

func (e *entry) drop() { e.res, e.updated = nil, 0 }

// blame notes what is wrong with the newest word.
func (e *entry) blame(w word, kind Kind) {
	if kind == Stale && e.res == nil {
		kind = Unavailable
	}
	e.fault = &fault{of: w.Name, kind: kind, err: w.Err, version: w.version, at: w.now, server: w.server}
}

// tells reports whether a word makes a difference to watches of an entry as it was before.
func (e *entry) tells(before *entry, w word) bool {
	switch {
	case before.outage != nil || before.unproven:
		return true // the state is good again, or known
	case e.fault != nil && before.fault != nil:
		return e.fault.kind != before.fault.kind || e.fault.err.Error() != before.fault.err.Error() || e.res != before.res
	case e.fault != nil || before.fault != nil:
		return true
	case e.res != nil:
		return !alike(e.res, before.res)
	}
	return true
}

// adopted yields the resources in use that another server than the one asked now has sent.
func (t *table) adopted(server string) (list []*xds.Resource) {
	for _, e := range t.entries {
		if e.res != nil && e.server() != server {
			list = append(list, e.res)
		}
	}
	return list
}

// recalled are the resources from disk that a name has, or finds.
func (t *table) recalled(name string) (list []*xds.Resource) {
	if t.disk == nil {
		return nil
	}
	if e := t.entries[name]; e.res != nil && e.unproven {
		list = append(list, e.res)
	}
	if finds(name) {
		t.holds(name, func(e *entry) {
			if e.unproven {
				list = append(list, e.res)
			}
		})
	}
	return list
}
