package client

import (
	"bytes"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file changes the state of a name: held, refused, removed, absent, or in error. Terms: see
// doc.go.

// accept puts a resource in use. It replaces an equal resource, too, because the old one may keep the
// memory of its response in use.
func (c *Client) accept(ts *typeState, name string, n *nameState, r *xds.Resource, version string) {
	old, f := n.res, n.fault
	same := old != nil && !n.unknownToServer && sameContent(old, r)
	if old != nil {
		ts.removeFromIndex(name, old)
	}
	ts.addToIndex(name, r)
	c.setHeld(n, r)
	n.version, n.unknownToServer, n.doubted, n.missing = version, false, false, notReported
	n.round = max(n.round, ts.round)
	ts.forgetUnused(name, n)
	c.startTTL(ts, name, n, r.TTL)
	ended := c.endWaits(ts, name, r)
	if same && f == nil && len(ended) == 0 {
		return
	}
	n.changedAt = momentOf(c.now)
	var asked []string // nil: all names that find the resource
	if same {
		asked = slices.DeleteFunc(slices.Clone(ts.subscribersOf(name, r)), func(s string) bool { return !f.wasReportedTo(s) && !slices.Contains(ended, s) })
	}
	c.addEvent(ts, Event{Kind: Updated, Name: name, Resource: r, Asked: asked})
	if old != nil {
		c.reportUnmatched(ts, name, old, r)
	}
	c.endFault(ts, name, n, nil, r, old)
}

// sameContent reports whether two resources are equal for the application. Versions do not count: a
// restarted server may send the same content with another version.
func sameContent(a, b *xds.Resource) bool {
	return a == b || bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// endWaits ends the timeouts of the other names that find a resource. It also ends errors that the
// server reported for these names, and returns the names with such an error.
func (c *Client) endWaits(ts *typeState, name string, r *xds.Resource) (ended []string) {
	if ts.wildcard != nil {
		ts.wildcard.fault = nil // the Updated event shows that the fault is over
	}
	if !ts.delta {
		return nil
	}
	for s := range ts.otherNames(name, r) {
		if n := ts.names[s]; n != nil && n.res == nil {
			c.stopTimer(n)
			n.missing = notReported
			if n.fault != nil && n.fault.resource == "" { // a refused resource stays refused
				n.fault, ended = nil, append(ended, s)
			}
		}
	}
	return ended
}

// reportUnmatched handles the names that found the old state of a resource. A name that does not find
// the new state r gets a Removed event. If r is nil, no name finds the resource any more: then the
// caller adds one event for all names.
func (c *Client) reportUnmatched(ts *typeState, name string, old, r *xds.Resource) {
	if !ts.delta {
		return
	}
	var stays map[string]bool // names that find r
	for s := range ts.otherNames(name, old) {
		n := ts.names[s]
		if n == nil {
			continue
		}
		if r != nil && stays == nil {
			stays = map[string]bool{}
			for s := range ts.otherNames(name, r) {
				stays[s] = true
			}
		}
		ts.markMissing(s, n)
		if r != nil && !stays[s] {
			c.addEvent(ts, Event{Kind: Removed, Name: name, Resource: old, Asked: onlySubscribed(s, n)})
		}
	}
}

// markMissing records that a name does not exist, unless the name finds another resource.
func (ts *typeState) markMissing(name string, n *nameState) {
	if n.res == nil && !ts.matchesOthers(name) && name != xds.Wildcard {
		n.missing = nonexistent
	}
}

// endFault ends the fault of a name. Names that got the Refused event of this fault get an Absent
// event now, unless they find one of the resources in reported, for which another event was added.
func (c *Client) endFault(ts *typeState, name string, n *nameState, why error, reported ...*xds.Resource) {
	f := n.fault
	n.fault = nil
	if f == nil || len(f.subscribers) == 0 {
		return
	}
	informed := map[string]bool{}
	for _, r := range reported {
		if r == nil {
			continue
		}
		informed[xds.Wildcard], informed[name] = true, true
		if ts.delta {
			for s := range ts.otherNames(name, r) {
				informed[s] = true
			}
		}
	}
	var asked []string
	for _, s := range f.subscribers {
		ts.removeRefused(s, name)
		x := ts.names[s]
		ts.markMissing(s, x)
		if x.subscribed && !informed[s] {
			asked = append(asked, s)
		}
	}
	c.reportRefusedGone(ts, name, asked, why)
}

// reportRefusedGone adds an Absent event for a refused resource that is gone.
func (c *Client) reportRefusedGone(ts *typeState, name string, asked []string, why error) {
	if len(asked) == 0 {
		return
	}
	var stays *xds.Resource // a resource that the name still finds
	if others := ts.heldNames(name); len(others) > 0 {
		stays = ts.names[others[0]].res
	}
	c.addEvent(ts, Event{Kind: Absent, Name: name, Resource: stays, Asked: asked, Err: why})
}

// repeatFault adds a second event after a Removed event: the newest state of the resource is still
// refused.
func (c *Client) repeatFault(ts *typeState, name string, n *nameState, asked []string) {
	if len(asked) == 0 {
		return
	}
	c.addEvent(ts, Event{Kind: n.fault.kind(), Name: name, Err: n.fault.err, Asked: asked})
}

// reportKnownFault adds the event for a new subscription to a name whose resource is refused.
func (c *Client) reportKnownFault(ts *typeState, name string, n *nameState) {
	f := n.fault
	if f == nil || f.resource == "" || ts.faultReaches(name, f) {
		return
	}
	f.subscribers = append(f.subscribers, name)
	c.addEvent(ts, Event{Kind: f.kind(), Name: name, Resource: n.res, Err: f.err, Asked: []string{name}})
}

// onlySubscribed returns a list with the name if it is subscribed, and otherwise an empty list.
func onlySubscribed(name string, n *nameState) []string {
	if !n.subscribed {
		return []string{}
	}
	return []string{name}
}

// drop drops a resource and any refused state of it, and adds an event with the reason.
func (c *Client) drop(ts *typeState, name string, n *nameState, why error) {
	old := n.res
	c.dropHeld(ts, name, n, why)
	c.endFault(ts, name, n, why, old)
	ts.forgetUnused(name, n)
}

// dropHeld drops a resource and adds an event with the reason. If a newer state was refused, it
// stays refused. An error that the server reported for the dropped resource ends.
func (c *Client) dropHeld(ts *typeState, name string, n *nameState, why error) {
	old := n.res
	c.dropSilently(ts, name, n)
	if n.fault != nil && n.fault.resource == "" {
		n.fault = nil
	}
	ts.markMissing(name, n)
	c.addEvent(ts, Event{Kind: Removed, Name: name, Resource: old, Err: why})
}

// dropSilently drops a resource without an event.
func (c *Client) dropSilently(ts *typeState, name string, n *nameState) {
	old := n.res
	ts.removeFromIndex(name, old)
	c.setHeld(n, nil)
	n.unknownToServer, n.doubted = false, false
	c.stopTimer(n)
	c.reportUnmatched(ts, name, old, nil)
}

// applyRemoval handles a name that the server reports as not existing. A name in removed_resources has no
// timeout any more (CLI-3).
func (c *Client) applyRemoval(ts *typeState, name string, why error) {
	n := ts.names[name]
	switch {
	case n == nil || name == xds.Wildcard: // a wildcard cannot be absent
	case n.res != nil && c.opts.Retain && !c.opts.DropOnError:
		c.keepRemoved(ts, name, n)
	case n.res != nil:
		c.drop(ts, name, n, why)
	default:
		if n.requested {
			c.removeMatches(ts, name, why)
		}
		c.removeUnheld(ts, name, n, why)
	}
}

// removeMatches handles an alias or a collection that does not exist any more. It drops the resources that
// only this name found. The server did not mention the names of these resources, so their refused
// states stay refused.
func (c *Client) removeMatches(ts *typeState, name string, why error) {
	for _, s := range ts.heldNames(name) {
		n := ts.names[s]
		switch {
		case ts.covers(s, n.res, isRequested, name):
		case c.opts.Retain && !c.opts.DropOnError:
			c.keepRemoved(ts, s, n)
		default:
			ts.endReports(name, s) // the name gets only the Removed event of the resource
			still := slices.DeleteFunc(slices.Clone(ts.subscribersOf(s, n.res)), func(x string) bool { return n.fault == nil || !slices.Contains(n.fault.subscribers, x) })
			c.dropHeld(ts, s, n, why)
			c.repeatFault(ts, s, n, still)
			ts.forgetUnused(s, n)
		}
	}
}

// keepRemoved keeps a resource although the server has removed it.
func (c *Client) keepRemoved(ts *typeState, name string, n *nameState) {
	n.unknownToServer = true
	c.setServerError(ts, name, n, nil, ErrGone)
}

// removeUnheld handles a removed name if no resource is held under this name.
func (c *Client) removeUnheld(ts *typeState, name string, n *nameState, why error) {
	if n.requested {
		for _, s := range ts.refusedNames(name) {
			ts.endReports(name, s)
			ts.forgetUnused(s, ts.names[s])
			ts.markMissing(name, n)
			c.reportRefusedGone(ts, s, onlySubscribed(name, n), why)
		}
	}
	if n.fault != nil && n.fault.resource != "" {
		c.endFault(ts, name, n, why)
		ts.forgetUnused(name, n)
	} else if n.requested && !ts.matchesOthers(name) {
		c.setAbsent(ts, name, n, why)
	}
}

// setAbsent records that a name does not find any resource. It adds an event, but only once.
func (c *Client) setAbsent(ts *typeState, name string, n *nameState, why error) {
	if n.missing == nonexistent && n.fault == nil {
		return
	}
	c.stopTimer(n)
	n.missing, n.fault = nonexistent, nil
	c.addEvent(ts, Event{Kind: Absent, Name: name, Err: why})
	ts.forgetUnused(name, n)
}

// applyMissing handles a name that resource_errors reports as not existing. A resource held stays in
// use: "By default, we will ignore the error and continue using the cached version of the resource"
// (gRFC A88).
func (c *Client) applyMissing(ts *typeState, name string) {
	n := ts.names[name]
	switch {
	case n == nil || name == xds.Wildcard:
	case n.res != nil && !c.opts.DropOnError:
		c.setServerError(ts, name, n, nil, ErrGone)
	case n.res != nil:
		c.drop(ts, name, n, ErrGone)
	default:
		c.removeUnheld(ts, name, n, ErrGone)
	}
}

// applyError handles the other errors in resource_errors.
func (c *Client) applyError(ts *typeState, e xds.ResourceError) {
	name := xds.CanonicalName(e.Name)
	n := ts.names[name]
	if n == nil || !n.requested && n.res == nil {
		return
	}
	const permissionDenied = 7
	var asked []string
	if n.res != nil && c.opts.DropOnError && e.Status.Code == permissionDenied {
		asked = ts.subscribersOf(name, n.res)
		c.dropSilently(ts, name, n)
	}
	if n.res == nil {
		c.stopTimer(n)
	}
	c.setServerError(ts, name, n, asked, &ReportedError{xds.Status{Code: e.Status.Code, Message: cut(e.Status.Message, maxCause)}})
	ts.forgetUnused(name, n)
}

// setServerError records an error that the server reports, and adds an event, but only once. If the resource
// was dropped because of the error, the caller passes the names that get the event (asked).
// Otherwise all names get it that find the resource, and all names that got the Refused event.
func (c *Client) setServerError(ts *typeState, name string, n *nameState, asked []string, err error) {
	f := &fault{err: err, text: err.Error(), serverText: err.Error(), at: c.now}
	if old := n.fault; old != nil {
		if asked == nil && !old.refused && old.text == f.text {
			return
		}
		f.resource, f.subscribers = old.resource, old.subscribers
		if old.serverText == f.serverText {
			f.reportedTo = old.reportedTo
		}
	}
	n.fault = f
	switch {
	case asked != nil:
	case n.res != nil:
		asked = ts.subscribersOf(name, n.res)
	default:
		asked = onlySubscribed(name, n)
	}
	asked = slices.DeleteFunc(without(asked, f.reportedTo...), func(s string) bool { return ts.faultReaches(s, f) })
	asked = append(ts.faultSubscribers(f), asked...)
	f.reportedTo = append(without(f.reportedTo, asked...), asked...)
	c.addEvent(ts, Event{Kind: Errored, Name: name, Resource: n.res, Asked: asked, Err: err})
}

// refuse records that a resource cannot be used, and adds an event, once for each name that finds
// the resource. A different error is also reported to names that found an earlier refused state,
// even if the new state no longer has the alias.
func (c *Client) refuse(ts *typeState, name string, r *xds.Resource, err error) {
	n := ts.ensure(name)
	n.round = max(n.round, ts.round)
	if old := n.res; old != nil && c.opts.DropOnError {
		c.dropSilently(ts, name, n)
		c.reportUnmatched(ts, name, old, r)
	}
	f := &fault{refused: true, resource: name, err: err, text: err.Error(), version: r.Version, at: c.now}
	known := false
	if old := n.fault; old != nil {
		f.subscribers, known = old.subscribers, old.refused && old.text == f.text
		f.serverText, f.reportedTo = old.serverText, old.reportedTo
	}
	n.fault = f
	var asked []string
	if !known {
		asked = ts.faultSubscribers(f)
	}
	ts.eachFinder(name, r, func(s string, x *nameState) bool {
		if isWanted(x) && !ts.faultReaches(s, f) {
			f.subscribers = append(f.subscribers, s)
			ts.addRefused(s, name)
			asked = append(asked, onlySubscribed(s, x)...)
		}
		if x.res == nil && len(ts.held[s]) == 0 {
			c.stopTimer(x)
			x.missing = notReported
		}
		return true
	})
	ts.forgetUnused(name, n)
	if len(asked) > 0 {
		c.addEvent(ts, Event{Kind: Refused, Name: name, Resource: n.res, Err: err, Asked: asked})
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
	ts := c.findType(t)
	if ts == nil {
		return
	}
	for _, r := range resources {
		if r == nil || r.Stamp == nil || r.Body == nil {
			continue
		}
		name := xds.CanonicalName(r.Name)
		n := ts.names[name]
		if n != nil && n.res != nil || name == "" || name == xds.Wildcard || !ts.covers(name, r, isSubscribed, "") {
			continue
		}
		n = ts.ensure(name)
		ts.addToIndex(name, r)
		c.setHeld(n, r)
		n.changedAt, n.unknownToServer, n.missing = momentOf(c.now), !own, notReported
		ts.forgetUnused(name, n)
		c.startTTL(ts, name, n, r.TTL)
		c.endWaits(ts, name, r)
		c.endFault(ts, name, n, nil, r)
		ts.complete, ts.rowsComplete = false, false
	}
}

// Doubt marks held resources as doubted: the application can no longer be sure that it can use
// them. On the next stream the server sends these resources again, and the client calls Check again
// even for equal resources. A doubted resource stays in use, even if it is then refused. That
// repeats on each new stream until the client accepts the resource. The result any reports whether
// the client holds a resource with one of the names.
func (c *Client) Doubt(t *xds.Type, names ...string) (any bool) {
	ts := c.findType(t)
	if ts == nil {
		return false
	}
	for _, name := range names {
		if n := ts.names[xds.CanonicalName(name)]; n != nil && n.res != nil {
			n.unknownToServer, n.doubted, any = true, true, true
			ts.complete = false // in SotW the server must send all resources again
		}
	}
	return any
}
