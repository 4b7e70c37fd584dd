package client

import (
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A fault is the reason why the newest state of a name cannot be used (CLI-2, CLI-11).
//
// Each name that finds a refused resource gets the events of the fault, once, even if a later state
// of the resource no longer has the alias. The inverse of subscribers is typeState.refused.
type fault struct {
	refused     bool     // the client refused the state; otherwise the server reported an error
	resource    string   // name of the resource that the client refused, perhaps before the server reported an error; "": none
	subscribers []string // the names that find the refused resource and get the events of the fault
	err         error
	text        string   // text of err
	serverText  string   // text of the last error reported by the server; "": none
	reportedTo  []string // names that got the event for this last error
	version     string   // the refused version
	at          time.Time
}

// kind returns the kind of the event that reports the fault.
func (f *fault) kind() EventKind {
	if f.refused {
		return Refused
	}
	return Errored
}

// isRefusal reports whether the client has refused a resource, perhaps before the server reported an
// error; f may be nil.
func (f *fault) isRefusal() bool { return f != nil && f.resource != "" }

// wasReportedTo reports whether the name s got an event of a fault, for the present or an earlier
// error; f may be nil.
func (f *fault) wasReportedTo(s string) bool {
	return f != nil && (slices.Contains(f.subscribers, s) || slices.Contains(f.reportedTo, s))
}

// faultReaches reports whether the name s gets the events of a fault.
func (ts *typeState) faultReaches(s string, f *fault) bool {
	if s == f.resource || s == xds.Wildcard {
		return slices.Contains(f.subscribers, s)
	}
	return ts.refused[s][f.resource]
}

// faultSubscribers returns the subscribed names that get the events of a fault.
func (ts *typeState) faultSubscribers(f *fault) []string {
	return slices.DeleteFunc(slices.Clone(f.subscribers), func(s string) bool { return !ts.has(s, isSubscribed) })
}

// refuse records that a resource cannot be used, and adds an event, once for each name that finds
// the resource. A different error is also reported to names that found an earlier refused state,
// even if the new state no longer has the alias.
func (ts *typeState) refuse(name string, r *xds.Resource, err error) {
	n := ts.ensure(name)
	n.round = max(n.round, ts.round)
	old := n.res
	if old != nil && ts.client.opts.DropOnError {
		ts.dropSilently(name, n)
		ts.reportUnmatched(name, old, r)
	}
	f := &fault{refused: true, resource: name, err: err, text: err.Error(), version: r.Version, at: ts.client.now}
	var asked []string
	before := n.fault
	if before != nil {
		f.subscribers, f.serverText, f.reportedTo = before.subscribers, before.serverText, before.reportedTo
		if !before.refused || before.text != f.text {
			asked = ts.faultSubscribers(f)
		}
	}
	n.fault = f
	asked = append(asked, ts.addFaultSubscribers(name, r, f)...)
	ts.forgetUnused(name, n)
	if len(asked) > 0 {
		ts.addEvent(Event{Kind: Refused, Name: name, Resource: n.res, Err: err, Asked: asked})
	}
}

// addFaultSubscribers adds the wanted names that find a refused resource to its fault, and ends their
// timeouts. It returns the new ones that are subscribed.
func (ts *typeState) addFaultSubscribers(name string, r *xds.Resource, f *fault) (added []string) {
	ts.eachFinder(name, r, func(s string, n *nameState) bool {
		if isWanted(n) && !ts.faultReaches(s, f) {
			f.subscribers = append(f.subscribers, s)
			if s != name && s != xds.Wildcard {
				ts.refused.add(s, name)
			}
			added = append(added, onlySubscribed(s, n)...)
		}
		if n.res == nil && len(ts.held[s]) == 0 {
			ts.stopTimer(n)
			n.missing = notReported
		}
		return true
	})
	return added
}

// reportKnownFault adds the event for a new subscription to a name whose resource is refused.
func (ts *typeState) reportKnownFault(name string, n *nameState) {
	f := n.fault
	if !f.isRefusal() || ts.faultReaches(name, f) {
		return
	}
	f.subscribers = append(f.subscribers, name)
	ts.addEvent(Event{Kind: f.kind(), Name: name, Resource: n.res, Err: f.err, Asked: []string{name}})
}

// repeatFault adds a second event after a Removed event: the newest state of the resource is still
// refused.
func (ts *typeState) repeatFault(name string, n *nameState, asked []string) {
	if len(asked) > 0 {
		ts.addEvent(Event{Kind: n.fault.kind(), Name: name, Err: n.fault.err, Asked: asked})
	}
}

// setServerError records an error that the server reports, and adds an event, but only once. If the
// resource was dropped because of the error, the caller passes the names that get the event (asked).
// Otherwise all names get it that find the resource, and all names that got the Refused event.
func (ts *typeState) setServerError(name string, n *nameState, asked []string, err error) {
	f := &fault{err: err, text: err.Error(), serverText: err.Error(), at: ts.client.now}
	before := n.fault
	if before != nil {
		if asked == nil && !before.refused && before.text == f.text {
			return
		}
		f.resource, f.subscribers = before.resource, before.subscribers
		if before.serverText == f.serverText {
			f.reportedTo = before.reportedTo
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
	ts.addEvent(Event{Kind: Errored, Name: name, Resource: n.res, Asked: asked, Err: err})
}

// endFault ends the fault of a name. Names that got the Refused event of this fault get an Absent
// event now, unless they find one of the resources in reported, for which another event was added.
func (ts *typeState) endFault(name string, n *nameState, why error, reported ...*xds.Resource) {
	f := n.fault
	n.fault = nil
	if f == nil {
		return
	}
	informed := ts.finderNames(name, reported)
	var asked []string
	for _, s := range f.subscribers {
		ts.refused.remove(s, name)
		n := ts.names[s]
		ts.markMissing(s, n)
		if n.subscribed && !informed[s] {
			asked = append(asked, s)
		}
	}
	ts.reportRefusedGone(name, asked, why)
}

// finderNames returns the names that find one of the resources, which all have the same name. Some
// of the resources may be nil.
func (ts *typeState) finderNames(name string, resources []*xds.Resource) map[string]bool {
	names := map[string]bool{}
	for _, r := range resources {
		if r == nil {
			continue
		}
		names[xds.Wildcard], names[name] = true, true
		for s := range ts.otherNames(name, r) {
			names[s] = true
		}
	}
	return names
}

// reportRefusedGone adds an Absent event for a refused resource that is gone.
func (ts *typeState) reportRefusedGone(name string, asked []string, why error) {
	if len(asked) == 0 {
		return
	}
	var stays *xds.Resource // a resource that the name still finds
	others := ts.held.names(name)
	if len(others) > 0 {
		stays = ts.names[others[0]].res
	}
	ts.addEvent(Event{Kind: Absent, Name: name, Resource: stays, Asked: asked, Err: why})
}

// endReports records that the name s no longer finds the refused resource x.
func (ts *typeState) endReports(s, x string) {
	n := ts.names[x]
	if n == nil || n.fault == nil {
		return
	}
	n.fault.subscribers, n.fault.reportedTo = without(n.fault.subscribers, s), without(n.fault.reportedTo, s)
	ts.refused.remove(s, x)
}

// onlySubscribed returns a list with the name if it is subscribed, and otherwise an empty list.
func onlySubscribed(name string, n *nameState) []string {
	if !n.subscribed {
		return []string{}
	}
	return []string{name}
}

// without returns a copy of the list without some names.
func without(list []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(names, s) })
}
