package client

import (
	"iter"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// A Status is the state of a name, as in the client status discovery service (CSDS).
type Status uint8

const (
	Requested     Status = iota // nothing was received
	DoesNotExist                // the server reported that, or sent nothing in time
	Accepted                    // ACKED: the newest state is in use, or the name finds other resources
	Rejected                    // NACKED: the newest state is refused, or all resources that the name finds are refused
	ReceivedError               // RECEIVED_ERROR: the server reports an error
	Overdue                     // TIMEOUT: nothing was received in time; with Options.Transient
)

var statuses = [...]string{"requested", "does not exist", "acked", "nacked", "received error", "timeout"}

func (s Status) String() string { return statuses[s] }

// A State is the state of one name at a client.
type State struct {
	Name   string
	Status Status

	Resource *xds.Resource // the resource in use under this name; nil: none, even if an alias or a collection finds others
	Version  string        // version of that resource; SotW: version_info of the response with it
	Updated  time.Time     // when the resource changed

	Err     error     // Rejected, ReceivedError: the reason
	Refused string    // Rejected: the refused version
	Failed  time.Time // time of the error
}

// shownFault returns the fault of a name. If all resources that the name finds are refused, it returns
// the fault of the first one. Nil: no fault.
func (ts *typeState) shownFault(name string, n *nameState) *fault {
	if n.fault == nil && n.res == nil && len(ts.held[name]) == 0 && len(ts.refused[name]) > 0 {
		return ts.names[ts.refused.names(name)[0]].fault
	}
	return n.fault
}

func (ts *typeState) status(name string, n *nameState) Status {
	f := ts.shownFault(name, n)
	switch {
	case f != nil && f.refused:
		return Rejected
	case f != nil:
		return ReceivedError
	case n.res != nil || len(ts.held[name]) > 0:
		return Accepted
	case n.missing == nonexistent:
		return DoesNotExist
	case n.missing == timedOut:
		return Overdue
	}
	return Requested
}

func (ts *typeState) state(name string, n *nameState) State {
	s := State{Name: name, Status: ts.status(name, n), Resource: n.res}
	if n.res != nil {
		s.Version, s.Updated = n.version, n.changedAt.time()
		if ts.delta {
			s.Version = n.res.Version
		}
	}
	f := ts.shownFault(name, n)
	if f != nil {
		s.Err, s.Refused, s.Failed = f.err, f.version, f.at
	}
	return s
}

// State returns the state of a name. A name without subscription or resource is [Requested].
func (c *Client) State(t *xds.Type, name string) State {
	name = xds.CanonicalName(name)
	ts := c.findType(t)
	if ts == nil || ts.names[name] == nil {
		return State{Name: name}
	}
	return ts.state(name, ts.names[name])
}

// States yields the states of the names of a type that are subscribed, held, or refused, except
// "*", in no particular order.
func (c *Client) States(t *xds.Type) iter.Seq[State] {
	return func(yield func(State) bool) {
		ts := c.findType(t)
		if ts == nil {
			return
		}
		for name, n := range ts.names {
			if name != xds.Wildcard && !yield(ts.state(name, n)) {
				return
			}
		}
	}
}

// Types returns the types that were ever subscribed to, in push order.
func (c *Client) Types() (types []*xds.Type) {
	for _, ts := range c.types {
		types = append(types, ts.typ)
	}
	return types
}

// Wants returns the subscribed names, sorted. The list must not be changed.
func (c *Client) Wants(t *xds.Type) []string {
	ts := c.findType(t)
	if ts == nil {
		return nil
	}
	return ts.subscribedNames()
}

// Held yields all resources of a type that the client holds, in no particular order.
func (c *Client) Held(t *xds.Type) iter.Seq[*xds.Resource] {
	return c.Found(t, xds.Wildcard)
}

// Found yields the held resources that a name finds. These are the resource with that name and,
// with delta, the resources that have the name as an alias or belong to the collection with that
// name. "*" finds all resources. For a name that finds only its own resource, the cost is one
// lookup.
func (c *Client) Found(t *xds.Type, name string) iter.Seq[*xds.Resource] {
	return func(yield func(*xds.Resource) bool) {
		ts := c.findType(t)
		if ts == nil {
			return
		}
		if name == xds.Wildcard {
			ts.eachHeld(yield)
			return
		}
		name := xds.CanonicalName(name)
		n := ts.names[name]
		if n != nil && n.res != nil && !yield(n.res) {
			return
		}
		for _, s := range ts.held.names(name) {
			if !yield(ts.names[s].res) {
				return
			}
		}
	}
}

func (ts *typeState) eachHeld(yield func(*xds.Resource) bool) {
	for _, n := range ts.names {
		if n.res != nil && !yield(n.res) {
			return
		}
	}
}

// Lookup returns the held resource with a name. If no such resource is held, it returns the first
// resource that the name finds as an alias or a collection; nil: none.
func (c *Client) Lookup(t *xds.Type, name string) *xds.Resource {
	for r := range c.Found(t, name) {
		return r
	}
	return nil
}

// Version returns the last accepted version_info of a type (SotW only). It is empty if no version
// is valid any more.
func (c *Client) Version(t *xds.Type) string {
	ts := c.findType(t)
	if ts == nil {
		return ""
	}
	return ts.version
}
