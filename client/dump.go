package client

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A State is the state of a resource at a client, as CSDS reports it
// (envoy.admin.v3.ClientResourceStatus has the same numbers).
type State uint8

const (
	Requested     State = iota + 1 // asked for, not answered yet
	DoesNotExist                   // the server reported that the resource does not exist, or removed it
	Acked                          // Resource is the server's newest state
	Nacked                         // the server's newest state cannot be used; see Err
	ReceivedError                  // the server reported an error; see Err
	TimedOut                       // no answer in time
)

var states = [...]string{"unknown", "requested", "does_not_exist", "acked", "nacked", "received_error", "timeout"}

// String returns the state's CSDS name in lower case, such as "does_not_exist".
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return states[0]
}

// A Status is the state of one name at a client.
type Status struct {
	Server   string // the server of the resource: Transport.String; "disk" for a resource stored by the previous run
	Type     *xds.Type
	Name     string
	State    State
	Resource *xds.Resource // the resource in use; nil: none
	Version  string        // version of Resource; in SotW the version of its response; empty: unknown
	Updated  time.Time     // when Resource arrived; zero: no resource

	// About a resource that cannot be used, or an error that the server reported.
	Err        error
	ErrVersion string // the refused version; empty: unknown
	ErrAt      time.Time
}

// Dump returns the states of all watched names and of all resources under watched wildcards and
// collections. They are sorted by push order of the type, then by name. The list is empty after Close.
func (c *Client) Dump() (list []Status) {
	c.doAndWait(func() { list = c.dump() })
	return list
}

// A ServerStatus is the state of the connection to a server whose resources are watched.
type ServerStatus struct {
	Server    string    // Transport.String
	Connected bool      // the server has answered on an open stream; with one stream per type, on any of them
	Since     time.Time // when the newest answered stream got its first answer, or when the last one ended; zero: no answer yet
	Err       error     // the error of the last failed stream; nil: no stream has failed
	ErrAt     time.Time
	Exceeded  error // the limit that its newest response of some type exceeds, so that no resource of it is used; nil: none
}

// Servers returns the states of the servers whose resources are watched, sorted by name.
func (c *Client) Servers() (list []ServerStatus) {
	c.doAndWait(func() {
		for _, u := range c.upstreams {
			s := ServerStatus{Server: u.uri}
			for _, l := range u.links {
				if on := l.s != nil && l.s.answered; on && !s.Connected || on == s.Connected && l.changedAt.After(s.Since) {
					s.Connected, s.Since = on, l.changedAt
				}
				if l.failedAt.After(s.ErrAt) {
					s.Err, s.ErrAt = l.failed, l.failedAt
				}
				s.Exceeded = cmp.Or(s.Exceeded, l.exceededLimit())
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
				if !e.glob {
					list = append(list, e.status(t.typ, a.activeServer().Transport.String()))
				}
			}
			list = append(list, c.refusedUnderGlobs(a, t)...)
		}
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), strings.Compare(a.Type.URL, b.Type.URL), strings.Compare(a.Name, b.Name))
	})
	return list
}

// refusedUnderGlobs returns the resources under watched wildcards and collections that have no entry,
// because the client has only ever refused them.
func (c *Client) refusedUnderGlobs(a *authority, t *table) (list []Status) {
	u := c.upstreams[a.activeServer()]
	if len(t.globs) == 0 || u.link(t.typ) == nil {
		return nil
	}
	for s := range u.link(t.typ).core.States(t.typ) {
		if s.Status == protocol.Rejected && s.Resource == nil && t.entries[s.Name] == nil && t.matched(s.Name) {
			list = append(list, Status{Server: u.uri, Type: t.typ, Name: s.Name, State: Nacked, Err: s.Err, ErrVersion: s.Refused, ErrAt: s.Failed})
		}
	}
	return list
}

func (e *entry) status(t *xds.Type, asked string) Status {
	s := Status{Server: cmp.Or(e.server(), asked), Type: t, Name: e.name, State: e.state, Resource: e.res}
	if e.res != nil {
		s.Version = cmp.Or(e.origin.version, e.res.Version)
	}
	if e.updated != 0 {
		s.Updated = time.Unix(0, e.updated)
	}
	if e.fault != nil {
		s.Err, s.ErrVersion, s.ErrAt = e.fault.err, e.fault.version, e.fault.at
	}
	return s
}
