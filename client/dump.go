package client

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A State is how a client stands with a resource, as CSDS tells it
// (envoy.admin.v3.ClientResourceStatus has the same numbers).
type State uint8

const (
	Requested     State = iota + 1 // asked for, and not answered yet
	DoesNotExist                   // the server said so, or removed it
	Acked                          // Resource is the server's newest
	Nacked                         // the server's newest cannot be used: Err
	ReceivedError                  // the server reported an error: Err
	TimedOut                       // no answer in time
)

var states = [...]string{"unknown", "requested", "does_not_exist", "acked", "nacked", "received_error", "timeout"}

// String returns the state's name in CSDS in lower case: "does_not_exist".
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return states[0]
}

// A Status is how the client stands with one name.
type Status struct {
	Server   string // that was asked: Transport.String; "disk": from the last run
	Type     *xds.Type
	Name     string
	State    State
	Resource *xds.Resource // what is in use; nil: nothing
	Version  string        // of Resource: its own, or in SotW that of the response; empty: not known
	Updated  time.Time     // when Resource came; zero: there is none

	// Of what cannot be used, or of an error that the server reported.
	Err        error
	ErrVersion string // the version that was refused; empty: not known
	ErrAt      time.Time
}

// Dump returns how the client stands with all names that are watched, and all that a watched
// wildcard has, in push order of their types and by name. It is empty when the client is closed.
func (c *Client) Dump() (list []Status) {
	c.wait(func() { list = c.dump() })
	return list
}

// A ServerStatus is how a client stands with a server of which something is watched.
type ServerStatus struct {
	Server    string    // Transport.String
	Connected bool      // a stream is open on which the server has answered; of per-type streams any
	Since     time.Time // when the newest of these began, or the last one ended; zero: there was none
	Err       error     // why a stream could not be had or has ended last; nil: none ever did
	ErrAt     time.Time
}

// Servers returns how the client stands with the servers of which something is watched, by name.
func (c *Client) Servers() (list []ServerStatus) {
	c.wait(func() {
		for _, u := range c.upstreams {
			s := ServerStatus{Server: u.uri}
			for _, l := range u.links {
				if on := l.s != nil && l.s.answered; on && !s.Connected || on == s.Connected && l.turned.After(s.Since) {
					s.Connected, s.Since = on, l.turned
				}
				if l.failedAt.After(s.ErrAt) {
					s.Err, s.ErrAt = l.failed, l.failedAt
				}
			}
			list = append(list, s)
		}
	})
	slices.SortFunc(list, func(a, b ServerStatus) int { return strings.Compare(a.Server, b.Server) })
	return list
}

func (c *Client) dump() (list []Status) {
	for _, a := range c.authorities {
		for _, t := range a.tables {
			for _, e := range t.entries {
				if !e.finder {
					list = append(list, e.status(t.typ, a.charged().Transport.String()))
				}
			}
			list = append(list, c.unusable(a, t)...)
		}
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), strings.Compare(a.Type.URL, b.Type.URL), strings.Compare(a.Name, b.Name))
	})
	return list
}

// unusable are the names that a watched wildcard or collection finds, of which there is nothing but
// that they cannot be used.
func (c *Client) unusable(a *authority, t *table) (list []Status) {
	u := c.upstreams[a.charged()]
	if len(t.finders) == 0 || u.link(t.typ) == nil {
		return nil
	}
	for s := range u.link(t.typ).core.States(t.typ) {
		if s.Status == protocol.Rejected && s.Resource == nil && t.entries[s.Name] == nil && t.found(s.Name) {
			list = append(list, Status{Server: u.uri, Type: t.typ, Name: s.Name, State: Nacked, Err: s.Err, ErrVersion: s.Refused, ErrAt: s.Failed})
		}
	}
	return list
}

func (e *entry) status(t *xds.Type, asked string) Status {
	s := Status{Server: cmp.Or(e.server(), asked), Type: t, Name: e.name, State: e.state, Resource: e.res}
	if e.res != nil {
		s.Version = cmp.Or(e.said.version, e.res.Version)
	}
	if e.updated != 0 {
		s.Updated = time.Unix(0, e.updated)
	}
	if e.fault != nil {
		s.Err, s.ErrVersion, s.ErrAt = e.fault.err, e.fault.version, e.fault.at
	}
	return s
}
