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
	old := n.res
	same := old != nil && n.fault == nil && !n.foreign && alike(old, r)
	if old != nil {
		w.unindex(name, old)
	}
	w.index(name, r)
	n.res, n.version, n.foreign, n.doubted, n.fault, n.gone = r, version, false, false, nil, unheard
	n.round = max(n.round, w.round)
	w.tidy(name, n)
	c.expire(w, name, n, r.TTL)
	if good := c.found(w, name, r); same && good {
		return
	}
	n.since = momentOf(c.now)
	c.tellOf(w, ClientEvent{Kind: Updated, Name: name, Resource: r})
	if old != nil {
		c.abandon(w, name, old, r)
	}
}

// alike reports whether whoever watches would see no difference. The version is none: a server
// that begins anew may give another one to the same content.
func alike(a, b *xds.Resource) bool {
	return a == b || bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// found ends the wait for the other names that find a resource. It reports whether nothing bad
// was said of any of them.
func (c *Client) found(w *clientType, name string, r *xds.Resource) (good bool) {
	if w.all != nil {
		w.all.fault = nil // who is told of a resource knows that it is over
	}
	if good = true; !w.delta {
		return good
	}
	for s := range w.others(name, r) {
		if n := w.names[s]; n != nil && n.res == nil {
			c.stop(n)
			n.gone = unheard
			if n.fault != nil && n.fault.of != s { // not of a resource that is called so
				n.fault, good = nil, false
			}
			w.tidy(s, n)
		}
	}
	return good
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
		if n.res == nil && len(w.found[s]) == 0 {
			n.gone = absence
		}
		if r != nil && !stays[s] {
			c.tellOf(w, ClientEvent{Kind: Removed, Name: name, Resource: old, Asked: asker(s, n)})
		}
	}
}

// asker lists a name if it is asked.
func asker(name string, n *clientName) []string {
	if !n.asked {
		return []string{}
	}
	return []string{name}
}

// lose lets go of a resource, and tells why.
func (c *Client) lose(w *clientType, name string, n *clientName, why error) {
	old := n.res
	c.let(w, name, n)
	n.gone, n.fault = absence, nil
	c.tellOf(w, ClientEvent{Kind: Removed, Name: name, Resource: old, Err: why})
	w.tidy(name, n)
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
		n.foreign = true
		c.blame(w, name, n, nil, ErrGone)
	case n.res != nil:
		c.lose(w, name, n, why)
	case n.stray:
		c.forget(w, name, n, why)
	default:
		// It found others, which are gone as far as they were asked for by it.
		for _, s := range w.finding(name) {
			if x := w.names[s]; !w.covers(s, x.res, isTold, name) {
				c.remove(w, s, why)
			}
		}
		c.nothing(w, name, n, why)
	}
}

// nothing is what the server says of a name under which nothing is held.
func (c *Client) nothing(w *clientType, name string, n *clientName, why error) {
	if n.told && len(w.found[name]) == 0 {
		c.absent(w, name, n, why)
	} else if n.fault != nil && n.fault.of == name {
		c.forget(w, name, n, why) // it finds others, or the server does not know yet that it is asked for
	}
}

// forget lets go of what was refused and not held, and tells those who were told so: the name
// itself, if it finds others, that the first of these is in use.
func (c *Client) forget(w *clientType, name string, n *clientName, why error) {
	asked, others := w.hearers(name, n), w.finding(name)
	for _, s := range asked {
		if x := w.names[s]; x.fault != nil && x.fault.of == name {
			x.fault = nil
			if x.res == nil && len(w.found[s]) == 0 {
				x.gone = absence
			}
		}
	}
	n.fault = nil
	if len(others) > 0 {
		asked = slices.DeleteFunc(asked, func(s string) bool { return s == name })
		c.tellOf(w, ClientEvent{Kind: Updated, Name: others[0], Resource: w.names[others[0]].res, Asked: asker(name, n)})
	}
	c.tellOf(w, ClientEvent{Kind: Absent, Name: name, Asked: asked, Err: why})
	w.tidy(name, n)
}

// hearers lists who hears what becomes of what was refused and not held: those who were told
// so, and the name, which was not asked then perhaps.
func (w *clientType) hearers(name string, n *clientName) []string {
	asked := slices.DeleteFunc(append([]string{}, n.fault.asked...), func(s string) bool { return !w.has(s, isAsked) })
	if n.asked && !slices.Contains(asked, name) {
		asked = append(asked, name)
	}
	return asked
}

// absent notes that a name finds nothing, and tells it once.
func (c *Client) absent(w *clientType, name string, n *clientName, why error) {
	if n.gone == absence && n.fault == nil {
		return
	}
	c.stop(n)
	if n.gone = absence; n.fault != nil && n.fault.of == name {
		c.forget(w, name, n, why) // others that find it may have been told of the refusal
		return
	}
	n.fault = nil
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
// the resource was given up for it, and else to all who find it or were told that it was refused.
func (c *Client) blame(w *clientType, name string, n *clientName, asked []string, err error) {
	text := err.Error()
	if asked == nil && n.fault != nil && !n.fault.refused && n.fault.text == text {
		return
	}
	f := fault{}
	if n.res == nil && n.fault != nil && n.fault.of == name {
		f, asked = *n.fault, w.hearers(name, n) // who was told of the refusal hears of its end, too
	}
	n.fault = &fault{of: f.of, asked: f.asked, err: err, text: text, at: c.now}
	c.tellOf(w, ClientEvent{Kind: Errored, Name: name, Resource: n.res, Asked: asked, Err: err})
}

// refuse notes that a resource cannot be used, for all who find it, and tells them once. A name
// remembers one refusal: one by an alias lasts until the name finds something, or what was
// refused goes. That it has the alias no more, when it comes again, ends nothing.
func (c *Client) refuse(w *clientType, name string, r *xds.Resource, err error) {
	asked := w.askers(name, r)
	f := &fault{refused: true, of: name, asked: asked, err: err, text: err.Error(), version: r.Version, at: c.now}
	n := w.name(name)
	known := n.fault != nil && n.fault.refused && n.fault.text == f.text
	note := func(n *clientName) {
		n.fault = f
		if n.res == nil {
			c.stop(n)
			n.gone = unheard
		}
	}
	n.round = max(n.round, w.round)
	if old := n.res; old != nil && c.opts.DropOnError {
		c.let(w, name, n)
		c.abandon(w, name, old, r)
	}
	stays := n.res
	note(n)
	w.tidy(name, n)
	if w.delta {
		for s := range w.others(name, r) {
			if n := w.names[s]; n != nil && n.res == nil && len(w.found[s]) == 0 {
				known = known && n.fault != nil && n.fault.refused // of this resource, or of another that it finds
				if n.fault == nil || n.fault.of != s {
					note(n) // its own refusal stays, or it would be told again
				}
			}
		}
	}
	if !known {
		c.tellOf(w, ClientEvent{Kind: Refused, Name: name, Resource: stays, Err: err, Asked: asked})
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
		n.res, n.since, n.foreign, n.gone, n.fault = r, momentOf(c.now), !own, unheard, nil
		w.tidy(name, n)
		c.expire(w, name, n, r.TTL)
		c.found(w, name, r)
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
