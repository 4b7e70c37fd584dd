package client

import (
	"maps"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A nameState is the state of one name of a type. Each subscribed name has a nameState, and so
// has each name that the server still counts as subscribed, each resource held, and some refused
// resources. Terms: see doc.go.
type nameState struct {
	subscribed bool // by the application
	requested  bool // the server knows that the name is subscribed

	unknownToServer bool          // the server does not know that the resource is held
	doubted         bool          // the application may not be able to use the resource held: see Client.Doubt
	onlyRefused     bool          // kept only because of the fault
	missing         missingReason // why the name finds nothing
	place           int32         // index in typeState.rows, if the last response had the name
	timer           int32         // index in Client.timers plus 1, of the TTL if a resource is held, else of the timeout; 0: no timer
	round           uint64        // the last response with the name, and how often it has the name: see intake.timesSeen
	res             *xds.Resource // held under this name; nil: none
	version         string        // SotW: version_info of the response with res
	fault           *fault        // why the newest state from the server cannot be used; nil: it can be used
	changedAt       moment        // when res changed
}

// A moment is a time in ns since 1970; 0: no time. Its size is a third of that of time.Time.
type moment int64

func momentOf(t time.Time) moment {
	if t.IsZero() {
		return 0
	}
	return moment(t.UnixNano())
}

func (m moment) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(m))
}

// A missingReason is the reason why a name finds nothing.
type missingReason uint8

const (
	notReported missingReason = iota // the server sent nothing about the name
	nonexistent                      // the name does not exist
	timedOut                         // timeout; with Options.Transient
)

// maxOnlyRefused limits the refused resources of a type that the client remembers without a
// subscription to their own names. A server could send any number of bad resources.
const maxOnlyRefused = 1000

// ensure returns the state of a name, and creates it if needed.
func (ts *typeState) ensure(name string) *nameState {
	n := ts.names[name]
	if n == nil {
		n = &nameState{}
		ts.names[name] = n
		if name == xds.Wildcard {
			ts.wildcard = n
		}
	}
	return n
}

// forgetUnused forgets a name if nothing has to be recorded for it any more.
func (ts *typeState) forgetUnused(name string, n *nameState) {
	unused := !isWanted(n) && n.res == nil
	ts.countOnlyRefused(n, unused && n.fault != nil && len(n.fault.subscribers) > 0)
	if !unused || n.onlyRefused {
		return
	}
	if n.fault != nil {
		for _, s := range n.fault.subscribers {
			ts.refused.remove(s, name)
		}
	}
	delete(ts.names, name)
	if name == xds.Wildcard {
		ts.wildcard = nil
	}
}

// countOnlyRefused sets the field onlyRefused of a name, at most for maxOnlyRefused names.
func (ts *typeState) countOnlyRefused(n *nameState, is bool) {
	switch {
	case n.onlyRefused && !is:
		n.onlyRefused = false
		ts.onlyRefused--
	case is && !n.onlyRefused && ts.onlyRefused < maxOnlyRefused:
		n.onlyRefused = true
		ts.onlyRefused++
	}
}

// hasResource reports whether the client holds or has refused a resource with this name. If the next
// full state lacks the name, the resource is removed (CLI-3).
func (n *nameState) hasResource() bool {
	return n.res != nil || n.fault != nil && n.fault.resource != ""
}

// missedBy reports whether the full state with the number round lacks the name.
func (n *nameState) missedBy(round uint64) bool { return n.round < round && n.hasResource() }

// resourceName returns the name of a nameState for which hasResource is true (SotW).
func (n *nameState) resourceName() string {
	if n.res != nil {
		return xds.CanonicalName(n.res.Name)
	}
	return n.fault.resource
}

// holds reports whether a resource with the name of r is held; n may be nil.
func (n *nameState) holds(r *xds.Resource) bool {
	return n != nil && n.res != nil && (n.res == r || n.res.Name == r.Name)
}

// markRequested records that the requests now agree with the subscription to a name.
func (ts *typeState) markRequested(name string, n *nameState) {
	n.requested = n.subscribed
	delete(ts.unsent, name)
}

// dropUnwanted drops a name that is no longer subscribed, and the resources that only this name found
// (CLI-7). Without its requester, a resource has no use.
func (ts *typeState) dropUnwanted(name string) {
	found := append(ts.refused.names(name), ts.held.names(name)...)
	if name == xds.Wildcard {
		ts.rows, ts.rowsComplete = nil, false
		found = slices.Collect(maps.Keys(ts.names))
	}
	for _, s := range append(found, name) {
		ts.endReports(name, s)
		ts.dropUncovered(s)
	}
}

// dropUncovered drops the resource and the state of a name, if no wanted name finds them.
func (ts *typeState) dropUncovered(name string) {
	n := ts.names[name]
	if n == nil {
		return
	}
	if n.res != nil && !ts.covers(name, n.res, isWanted, "") {
		ts.removeFromIndex(name, n.res)
		ts.setHeld(n, nil)
	}
	if n.res == nil && !isWanted(n) {
		ts.stopTimer(n)
		n.missing = notReported
	}
	ts.forgetUnused(name, n)
}
