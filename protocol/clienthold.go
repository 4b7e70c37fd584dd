package protocol

import (
	"bytes"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file changes the state of a name: held, refused, removed, absent, or in error.

// hold puts a resource in use. An equal one is replaced, too: the old one may keep the memory of
// its response alive.
func (c *Client) hold(w *clientType, name string, n *clientName, r *xds.Resource, version string) {
	old, f := n.res, n.fault
	same := old != nil && !n.foreign && alike(old, r)
	if old != nil {
		w.unindex(name, old)
	}
	w.index(name, r)
	n.res, n.version, n.foreign, n.doubted, n.gone = r, version, false, false, unheard
	n.round = max(n.round, w.round)
	w.tidy(name, n)
	c.expire(w, name, n, r.TTL)
	ended := c.found(w, name, r)
	if same && f == nil && len(ended) == 0 {
		return
	}
	n.since = momentOf(c.now)
	var asked []string // nil: all
	if same {
		asked = slices.DeleteFunc(slices.Clone(w.askers(name, r)), func(s string) bool { return !f.reached(s) && !slices.Contains(ended, s) })
	}
	c.tellOf(w, ClientEvent{Kind: Updated, Name: name, Resource: r, Asked: asked})
	if old != nil {
		c.abandon(w, name, old, r)
	}
	c.over(w, name, n, nil, r, old)
}

// alike reports whether two resources are equal for the application. Versions do not count: a
// restarted server may give the same content another one.
func alike(a, b *xds.Resource) bool {
	return a == b || bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// found ends the timeouts of the other names that find a resource. It returns the names whose error
// is over by that.
func (c *Client) found(w *clientType, name string, r *xds.Resource) (ended []string) {
	if w.all != nil {
		w.all.fault = nil // the Updated event shows that it is over
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

// abandon handles the names that found an old resource. Those that do not find its new state r are
// told that it is gone. r is nil if it is gone for all; then one event tells all.
func (c *Client) abandon(w *clientType, name string, old, r *xds.Resource) {
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
			c.tellOf(w, ClientEvent{Kind: Removed, Name: name, Resource: old, Asked: asker(s, n)})
		}
	}
}

// lacking notes that a name does not exist, unless it finds something else.
func (w *clientType) lacking(name string, n *clientName) {
	if n.res == nil && !w.finds(name) && name != xds.Wildcard {
		n.gone = absence
	}
}

// over ends the fault of a name. Names that got its Refused event and find none of the told
// resources get an Absent event.
func (c *Client) over(w *clientType, name string, n *clientName, why error, told ...*xds.Resource) {
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

// gone adds an event that a refused resource is gone.
func (c *Client) gone(w *clientType, name string, asked []string, why error) {
	if len(asked) == 0 {
		return
	}
	var stays *xds.Resource // which the name still finds
	if others := w.finding(name); len(others) > 0 {
		stays = w.names[others[0]].res
	}
	c.tellOf(w, ClientEvent{Kind: Absent, Name: name, Resource: stays, Asked: asked, Err: why})
}

// repeat tells names, after a Removed event, that the newest state of the resource is still
// refused.
func (c *Client) repeat(w *clientType, name string, n *clientName, asked []string) {
	if len(asked) == 0 {
		return
	}
	c.tellOf(w, ClientEvent{Kind: n.fault.kind(), Name: name, Err: n.fault.err, Asked: asked})
}

// inform tells a new subscription that the resource it finds is refused.
func (c *Client) inform(w *clientType, name string, n *clientName) {
	f := n.fault
	if f == nil || f.of == "" || w.knows(name, f) {
		return
	}
	f.by = append(f.by, name)
	c.tellOf(w, ClientEvent{Kind: f.kind(), Name: name, Resource: n.res, Err: f.err, Asked: []string{name}})
}

// asker returns a list of the name if it is asked.
func asker(name string, n *clientName) []string {
	if !n.asked {
		return []string{}
	}
	return []string{name}
}

// lose drops a resource and any refused state of it, and adds an event with the reason.
func (c *Client) lose(w *clientType, name string, n *clientName, why error) {
	old := n.res
	c.release(w, name, n, why)
	c.over(w, name, n, why, old)
	w.tidy(name, n)
}

// release drops a resource and adds an event with the reason. A refused newer state stays refused;
// an error of the dropped resource ends.
func (c *Client) release(w *clientType, name string, n *clientName, why error) {
	old := n.res
	c.let(w, name, n)
	if n.fault != nil && n.fault.of == "" {
		n.fault = nil
	}
	w.lacking(name, n)
	c.tellOf(w, ClientEvent{Kind: Removed, Name: name, Resource: old, Err: why})
}

// let drops a resource without an event.
func (c *Client) let(w *clientType, name string, n *clientName) {
	old := n.res
	w.unindex(name, old)
	n.res, n.foreign, n.doubted = nil, false, false
	c.stop(n)
	c.abandon(w, name, old, nil)
}

// remove handles a name that the server reports as not existing. "removed_resources" ends its
// timeout at once (CLI-3).
func (c *Client) remove(w *clientType, name string, why error) {
	n := w.names[name]
	switch {
	case n == nil || name == xds.Wildcard: // a wildcard has no absence
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

// unfind drops the resources that only a name found that does not exist. The server did not mention
// their own names: a refused state of them stays refused.
func (c *Client) unfind(w *clientType, name string, why error) {
	for _, s := range w.finding(name) {
		n := w.names[s]
		switch {
		case w.covers(s, n.res, isTold, name):
		case c.opts.Retain && !c.opts.DropOnError:
			c.retain(w, s, n)
		default:
			w.part(name, s) // the name gets one event for it
			still := slices.DeleteFunc(slices.Clone(w.askers(s, n.res)), func(x string) bool { return n.fault == nil || !slices.Contains(n.fault.by, x) })
			c.release(w, s, n, why)
			c.repeat(w, s, n, still)
			w.tidy(s, n)
		}
	}
}

// retain keeps a resource although the server has removed it.
func (c *Client) retain(w *clientType, name string, n *clientName) {
	n.foreign = true
	c.blame(w, name, n, nil, ErrGone)
}

// nothing handles a removed name under which no resource is held.
func (c *Client) nothing(w *clientType, name string, n *clientName, why error) {
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

// absent notes that a name finds nothing, and adds an event once.
func (c *Client) absent(w *clientType, name string, n *clientName, why error) {
	if n.gone == absence && n.fault == nil {
		return
	}
	c.stop(n)
	n.gone, n.fault = absence, nil
	c.tellOf(w, ClientEvent{Kind: Absent, Name: name, Err: why})
	w.tidy(name, n)
}

// missing handles a name that resource_errors reports as not existing. A resource held stays: "By
// default, we will ignore the error and continue using the cached version of the resource" (gRFC
// A88).
func (c *Client) missing(w *clientType, name string) {
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
func (c *Client) report(w *clientType, e xds.ResourceError) {
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

// blame records an error that the server reports, and adds an event once. It is for asked, if the
// resource was dropped because of it. Otherwise it is for all names that find the resource and all
// that got the Refused event.
func (c *Client) blame(w *clientType, name string, n *clientName, asked []string, err error) {
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
	c.tellOf(w, ClientEvent{Kind: Errored, Name: name, Resource: n.res, Asked: asked, Err: err})
}

// refuse records that a resource cannot be used, and adds an event once for each name that finds
// it. A different error is also reported to names that found the refused state before: the loss of
// an alias does not end that.
func (c *Client) refuse(w *clientType, name string, r *xds.Resource, err error) {
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
	w.finders(name, r, func(s string, x *clientName) bool {
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
		c.tellOf(w, ClientEvent{Kind: Refused, Name: name, Resource: n.res, Err: err, Asked: asked})
	}
}

// Adopt puts known resources in use for subscribed names that hold none: from a disk cache, or from
// another server. They can be removed like others. Adopt adds no events; the next state from the
// server is an event even if it is equal.
//
// own tells that this server has sent them. Then a delta client states their versions, otherwise
// only their names. A SotW client states no version, for they may not be complete.
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
		n.res, n.since, n.foreign, n.gone = r, momentOf(c.now), !own, unheard
		w.tidy(name, n)
		c.expire(w, name, n, r.TTL)
		c.found(w, name, r)
		c.over(w, name, n, nil, r)
		w.exact, w.listed = false, false
	}
}

// Doubt marks held resources as doubted: the application can no longer be sure that it can use
// them. The server sends them again on the next stream, and Check is called again even for equal
// ones. They stay in use, also if they are then refused. Each new stream does this until they are
// accepted. any reports whether one of the names holds a resource.
func (c *Client) Doubt(t *xds.Type, names ...string) (any bool) {
	w := c.find(t)
	if w == nil {
		return false
	}
	for _, name := range names {
		if n := w.names[xds.CanonicalName(name)]; n != nil && n.res != nil {
			n.foreign, n.doubted, any = true, true, true
			w.exact = false // in SotW all is sent again
		}
	}
	return any
}
