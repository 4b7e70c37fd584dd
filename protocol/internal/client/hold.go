package client

import (
	"bytes"
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file puts resources in use. remove.go has the opposite.

// accept puts a resource in use. It replaces an equal resource, too, because the old one may keep the
// memory of its response in use.
func (ts *typeState) accept(name string, n *nameState, r *xds.Resource, version string) {
	old, f := n.res, n.fault
	same := old != nil && !n.unknownToServer && sameContent(old, r)
	if old != nil {
		ts.removeFromIndex(name, old)
	}
	ts.addToIndex(name, r)
	ts.setHeld(n, r)
	n.version, n.unknownToServer, n.doubted, n.missing = version, false, false, notReported
	n.round = max(n.round, ts.round)
	ts.forgetUnused(name, n)
	ts.startTTL(name, n, r.TTL)
	ended := ts.endWaits(name, r)
	if same && f == nil && len(ended) == 0 {
		return
	}
	n.changedAt = momentOf(ts.client.now)
	var asked []string // nil: all names that find the resource (CLI-12)
	if same {
		asked = slices.DeleteFunc(slices.Clone(ts.subscribersOf(name, r)), func(s string) bool { return !f.wasReportedTo(s) && !slices.Contains(ended, s) })
	}
	ts.addEvent(Event{Kind: Updated, Name: name, Resource: r, Asked: asked})
	if old != nil {
		ts.reportUnmatched(name, old, r)
	}
	ts.endFault(name, n, nil, r, old)
}

// sameContent reports whether two resources are equal for the application. Versions do not count: a
// restarted server may send the same content with another version.
func sameContent(a, b *xds.Resource) bool {
	return a == b || bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// endWaits ends the timeouts of the other names that find a resource (CLI-3). It also ends errors that
// the server reported for these names, and returns the names with such an error.
func (ts *typeState) endWaits(name string, r *xds.Resource) (ended []string) {
	if ts.wildcard != nil {
		ts.wildcard.fault = nil // the Updated event shows that the fault is over
	}
	for s := range ts.otherNames(name, r) {
		n := ts.names[s]
		if n == nil || n.res != nil {
			continue
		}
		ts.stopTimer(n)
		n.missing = notReported
		if n.fault != nil && !n.fault.isRefusal() { // a refused resource stays refused
			n.fault, ended = nil, append(ended, s)
		}
	}
	return ended
}

// Adopt puts resources in use that come from a disk cache or from another server, for subscribed
// names without a resource. The server can remove them like other resources. Adopt adds no events.
// The next state from the server causes an event even if it is equal.
//
// Set own if the resources come from this server. Then a delta client states their versions;
// otherwise it states only their names. A SotW client states no version, because the resources may
// not be complete (CLI-4).
func (c *Client) Adopt(t *xds.Type, own bool, resources ...*xds.Resource) {
	ts := c.findType(t)
	if ts == nil {
		return
	}
	for _, r := range resources {
		if r != nil && r.Stamp != nil && r.Body != nil {
			ts.adopt(xds.CanonicalName(r.Name), r, own)
		}
	}
}

func (ts *typeState) adopt(name string, r *xds.Resource, own bool) {
	n := ts.names[name]
	held, invalid := n != nil && n.res != nil, name == "" || name == xds.Wildcard
	if held || invalid || !ts.covers(name, r, isSubscribed, "") {
		return
	}
	n = ts.ensure(name)
	ts.addToIndex(name, r)
	ts.setHeld(n, r)
	n.changedAt, n.unknownToServer, n.missing = momentOf(ts.client.now), !own, notReported
	ts.forgetUnused(name, n)
	ts.startTTL(name, n, r.TTL)
	ts.endWaits(name, r)
	ts.endFault(name, n, nil, r)
	ts.complete, ts.rowsComplete = false, false
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
		n := ts.names[xds.CanonicalName(name)]
		if n == nil || n.res == nil {
			continue
		}
		n.unknownToServer, n.doubted, any = true, true, true
		ts.complete = false // in SotW the server must send all resources again
	}
	return any
}
