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

// A fault is the reason why the newest state of a name cannot be used.
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

// maxOnlyRefused limits the refused resources of a type that the client remembers without a subscription
// to their own names. A server could send any number of bad resources.
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
	onlyRefused := unused && n.fault != nil && len(n.fault.subscribers) > 0
	switch {
	case n.onlyRefused && !onlyRefused:
		n.onlyRefused = false
		ts.onlyRefused--
	case onlyRefused && !n.onlyRefused && ts.onlyRefused < maxOnlyRefused:
		n.onlyRefused = true
		ts.onlyRefused++
	}
	if unused && !n.onlyRefused {
		if n.fault != nil {
			for _, s := range n.fault.subscribers {
				ts.removeRefused(s, name)
			}
		}
		delete(ts.names, name)
		if name == xds.Wildcard {
			ts.wildcard = nil
		}
	}
}

// hasResource reports whether the client holds or has refused a resource with this name. If the next full
// state lacks the name, the resource is removed.
func (n *nameState) hasResource() bool {
	return n.res != nil || n.fault != nil && n.fault.resource != ""
}

// missedBy reports whether the last full state lacks the name.
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

// has reports whether a name is known and the function `is` returns true for it.
func (ts *typeState) has(name string, is func(*nameState) bool) bool {
	n := ts.names[name]
	return n != nil && is(n)
}

// Filters for covers: subscribed by the application, in the requests to the server, or either.
func isSubscribed(n *nameState) bool { return n.subscribed }
func isRequested(n *nameState) bool  { return n.requested }
func isWanted(n *nameState) bool     { return n.subscribed || n.requested }

// eachFinder yields the known names that find a resource: "*", the name of the resource and, with
// delta, its aliases and its collection.
func (ts *typeState) eachFinder(name string, r *xds.Resource, yield func(string, *nameState) bool) {
	find := func(s string) bool {
		n := ts.names[s]
		return n == nil || yield(s, n)
	}
	if ts.wildcard != nil && !yield(xds.Wildcard, ts.wildcard) || !find(name) || !ts.delta {
		return
	}
	for s := range ts.otherNames(name, r) {
		if !find(s) {
			return
		}
	}
}

// otherNames yields the aliases and the collection of a resource, which also find it (CLI-12). Only
// delta has these.
func (ts *typeState) otherNames(name string, r *xds.Resource) func(func(string) bool) {
	return func(yield func(string) bool) {
		var met map[string]bool // nil: a linear search is enough for a few aliases
		if len(r.Aliases) > 8 {
			met = make(map[string]bool, len(r.Aliases))
		}
		for i, a := range r.Aliases {
			switch a = xds.CanonicalName(a); {
			case a == name || a == xds.Wildcard || met[a] || met == nil && slices.Contains(r.Aliases[:i], a):
				continue
			case met != nil:
				met[a] = true
			}
			if !yield(a) {
				return
			}
		}
		if c := ts.typ.Collection(name); c != "" {
			yield(c)
		}
	}
}

// covers reports whether any name finds a resource. Only names for which the function `is` returns
// true count, without the name `except`.
func (ts *typeState) covers(name string, r *xds.Resource, is func(*nameState) bool, except string) (covers bool) {
	ts.eachFinder(name, r, func(s string, n *nameState) bool {
		covers = is(n) && s != except
		return !covers
	})
	return covers
}

// subscribersOf returns the subscribed names that find a resource.
func (ts *typeState) subscribersOf(name string, r *xds.Resource) (list []string) {
	ts.eachFinder(name, r, func(s string, n *nameState) bool {
		switch {
		case !n.subscribed:
		case list == nil && s == xds.Wildcard:
			list = wildcardOnly
		default:
			list = append(list, s)
		}
		return true
	})
	return list
}

// wildcardOnly is shared. Its capacity is 1, so that append copies it.
var wildcardOnly = []string{xds.Wildcard}[:1:1]

// addToIndex adds a resource to held.
func (ts *typeState) addToIndex(name string, r *xds.Resource) {
	if !ts.delta {
		return
	}
	for s := range ts.otherNames(name, r) {
		put(ts.held, s, name)
	}
}

func put(m map[string]map[string]bool, s, name string) {
	if m[s] == nil {
		m[s] = map[string]bool{}
	}
	m[s][name] = true
}

func take(m map[string]map[string]bool, s, name string) {
	delete(m[s], name)
	if len(m[s]) == 0 {
		delete(m, s)
	}
}

// removeFromIndex removes a resource from held.
func (ts *typeState) removeFromIndex(name string, r *xds.Resource) {
	if !ts.delta {
		return
	}
	for s := range ts.otherNames(name, r) {
		take(ts.held, s, name)
	}
}

// addRefused records that the name s finds the refused resource with the given name.
func (ts *typeState) addRefused(s, name string) {
	if s != name && s != xds.Wildcard {
		put(ts.refused, s, name)
	}
}

// removeRefused undoes addRefused.
func (ts *typeState) removeRefused(s, name string) { take(ts.refused, s, name) }

// wasReportedTo reports whether the name s got an event of a fault, for the present or an earlier error;
// f may be nil.
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

// endReports records that the name s no longer finds the refused resource x.
func (ts *typeState) endReports(s, x string) {
	if f := ts.names[x].fault; f != nil {
		f.subscribers, f.reportedTo = without(f.subscribers, s), without(f.reportedTo, s)
		ts.removeRefused(s, x)
	}
}

// without returns a copy of the list without some names.
func without(list []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(names, s) })
}

// matchesOthers reports whether a name finds held or refused resources as an alias or a collection.
func (ts *typeState) matchesOthers(name string) bool {
	return len(ts.held[name])+len(ts.refused[name]) > 0
}

// heldNames returns the names of held resources that a name finds as an alias or a collection,
// sorted.
func (ts *typeState) heldNames(name string) []string {
	return slices.Sorted(maps.Keys(ts.held[name]))
}

// refusedNames returns the names of refused resources that a name finds as an alias or a collection,
// sorted.
func (ts *typeState) refusedNames(name string) []string {
	return slices.Sorted(maps.Keys(ts.refused[name]))
}

// markRequested records that the requests now agree with the subscription to a name.
func (ts *typeState) markRequested(name string, n *nameState) {
	n.requested = n.subscribed
	delete(ts.unsent, name)
}

// dropUnwanted drops a name that is no longer subscribed, and the resources that only this name found.
func (c *Client) dropUnwanted(ts *typeState, name string) {
	drop := func(s string) {
		n := ts.names[s]
		if n == nil {
			return
		}
		if n.res != nil && !ts.covers(s, n.res, isWanted, "") {
			ts.removeFromIndex(s, n.res)
			c.setHeld(n, nil)
		}
		if n.res == nil && !isWanted(n) {
			c.stopTimer(n)
			n.missing = notReported
		}
		ts.forgetUnused(s, n)
	}
	if name == xds.Wildcard {
		ts.rows, ts.rowsComplete = nil, false
		for s := range ts.names {
			ts.endReports(name, s)
			drop(s)
		}
	}
	for _, s := range ts.refusedNames(name) {
		ts.endReports(name, s)
		drop(s)
	}
	for _, s := range ts.heldNames(name) {
		ts.endReports(name, s)
		drop(s)
	}
	if ts.names[name] != nil {
		ts.endReports(name, name)
	}
	drop(name)
}
