package client

import (
	"slices"

	"github.com/chancery-xds/chancery/xds"
)

// This file drops resources, and handles names for which the server reports a removal or an error.

// reportUnmatched handles the names that found the old state of a resource. A name that does not find
// the new state r gets a Removed event (CLI-12). If r is nil, no name finds the resource any more: then
// the caller adds one event for all names.
func (ts *typeState) reportUnmatched(name string, old, r *xds.Resource) {
	var stays map[string]bool // names that find r
	for s := range ts.otherNames(name, old) {
		n := ts.names[s]
		if n == nil {
			continue
		}
		if stays == nil {
			stays = ts.finderNames(name, []*xds.Resource{r})
		}
		ts.markMissing(s, n)
		if r != nil && !stays[s] {
			ts.addEvent(Event{Kind: Removed, Name: name, Resource: old, Asked: onlySubscribed(s, n)})
		}
	}
}

// markMissing records that a name does not exist, unless the name finds a resource.
func (ts *typeState) markMissing(name string, n *nameState) {
	if n.res == nil && !ts.matchesOthers(name) && name != xds.Wildcard {
		n.missing = nonexistent
	}
}

// drop drops a resource and any refused state of it, and adds an event with the reason.
func (ts *typeState) drop(name string, n *nameState, why error) {
	old := n.res
	ts.dropHeld(name, n, why)
	ts.endFault(name, n, why, old)
	ts.forgetUnused(name, n)
}

// dropHeld drops a resource and adds an event with the reason. If a newer state was refused, it
// stays refused. An error that the server reported for the dropped resource ends.
func (ts *typeState) dropHeld(name string, n *nameState, why error) {
	old := n.res
	ts.dropSilently(name, n)
	if !n.fault.isRefusal() {
		n.fault = nil
	}
	ts.markMissing(name, n)
	ts.addEvent(Event{Kind: Removed, Name: name, Resource: old, Err: why})
}

// dropSilently drops a resource without an event.
func (ts *typeState) dropSilently(name string, n *nameState) {
	old := n.res
	ts.removeFromIndex(name, old)
	ts.setHeld(n, nil)
	n.unknownToServer, n.doubted = false, false
	ts.stopTimer(n)
	ts.reportUnmatched(name, old, nil)
}

// retains reports whether a resource stays in use that the server has removed (gRFC A53).
func (ts *typeState) retains() bool { return ts.client.opts.Retain && !ts.client.opts.DropOnError }

// applyRemoval handles a name that the server reports as not existing. A name in removed_resources has
// no timeout any more (CLI-3).
func (ts *typeState) applyRemoval(name string, why error) {
	n := ts.names[name]
	switch {
	case n == nil || name == xds.Wildcard: // a wildcard cannot be absent
	case n.res != nil && ts.retains():
		ts.keepRemoved(name, n)
	case n.res != nil:
		ts.drop(name, n, why)
	default:
		if n.requested {
			ts.removeMatches(name, why)
		}
		ts.removeUnheld(name, n, why)
	}
}

// removeMatches handles an alias or a collection that does not exist any more. It drops the resources
// that only this name found. The server did not mention the names of these resources, so their refused
// states stay refused.
func (ts *typeState) removeMatches(name string, why error) {
	for _, s := range ts.held.names(name) {
		n := ts.names[s]
		switch {
		case ts.covers(s, n.res, isRequested, name):
		case ts.retains():
			ts.keepRemoved(s, n)
		default:
			ts.endReports(name, s) // the name gets only the Removed event of the resource
			still := slices.DeleteFunc(slices.Clone(ts.subscribersOf(s, n.res)), func(x string) bool { return n.fault == nil || !slices.Contains(n.fault.subscribers, x) })
			ts.dropHeld(s, n, why)
			ts.repeatFault(s, n, still)
			ts.forgetUnused(s, n)
		}
	}
}

// keepRemoved keeps a resource although the server has removed it.
func (ts *typeState) keepRemoved(name string, n *nameState) {
	n.unknownToServer = true
	ts.setServerError(name, n, nil, ErrGone)
}

// removeUnheld handles a removed name if no resource is held under this name.
func (ts *typeState) removeUnheld(name string, n *nameState, why error) {
	if n.requested {
		for _, s := range ts.refused.names(name) {
			ts.endReports(name, s)
			ts.forgetUnused(s, ts.names[s])
			ts.markMissing(name, n)
			ts.reportRefusedGone(s, onlySubscribed(name, n), why)
		}
	}
	switch {
	case n.fault.isRefusal():
		ts.endFault(name, n, why)
		ts.forgetUnused(name, n)
	case n.requested && !ts.matchesOthers(name):
		ts.setAbsent(name, n, why)
	}
}

// setAbsent records that a name does not find any resource. It adds an event, but only once.
func (ts *typeState) setAbsent(name string, n *nameState, why error) {
	if n.missing == nonexistent && n.fault == nil {
		return
	}
	ts.stopTimer(n)
	n.missing, n.fault = nonexistent, nil
	ts.addEvent(Event{Kind: Absent, Name: name, Err: why})
	ts.forgetUnused(name, n)
}

// applyMissing handles a name that resource_errors reports as not existing (CLI-11). A resource held
// stays in use: "By default, we will ignore the error and continue using the cached version of the
// resource" (gRFC A88).
func (ts *typeState) applyMissing(name string) {
	n := ts.names[name]
	switch {
	case n == nil || name == xds.Wildcard:
	case n.res != nil && !ts.client.opts.DropOnError:
		ts.setServerError(name, n, nil, ErrGone)
	case n.res != nil:
		ts.drop(name, n, ErrGone)
	default:
		ts.removeUnheld(name, n, ErrGone)
	}
}

// applyError handles the other errors in resource_errors (CLI-11).
func (ts *typeState) applyError(e xds.ResourceError) {
	name := xds.CanonicalName(e.Name)
	n := ts.names[name]
	if n == nil || !n.requested && n.res == nil {
		return
	}
	const permissionDenied = 7
	var asked []string
	if n.res != nil && ts.client.opts.DropOnError && e.Status.Code == permissionDenied {
		asked = ts.subscribersOf(name, n.res)
		ts.dropSilently(name, n)
	}
	if n.res == nil {
		ts.stopTimer(n)
	}
	ts.setServerError(name, n, asked, &ReportedError{xds.Status{Code: e.Status.Code, Message: cut(e.Status.Message, maxCause)}})
	ts.forgetUnused(name, n)
}
