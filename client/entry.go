package client

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// An entry is what is known of one name of a table: one that is watched, or that a watched
// wildcard or collection finds.
type entry struct {
	name    string
	watches *[]*watch // that name it; shared, so never changed: see join and leave; nil: none
	finder  bool      // it is a wildcard or a collection

	state    State
	last     Kind          // of the last event; zero: there was none
	found    bool          // a wildcard or a collection has found res
	unproven bool          // res is from the last run, and no server has said anything of the name
	res      *xds.Resource // in use
	said     *said         // in what it came; else what was heard last
	updated  int64         // when res came, in ns since 1970; 0: there is none

	fault  *fault  // what is wrong with the server's newest word; nil: nothing
	outage *outage // that its watches were told of; nil: none
}

// A said is what all names of a response have in common. It is immutable.
type said struct {
	server  string
	version string // empty: each resource has its own
}

// watching are the watches that name the entry.
func (e *entry) watching() []*watch {
	if e.watches == nil {
		return nil
	}
	return *e.watches
}

// join adds a watch. Mostly there is one, and then all that it names have the same list.
func (e *entry) join(w *watch) {
	if e.watches == nil {
		e.watches = &w.alone
		return
	}
	list := append(slices.Clip(*e.watches), w)
	e.watches = &list
}

// leave takes a watch away.
func (e *entry) leave(w *watch) {
	list := slices.DeleteFunc(slices.Clone(e.watching()), func(o *watch) bool { return o == w })
	switch len(list) {
	case 0:
		e.watches = nil
	case 1:
		e.watches = &list[0].alone
	default:
		e.watches = &list
	}
}

// server is who sent what is in use; else who was asked last.
func (e *entry) server() string {
	if e.said == nil {
		return ""
	}
	return e.said.server
}

// A fault is why the newest that a server said cannot be used.
type fault struct {
	of      string // the resource: the name may be an alias of it
	kind    Kind   // Refused, Stale, Unavailable
	err     error
	version string
	at      time.Time
	server  string
}

// An outage is that a server cannot be reached.
type outage struct {
	server string
	err    error
}

// event is how the name stands. Kind 0: nothing is known.
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
	case e.finder && e.state == Acked:
		ev.Kind = Complete
	}
	return ev
}

// missing reports whether a server still owes the first word of a name that is watched.
func (e *entry) missing() bool {
	return e.watches != nil && e.state == Requested && (e.res == nil || e.unproven)
}

// idle reports whether nobody needs to know anything of the name.
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
	case e.finder:
		return uncounted // it is no resource
	case e.state == Nacked && e.res != nil:
		return gaugeNackedButCached
	case e.state == Nacked:
		return gaugeNacked
	case e.state == Requested && (e.res == nil || e.unproven):
		return gaugeRequested
	case e.res != nil:
		return gaugeAcked
	}
	return gaugeDoesNotExist
}

// alike reports whether whoever watches would see no difference. The version is none: two
// servers may give one content different versions.
func alike(a, b *xds.Resource) bool {
	return a == b || a != nil && b != nil && bytes.Equal(a.Body, b.Body) && slices.Equal(a.Aliases, b.Aliases)
}

// finds reports whether a name of a type is one that finds others.
func finds(name string) bool { return name == xds.Wildcard || xds.IsCollection(name) }

// authorityOf returns the authority of an xdstp name, and whether the name is one: "a" of
// "xdstp://a/type/id".
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
