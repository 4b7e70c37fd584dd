package protocol

import (
	"iter"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// ClientStatus is how a name stands, as the client status discovery service says it.
type ClientStatus uint8

const (
	Requested     ClientStatus = iota // nothing was heard of it
	DoesNotExist                      // the server says so, or sent nothing in time
	Accepted                          // ACKED: the newest is in use, or what it finds is
	Rejected                          // NACKED: the newest is refused, or all that it finds is
	ReceivedError                     // RECEIVED_ERROR: the server reports an error
	Overdue                           // TIMEOUT: nothing came in time; with ClientOptions.Transient
)

var clientStatuses = [...]string{"requested", "does not exist", "acked", "nacked", "received error", "timeout"}

func (s ClientStatus) String() string { return clientStatuses[s] }

// A ClientState is what a client knows of one name.
type ClientState struct {
	Name   string
	Status ClientStatus

	Resource *xds.Resource // in use; nil: none, or found by an alias or a collection
	Version  string        // of that, as the server told it: SotW: version_info
	Updated  time.Time     // when it changed

	Err     error     // Rejected, ReceivedError: why
	Refused string    // Rejected: the version
	Failed  time.Time // when
}

// wrong is the fault of a name, or of what it finds if it finds nothing else; nil: none.
func (n *clientName) wrong(w *clientType, name string) *fault {
	if n.fault == nil && n.res == nil && len(w.found[name]) == 0 && len(w.spoiled[name]) > 0 {
		return w.names[w.spoils(name)[0]].fault
	}
	return n.fault
}

func (n *clientName) status(w *clientType, name string) ClientStatus {
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

func (n *clientName) state(w *clientType, name string) ClientState {
	s := ClientState{Name: name, Status: n.status(w, name), Resource: n.res}
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

// State returns what is known of a name. Of one that is neither asked for nor held that is
// nothing: [Requested].
func (c *Client) State(t *xds.Type, name string) ClientState {
	name = xds.CanonicalName(name)
	if w := c.find(t); w != nil && w.names[name] != nil {
		return w.names[name].state(w, name)
	}
	return ClientState{Name: name}
}

// States yields what is known of the names of a type that are subscribed to, held, or refused,
// except "*", in no particular order.
func (c *Client) States(t *xds.Type) iter.Seq[ClientState] {
	return func(yield func(ClientState) bool) {
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

// Types returns the types of which something was asked for, in push order.
func (c *Client) Types() (types []*xds.Type) {
	for _, w := range c.types {
		types = append(types, w.typ)
	}
	return types
}

// Wants returns the names subscribed to, sorted. The list must not be changed.
func (c *Client) Wants(t *xds.Type) []string {
	if w := c.find(t); w != nil {
		return w.asking()
	}
	return nil
}

// Held yields the resources held, in no particular order.
func (c *Client) Held(t *xds.Type) iter.Seq[*xds.Resource] {
	return c.Found(t, xds.Wildcard)
}

// Found yields the resources held that a name finds: one called so, with delta those that have
// it as an alias or belong to the collection of that name, or all for "*". It costs nothing to
// ask for a name that finds only the one called so.
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

// Lookup returns the resource held that a name finds, or nil: the one called so, or else the
// first that it finds in another way.
func (c *Client) Lookup(t *xds.Type, name string) *xds.Resource {
	for r := range c.Found(t, name) {
		return r
	}
	return nil
}

// Version returns the last version_info that was accepted and still holds;
// SotW only.
func (c *Client) Version(t *xds.Type) string {
	if w := c.find(t); w != nil {
		return w.version
	}
	return ""
}
