package client

import "github.com/chancery-xds/chancery/xds"

// Kind says what became of a name that is watched.
type Kind uint8

const (
	// Updated: the resource is new, or has changed.
	Updated Kind = iota + 1
	// Removed: the server removed the resource, or its TTL ended.
	Removed
	// Absent: the resource does not exist: the server said so, or gave none in time.
	Absent
	// Refused: what the server sent cannot be used, Err says why. Resource is the last one
	// that can, which stays in use; nil: there is none.
	Refused
	// Stale: Resource stays in use and may be out of date, Err says why: the server cannot
	// be reached, or reports an error for the resource.
	Stale
	// Unavailable is Stale without a resource to use.
	Unavailable
	// Complete: the server has answered for a wildcard or a collection, which is Name, and all
	// that it sent was told. What a delta server sends in several responses may go on.
	Complete
)

var kinds = [...]string{"unknown", "updated", "removed", "absent", "refused", "stale", "unavailable", "complete"}

// String returns the kind in lower case.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return kinds[0]
}

// An Event tells a watch one step of a name. Each is a state: the last event of a name says
// how it stands. Of several steps that a slow watch has not taken, it gets the last; before a
// Refused or Stale it gets an Updated with the resource in use, if it does not have that yet.
//
// What is told is told of names. Of a wildcard or a collection itself there is Complete, Absent
// if the server does not answer, and Stale or Unavailable while it cannot be reached.
type Event struct {
	Kind     Kind
	Name     string        // as it was watched; of what a wildcard or collection finds: the resource's
	Resource *xds.Resource // Updated; Refused, Stale: what is in use, nil if nothing is
	Err      error         // Refused, Stale, Unavailable; never nil then
	Server   string        // who said it: Transport.String; "disk": from the last run
}
