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
)

// An Event tells a watch one step of a resource. Of several steps that a slow watch has not
// taken, it gets the last.
type Event struct {
	Kind     Kind
	Name     string        // as it was watched; with a wildcard: the resource's
	Resource *xds.Resource // Updated, Refused, Stale
	Err      error         // Refused, Stale, Unavailable; never nil then
	Server   string        // who said it: Transport.String; "disk": from the last run
}
