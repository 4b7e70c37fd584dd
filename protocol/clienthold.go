package protocol

import (
	"bytes"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// What becomes of a name: it is held, refused, lost, absent, or the server reports an error.

// hold takes a resource in. The newest is kept also if it is the same: it may lie in the memory
// of its response, which the old one would keep alive.
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

// alike reports whether whoever watches would see no difference. The version is none: a server
// that begins anew may give another one to the same content.
func alike(a, b *xds.Resource) bool {
	return a == b || bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// found ends the wait for the other names that find a resource. It returns those of which
// something bad was said, which is over.
func (c *Client) found(w *clientType, name string, r *xds.Resource) (ended []string) {
	if w.all != nil {
		w.all.fault = nil // who is told of a resource knows that it is over
	}
	if !w.delta {
		return nil
	}
	for s := range w.others(name, r) {
		if n := w.names[s]; n != nil && n.res == nil {
			c.stop(n)
			n.gone = unheard
			if n.fault != nil && n.fault.of == "" { // what was refused stays so, whatever else is found
				n.fault, ended = nil, append(ended, s)
			}
		}
	}
	return ended
}

// abandon looks at the names that found an old resource. Those that do not find its new state,
// r, are told that it is gone; r is nil if it is gone for all, who are told together.
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

// lacking notes that a name does not exist, unless it finds something all the same.
func (w *clientType) lacking(name string, n *clientName) {
	if n.res == nil && !w.finds(name) && name != xds.Wildcard {
		n.gone = absence
	}
}

// over ends what is wrong with the newest of a name. Who was told that it was refused, and finds none
// of those told hears that it is gone.
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

// gone tells that what was refused is gone.
func (c *Client) gone(w *clientType, name string, asked []string, why error) {
	if len(asked) == 0 {
		return
	}
	var stays *xds.Resource // that the name finds all the same
	if others := w.finding(name); len(others) > 0 {
		stays = w.names[others[0]].res
	}
	c.tellOf(w, ClientEvent{Kind: Absent, Name: name, Resource: stays, Asked: asked, Err: why})
}

// repeat tells names that have heard that a resource is gone that what was sent of it is no less bad.
func (c *Client) repeat(w *clientType, name string, n *clientName, asked []string) {
	if len(asked) == 0 {
		return
	}
	c.tellOf(w, ClientEvent{Kind: n.fault.kind(), Name: name, Err: n.fault.err, Asked: asked})
}

// inform tells who asks for what others know to be refused that it is.
func (c *Client) inform(w *clientType, name string, n *clientName) {
	f := n.fault
	if f == nil || f.of == "" || w.knows(name, f) {
		return
	}
	f.by = append(f.by, name)
	c.tellOf(w, ClientEvent{Kind: f.kind(), Name: name, Resource: n.res, Err: f.err, Asked: []string{name}})
}

// asker lists a name if it is asked.
func asker(name string, n *clientName) []string {
	if !n.asked {
		return []string{}
	}
	return []string{name}
}

// lose lets go of a resource, and of what was refused in its place, and tells why.
func (c *Client) lose(w *clientType, name string, n *clientName, why error) {
	old := n.res
	c.release(w, name, n, why)
	c.over(w, name, n, why, old)
	w.tidy(name, n)
}

// release lets go of a resource, and tells why. What was refused in its place is no less there; an error
// was of it.
func (c *Client) release(w *clientType, name string, n *clientName, why error) {
	old := n.res
	c.let(w, name, n)
	if n.fault != nil && n.fault.of == "" {
		n.fault = nil
	}
	w.lacking(name, n)
	c.tellOf(w, ClientEvent{Kind: Removed, Name: name, Resource: old, Err: why})
}

// let lets go of a resource.
func (c *Client) let(w *clientType, name string, n *clientName) {
	old := n.res
	w.unindex(name, old)
	n.res, n.foreign, n.doubted = nil, false, false
	c.stop(n)
	c.abandon(w, name, old, nil)
}

// remove is what the server says of a name that does not exist. "removed_resources" ends the
// wait for it at once.
func (c *Client) remove(w *clientType, name string, why error) {
	n := w.names[name]
	switch {
	case n == nil || name == xds.Wildcard: // there may always be something
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

// unfind lets go of what a name that does not exist has found, as far as it was asked for by it alone.
// The server said nothing of these names: what it has sent of them, and was refused, is no less there.
func (c *Client) unfind(w *clientType, name string, why error) {
	for _, s := range w.finding(name) {
		n := w.names[s]
		switch {
		case w.covers(s, n.res, isTold, name):
		case c.opts.Retain && !c.opts.DropOnError:
			c.retain(w, s, n)
		default:
			w.part(name, s) // it hears that once
			still := slices.DeleteFunc(slices.Clone(w.askers(s, n.res)), func(x string) bool { return n.fault == nil || !slices.Contains(n.fault.by, x) })
			c.release(w, s, n, why)
			c.repeat(w, s, n, still)
			w.tidy(s, n)
		}
	}
}

// retain notes that what is held stays though the server has removed it.
func (c *Client) retain(w *clientType, name string, n *clientName) {
	n.foreign = true
	c.blame(w, name, n, nil, ErrGone)
}

// nothing is what the server says of a name under which nothing is held.
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

// absent notes that a name finds nothing, and tells it once.
func (c *Client) absent(w *clientType, name string, n *clientName, why error) {
	if n.gone == absence && n.fault == nil {
		return
	}
	c.stop(n)
	n.gone, n.fault = absence, nil
	c.tellOf(w, ClientEvent{Kind: Absent, Name: name, Err: why})
	w.tidy(name, n)
}

// missing is what resource_errors say of a name that does not exist. What is held stays:
// "By default, we will ignore the error and continue using the cached version of the
// resource" (gRFC A88).
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

// report is what else resource_errors say of a name.
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

// blame notes an error that the server reports, and tells it once: to those who are asked, if
// the resource was given up for it, and else to all who find it, and to who was told that it was refused.
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

// refuse notes that a resource cannot be used, and tells it once to each name that finds it, and if the
// error is another one also to who found what was refused before: that it has an alias no more ends nothing.
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

// Adopt lets the client hold what is known of resources that are subscribed to, and of which it
// holds none: from the disk, or from another server. They are used, and leave as others do. No
// event tells of them; what the server sends of them is told, also if it is the same. Own says
// that this server has sent them, so that with delta the client states their versions, and not
// just their names. In SotW it states none: nobody knows that they are all.
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

// Doubt has the server send once more, on the next stream, what is held under names of resources, and
// Check asked about it though it is the same: for who learns later whether it can be used. It
// stays in use meanwhile, and also if it is refused then. Each stream begins so until it is accepted. Any says
// whether there is any.
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
