package client

import (
	"bytes"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file changes the state of a name: held, refused, removed, absent, or in error. Terms: see
// doc.go.

// hold puts a resource in use. It replaces an equal resource, too, because the old one may keep the
// memory of its response in use.
func (c *Client) hold(w *typeState, name string, n *nameState, r *xds.Resource, version string) {
	old, f := n.res, n.fault
	same := old != nil && !n.foreign && alike(old, r)
	if old != nil {
		w.unindex(name, old)
	}
	w.index(name, r)
	c.keep(n, r)
	n.version, n.foreign, n.doubted, n.gone = version, false, false, unheard
	n.round = max(n.round, w.round)
	w.tidy(name, n)
	c.expire(w, name, n, r.TTL)
	ended := c.found(w, name, r)
	if same && f == nil && len(ended) == 0 {
		return
	}
	n.since = momentOf(c.now)
	var asked []string // nil: all names that find the resource
	if same {
		asked = slices.DeleteFunc(slices.Clone(w.askers(name, r)), func(s string) bool { return !f.reached(s) && !slices.Contains(ended, s) })
	}
	c.tellOf(w, Event{Kind: Updated, Name: name, Resource: r, Asked: asked})
	if old != nil {
		c.abandon(w, name, old, r)
	}
	c.over(w, name, n, nil, r, old)
}

// alike reports whether two resources are equal for the application. Versions do not count: a
// restarted server may send the same content with another version.
func alike(a, b *xds.Resource) bool {
	return a == b || bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// found ends the timeouts of the other names that find a resource. It also ends errors that the
// server reported for these names, and returns the names with such an error.
func (c *Client) found(w *typeState, name string, r *xds.Resource) (ended []string) {
	if w.all != nil {
		w.all.fault = nil // the Updated event shows that the fault is over
	}
	if !w.delta {
		return nil
	}
	for s := range w.others(name, r) {
		if n := w.names[s]; n != nil && n.res == nil {
			c.stop(n)
			n.gone = unheard
			if n.fault != nil && n.fault.of == "" { // a refused resource stays refused
				n.fault, ended = nil, append(ended, s)
			}
		}
	}
	return ended
}

// abandon handles the names that found the old state of a resource. A name that does not find the
// new state r gets a Removed event. If r is nil, no name finds the resource any more: then the
// caller adds one event for all names.
func (c *Client) abandon(w *typeState, name string, old, r *xds.Resource) {
	if !w.delta {
		return
	}
	var stays map[string]bool // names that find r
	for s := range w.others(name, old) {
		n := w.names[s]
		if n == nil {
			continue
		}
		if r != nil && stays == nil {
			stays = map[string]bool{}
			for s := range w.others(name, r) {
				stays[s] = true
			}
		}
		w.lacking(s, n)
		if r != nil && !stays[s] {
			c.tellOf(w, Event{Kind: Removed, Name: name, Resource: old, Asked: asker(s, n)})
		}
	}
}

// lacking records that a name does not exist, unless the name finds another resource.
func (w *typeState) lacking(name string, n *nameState) {
	if n.res == nil && !w.finds(name) && name != xds.Wildcard {
		n.gone = absence
	}
}

// over ends the fault of a name. Names that got the Refused event of this fault get an Absent event
// now, unless they find one of the resources told, for which another event was added.
func (c *Client) over(w *typeState, name string, n *nameState, why error, told ...*xds.Resource) {
	f := n.fault
	n.fault = nil
	if f == nil || len(f.by) == 0 {
		return
	}
	hears := map[string]bool{}
	for _, r := range told {
		if r == nil {
			continue
		}
		hears[xds.Wildcard], hears[name] = true, true
		if w.delta {
			for s := range w.others(name, r) {
				hears[s] = true
			}
		}
	}
	var asked []string
	for _, s := range f.by {
		w.unspoil(s, name)
		x := w.names[s]
		w.lacking(s, x)
		if x.asked && !hears[s] {
			asked = append(asked, s)
		}
	}
	c.gone(w, name, asked, why)
}

// gone adds an Absent event for a refused resource that is gone.
func (c *Client) gone(w *typeState, name string, asked []string, why error) {
	if len(asked) == 0 {
		return
	}
	var stays *xds.Resource // a resource that the name still finds
	if others := w.finding(name); len(others) > 0 {
		stays = w.names[others[0]].res
	}
	c.tellOf(w, Event{Kind: Absent, Name: name, Resource: stays, Asked: asked, Err: why})
}

// repeat adds a second event after a Removed event: the newest state of the resource is still
// refused.
func (c *Client) repeat(w *typeState, name string, n *nameState, asked []string) {
	if len(asked) == 0 {
		return
	}
	c.tellOf(w, Event{Kind: n.fault.kind(), Name: name, Err: n.fault.err, Asked: asked})
}

// inform adds the event for a new subscription to a name whose resource is refused.
func (c *Client) inform(w *typeState, name string, n *nameState) {
	f := n.fault
	if f == nil || f.of == "" || w.knows(name, f) {
		return
	}
	f.by = append(f.by, name)
	c.tellOf(w, Event{Kind: f.kind(), Name: name, Resource: n.res, Err: f.err, Asked: []string{name}})
}

// asker returns a list with the name if it is asked, and otherwise an empty list.
func asker(name string, n *nameState) []string {
	if !n.asked {
		return []string{}
	}
	return []string{name}
}

// lose drops a resource and any refused state of it, and adds an event with the reason.
func (c *Client) lose(w *typeState, name string, n *nameState, why error) {
	old := n.res
	c.release(w, name, n, why)
	c.over(w, name, n, why, old)
	w.tidy(name, n)
}

// release drops a resource and adds an event with the reason. If a newer state was refused, it
// stays refused. An error that the server reported for the dropped resource ends.
func (c *Client) release(w *typeState, name string, n *nameState, why error) {
	old := n.res
	c.let(w, name, n)
	if n.fault != nil && n.fault.of == "" {
		n.fault = nil
	}
	w.lacking(name, n)
	c.tellOf(w, Event{Kind: Removed, Name: name, Resource: old, Err: why})
}

// let drops a resource without an event.
func (c *Client) let(w *typeState, name string, n *nameState) {
	old := n.res
	w.unindex(name, old)
	c.keep(n, nil)
	n.foreign, n.doubted = false, false
	c.stop(n)
	c.abandon(w, name, old, nil)
}

// remove handles a name that the server reports as not existing. A name in removed_resources has no
// timeout any more (CLI-3).
func (c *Client) remove(w *typeState, name string, why error) {
	n := w.names[name]
	switch {
	case n == nil || name == xds.Wildcard: // a wildcard cannot be absent
	case n.res != nil && c.opts.Retain && !c.opts.DropOnError:
		c.retain(w, name, n)
	case n.res != nil:
		c.lose(w, name, n, why)
	default:
		if n.told {
			c.unfind(w, name, why)
		}
		c.nothing(w, name, n, why)
	}
}

// unfind handles an alias or a collection that does not exist any more. It drops the resources that
// only this name found. The server did not mention the names of these resources, so their refused
// states stay refused.
func (c *Client) unfind(w *typeState, name string, why error) {
	for _, s := range w.finding(name) {
		n := w.names[s]
		switch {
		case w.covers(s, n.res, isTold, name):
		case c.opts.Retain && !c.opts.DropOnError:
			c.retain(w, s, n)
		default:
			w.part(name, s) // the name gets only the Removed event of the resource
			still := slices.DeleteFunc(slices.Clone(w.askers(s, n.res)), func(x string) bool { return n.fault == nil || !slices.Contains(n.fault.by, x) })
			c.release(w, s, n, why)
			c.repeat(w, s, n, still)
			w.tidy(s, n)
		}
	}
}

// retain keeps a resource although the server has removed it.
func (c *Client) retain(w *typeState, name string, n *nameState) {
	n.foreign = true
	c.blame(w, name, n, nil, ErrGone)
}

// nothing handles a removed name if no resource is held under this name.
func (c *Client) nothing(w *typeState, name string, n *nameState, why error) {
	if n.told {
		for _, s := range w.spoils(name) {
			w.part(name, s)
			w.tidy(s, w.names[s])
			w.lacking(name, n)
			c.gone(w, s, asker(name, n), why)
		}
	}
	if n.fault != nil && n.fault.of != "" {
		c.over(w, name, n, why)
		w.tidy(name, n)
	} else if n.told && !w.finds(name) {
		c.absent(w, name, n, why)
	}
}

// absent records that a name does not find any resource. It adds an event, but only once.
func (c *Client) absent(w *typeState, name string, n *nameState, why error) {
	if n.gone == absence && n.fault == nil {
		return
	}
	c.stop(n)
	n.gone, n.fault = absence, nil
	c.tellOf(w, Event{Kind: Absent, Name: name, Err: why})
	w.tidy(name, n)
}

// missing handles a name that resource_errors reports as not existing. A resource held stays in
// use: "By default, we will ignore the error and continue using the cached version of the resource"
// (gRFC A88).
func (c *Client) missing(w *typeState, name string) {
	n := w.names[name]
	switch {
	case n == nil || name == xds.Wildcard:
	case n.res != nil && !c.opts.DropOnError:
		c.blame(w, name, n, nil, ErrGone)
	case n.res != nil:
		c.lose(w, name, n, ErrGone)
	default:
		c.nothing(w, name, n, ErrGone)
	}
}

// report handles the other errors in resource_errors.
func (c *Client) report(w *typeState, e xds.ResourceError) {
	name := xds.CanonicalName(e.Name)
	n := w.names[name]
	if n == nil || !n.told && n.res == nil {
		return
	}
	const permissionDenied = 7
	var asked []string
	if n.res != nil && c.opts.DropOnError && e.Status.Code == permissionDenied {
		asked = w.askers(name, n.res)
		c.let(w, name, n)
	}
	if n.res == nil {
		c.stop(n)
	}
	c.blame(w, name, n, asked, &ReportedError{xds.Status{Code: e.Status.Code, Message: cut(e.Status.Message, maxCause)}})
	w.tidy(name, n)
}

// blame records an error that the server reports, and adds an event, but only once. If the resource
// was dropped because of the error, the caller passes the names that get the event (asked).
// Otherwise all names get it that find the resource, and all names that got the Refused event.
func (c *Client) blame(w *typeState, name string, n *nameState, asked []string, err error) {
	f := &fault{err: err, text: err.Error(), last: err.Error(), at: c.now}
	if old := n.fault; old != nil {
		if asked == nil && !old.refused && old.text == f.text {
			return
		}
		f.of, f.by = old.of, old.by
		if old.last == f.last {
			f.heard = old.heard
		}
	}
	n.fault = f
	switch {
	case asked != nil:
	case n.res != nil:
		asked = w.askers(name, n.res)
	default:
		asked = asker(name, n)
	}
	asked = slices.DeleteFunc(without(asked, f.heard...), func(s string) bool { return w.knows(s, f) })
	asked = append(w.told(f), asked...)
	f.heard = append(without(f.heard, asked...), asked...)
	c.tellOf(w, Event{Kind: Errored, Name: name, Resource: n.res, Asked: asked, Err: err})
}

// refuse records that a resource cannot be used, and adds an event, once for each name that finds
// the resource. A different error is also reported to names that found an earlier refused state,
// even if the new state no longer has the alias.
func (c *Client) refuse(w *typeState, name string, r *xds.Resource, err error) {
	n := w.name(name)
	n.round = max(n.round, w.round)
	if old := n.res; old != nil && c.opts.DropOnError {
		c.let(w, name, n)
		c.abandon(w, name, old, r)
	}
	f := &fault{refused: true, of: name, err: err, text: err.Error(), version: r.Version, at: c.now}
	known := false
	if old := n.fault; old != nil {
		f.by, known = old.by, old.refused && old.text == f.text
		f.last, f.heard = old.last, old.heard
	}
	n.fault = f
	var asked []string
	if !known {
		asked = w.told(f)
	}
	w.finders(name, r, func(s string, x *nameState) bool {
		if isEither(x) && !w.knows(s, f) {
			f.by = append(f.by, s)
			w.spoil(s, name)
			asked = append(asked, asker(s, x)...)
		}
		if x.res == nil && len(w.found[s]) == 0 {
			c.stop(x)
			x.gone = unheard
		}
		return true
	})
	w.tidy(name, n)
	if len(asked) > 0 {
		c.tellOf(w, Event{Kind: Refused, Name: name, Resource: n.res, Err: err, Asked: asked})
	}
}

// Adopt puts resources in use that come from a disk cache or from another server, for subscribed
// names without a resource. The server can remove them like other resources. Adopt adds no events.
// The next state from the server causes an event even if it is equal.
//
// Set own if the resources come from this server. Then a delta client states their versions;
// otherwise it states only their names. A SotW client states no version, because the resources may
// not be complete.
func (c *Client) Adopt(t *xds.Type, own bool, resources ...*xds.Resource) {
	w := c.find(t)
	if w == nil {
		return
	}
	for _, r := range resources {
		if r == nil || r.Stamp == nil || r.Body == nil {
			continue
		}
		name := xds.CanonicalName(r.Name)
		n := w.names[name]
		if n != nil && n.res != nil || name == "" || name == xds.Wildcard || !w.covers(name, r, isAsked, "") {
			continue
		}
		n = w.name(name)
		w.index(name, r)
		c.keep(n, r)
		n.since, n.foreign, n.gone = momentOf(c.now), !own, unheard
		w.tidy(name, n)
		c.expire(w, name, n, r.TTL)
		c.found(w, name, r)
		c.over(w, name, n, nil, r)
		w.exact, w.listed = false, false
	}
}

// Doubt marks held resources as doubted: the application can no longer be sure that it can use
// them. On the next stream the server sends these resources again, and the client calls Check again
// even for equal resources. A doubted resource stays in use, even if it is then refused. That
// repeats on each new stream until the client accepts the resource. The result any reports whether
// the client holds a resource with one of the names.
func (c *Client) Doubt(t *xds.Type, names ...string) (any bool) {
	w := c.find(t)
	if w == nil {
		return false
	}
	for _, name := range names {
		if n := w.names[xds.CanonicalName(name)]; n != nil && n.res != nil {
			n.foreign, n.doubted, any = true, true, true
			w.exact = false // in SotW the server must send all resources again
		}
	}
	return any
}
