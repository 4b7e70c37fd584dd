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

// wrong returns the fault of a name. If all resources that the name finds are refused, it returns
// the fault of the first one. Nil: no fault.
func (n *nameState) wrong(w *typeState, name string) *fault {
	if n.fault == nil && n.res == nil && len(w.found[name]) == 0 && len(w.spoiled[name]) > 0 {
		return w.names[w.spoils(name)[0]].fault
	}
	return n.fault
}

func (n *nameState) status(w *typeState, name string) Status {
	f := n.wrong(w, name)
	switch {
	case f != nil && f.refused:
		return Rejected
	case f != nil:
		return ReceivedError
	case n.res != nil || len(w.found[name]) > 0:
		return Accepted
	case n.gone == absence:
		return DoesNotExist
	case n.gone == overdue:
		return Overdue
	}
	return Requested
}

func (n *nameState) state(w *typeState, name string) State {
	s := State{Name: name, Status: n.status(w, name), Resource: n.res}
	if n.res != nil {
		s.Version, s.Updated = n.version, n.since.time()
		if w.delta {
			s.Version = n.res.Version
		}
	}
	if f := n.wrong(w, name); f != nil {
		s.Err, s.Refused, s.Failed = f.err, f.version, f.at
	}
	return s
}

// State returns the state of a name. A name without subscription or resource is [Requested].
func (c *Client) State(t *xds.Type, name string) State {
	name = xds.CanonicalName(name)
	if w := c.find(t); w != nil && w.names[name] != nil {
		return w.names[name].state(w, name)
	}
	return State{Name: name}
}

// States yields the states of the names of a type that are subscribed, held, or refused, except
// "*", in no particular order.
func (c *Client) States(t *xds.Type) iter.Seq[State] {
	return func(yield func(State) bool) {
		w := c.find(t)
		if w == nil {
			return
		}
		for name, n := range w.names {
			if name != xds.Wildcard && !yield(n.state(w, name)) {
				return
			}
		}
	}
}

// Types returns the types that were ever subscribed to, in push order.
func (c *Client) Types() (types []*xds.Type) {
	for _, w := range c.types {
		types = append(types, w.typ)
	}
	return types
}

// Wants returns the subscribed names, sorted. The list must not be changed.
func (c *Client) Wants(t *xds.Type) []string {
	if w := c.find(t); w != nil {
		return w.asking()
	}
	return nil
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
		w := c.find(t)
		if w == nil {
			return
		}
		if name == xds.Wildcard {
			for _, n := range w.names {
				if n.res != nil && !yield(n.res) {
					return
				}
			}
			return
		}
		name := xds.CanonicalName(name)
		if n := w.names[name]; n != nil && n.res != nil && !yield(n.res) {
			return
		}
		for _, s := range w.finding(name) {
			if !yield(w.names[s].res) {
				return
			}
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
	if w := c.find(t); w != nil {
		return w.version
	}
	return ""
}
