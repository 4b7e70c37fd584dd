package client

import (
	"time"

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
func (c *Client) Dump() []Status { return nil }
