package client

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// An entry is the state of one name in a table. Either the name is watched, or a watched wildcard
// or collection (glob) matches the name.
type entry struct {
	name    string
	watches *[]*watch // the watches of this name; nil: none; entries may share the list, so it is copied on change
	glob    bool      // the name is a wildcard or a collection

	state       State
	last        Kind          // kind of the last event; zero: none yet
	viaGlob     bool          // res came through a wildcard or a collection
	unconfirmed bool          // res is from the previous run, and no server has sent an update for the name yet
	res         *xds.Resource // in use
	origin      *origin       // source of res; without res, source of the last update
	updated     int64         // when res arrived, in ns since 1970; 0: no res

	fault  *fault  // why the server's newest update cannot be used; nil: it can
	outage *outage // the outage that the watches know about; nil: none
}

// An origin is the server and version that all names of a response share. It is immutable.
type origin struct {
	server  string
	version string // empty: each resource has its own version
}

// watching returns the watches of the name.
func (e *entry) watching() []*watch {
	if e.watches == nil {
		return nil
	}
	return *e.watches
}

// addWatch adds a watch. Most names have one watch; then all entries of that watch share one list.
func (e *entry) addWatch(w *watch) {
	if e.watches == nil {
		e.watches = &w.self
		return
	}
	list := append(slices.Clip(*e.watches), w)
	e.watches = &list
}

// removeWatch removes a watch.
func (e *entry) removeWatch(w *watch) {
	list := slices.DeleteFunc(slices.Clone(e.watching()), func(o *watch) bool { return o == w })
	switch len(list) {
	case 0:
		e.watches = nil
	case 1:
		e.watches = &list[0].self
	default:
		e.watches = &list
	}
}

// server returns the server that sent the resource in use. If no resource is in use, it returns the
// server of the last update.
func (e *entry) server() string {
	if e.origin == nil {
		return ""
	}
	return e.origin.server
}

// A fault is the reason why the newest update from a server cannot be used.
type fault struct {
	of      string // name of the resource; the name of the entry may be an alias of it
	kind    Kind   // Refused, Stale, Unavailable
	err     error
	version string
	at      time.Time
	server  string
}

// An outage means that a server cannot be reached.
type outage struct {
	server string
	err    error
}

// event returns the present state as an event. The Kind of the event is 0 if no state is known yet.
// The parameter holds reports whether the entry has a resource, or, for a glob, whether any
// matching entry has one.
func (e *entry) event(holds bool) Event {
	ev := Event{Name: e.name, Resource: e.res, Server: e.server()}
	switch {
	case e.outage != nil:
		ev.Kind, ev.Err, ev.Server = Unavailable, e.outage.err, e.outage.server
		if holds {
			ev.Kind = Stale
		}
	case e.fault != nil:
		ev.Kind, ev.Err, ev.Server = e.fault.kind, e.fault.err, e.fault.server
	case e.res != nil:
		ev.Kind = Updated
	case e.state == DoesNotExist, e.state == TimedOut:
		ev.Kind = Absent
	case e.glob && e.state == Acked:
		ev.Kind = Complete
	}
	return ev
}

// missing reports whether a watched name still waits for its first update from a server.
func (e *entry) missing() bool {
	return e.watches != nil && e.state == Requested && (e.res == nil || e.unconfirmed)
}

// idle reports whether the entry can be forgotten, because it is not watched and does not have a
// resource for a watched glob. The parameter found reports whether a watched glob matches the name.
func (e *entry) idle(found bool) bool {
	return e.watches == nil && (!found || e.res == nil)
}

// A gauge is a cache state of gRFC A78.
type gauge uint8

const (
	uncounted gauge = iota
	gaugeRequested
	gaugeDoesNotExist
	gaugeAcked
	gaugeNacked
	gaugeNackedButCached
	gauges
)

var gaugeNames = [gauges]string{"", "requested", "does_not_exist", "acked", "nacked", "nacked_but_cached"}

func (e *entry) gauge() gauge {
	switch {
	case e.glob:
		return uncounted // not a resource
	case e.state == Nacked && e.res != nil:
		return gaugeNackedButCached
	case e.state == Nacked:
		return gaugeNacked
	case e.state == Requested && (e.res == nil || e.unconfirmed):
		return gaugeRequested
	case e.res != nil:
		return gaugeAcked
	}
	return gaugeDoesNotExist
}

// sameContent reports whether a watch sees no difference between two resources. It ignores versions:
// two servers may give equal content different versions.
func sameContent(a, b *xds.Resource) bool {
	return a == b || a != nil && b != nil && bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// isGlob reports whether a name matches other names: it is the wildcard or a collection.
func isGlob(name string) bool { return name == xds.Wildcard || xds.IsCollection(name) }

// authorityOf returns the authority of an xdstp name, such as "a" of "xdstp://a/type/id". It also
// reports whether the name is an xdstp name.
func authorityOf(name string) (authority string, xdstp bool) {
	rest, ok := strings.CutPrefix(name, "xdstp://")
	if !ok {
		return "", false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return rest, true
}
