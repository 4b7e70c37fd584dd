package client

import "github.com/chancery-xds/chancery/xds"

// Kind is the state of a watched name that an [Event] reports.
type Kind uint8

const (
	// Updated: the resource is new or has changed.
	Updated Kind = iota + 1
	// Removed: the server removed the resource, or its TTL ended.
	Removed
	// Absent: the resource does not exist. The server reported this, or sent nothing in time.
	Absent
	// Refused: the resource that the server sent cannot be used; Err is the reason. Resource is the
	// last usable one and stays in use; nil if there is none.
	Refused
	// Stale: Resource stays in use and may be out of date; Err is the reason. The server cannot be
	// reached, or it reports an error for the resource.
	Stale
	// Unavailable: as Stale, but without a resource in use.
	Unavailable
	// Complete: the server has answered for a wildcard or a collection (Name is "*" or the name of the
	// collection), and events for all its resources came before. A delta server may send more of them
	// in later responses.
	Complete
)

var kinds = [...]string{"unknown", "updated", "removed", "absent", "refused", "stale", "unavailable", "complete"}

// String returns the kind in lower case, such as "updated".
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return kinds[0]
}

// An Event reports the state of one name to a watch. The last event of a name describes its present
// state. If several events of a name wait for a slow watch, it receives only the last one. Exception:
// before Refused or Stale, the watch first receives an Updated event with the resource in use, unless
// it already has that resource.
//
// Events are about single resources. A wildcard or a collection itself has these events: Complete;
// Absent if the server does not answer; Stale or Unavailable while the server cannot be reached.
type Event struct {
	Kind     Kind
	Name     string        // the name as it was watched; under a wildcard or a collection, the name of the resource
	Resource *xds.Resource // with Updated; with Refused and Stale the resource in use, if any
	Err      error         // never nil with Refused, Stale and Unavailable; else nil
	Server   string        // the source: Transport.String, or "disk" for a resource stored by the previous run
}
