package protocol

import (
	"errors"
	"fmt"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// ErrLimit is wrapped by the errors of Receive that tell of a limit, which are each an
// [xds.LimitError]; all others tell of a malformed request.
var ErrLimit = errors.New("limit exceeded")

// exceeds returns the error of a request that is beyond a limit.
func exceeds(limit xds.Limit, format string, args ...any) error {
	return &xds.LimitError{Limit: limit, Err: fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))}
}

// An Interest is a change of what a stream subscribes to of one type.
type Interest struct {
	Type     *xds.Type
	Wildcard bool // after the change
	Added    []string
	Removed  []string
}

// EventKind says what happened on a stream.
type EventKind uint8

const (
	Opened     EventKind = iota // the first request of a type came
	Subscribed                  // the subscription changed; Count is its number of names
	Sent                        // a response left
	Acked
	Nacked
	Stale    // a request answered none of the responses in flight
	Departed // a lingering resource was withdrawn
	Waived   // a deadline ended a wait: Departed follows, or a response leaves
)

var kinds = [...]string{"opened", "subscribed", "sent", "acked", "nacked", "stale", "departed", "waived"}

func (k EventKind) String() string { return kinds[k] }

// An Event tells one step of a stream's conversation.
type Event struct {
	Kind     EventKind
	Type     *xds.Type
	Nonce    string
	Version  string        // of the response; Opened: what the client states; Departed: of the resource
	Count    int           // Sent: resources; Subscribed: names; Opened: resources that the client says it has (delta)
	Removed  int           // Sent: names that are told not to exist
	Beats    int           // Sent: heartbeats
	Bytes    int           // Sent: about how large the response is
	Error    *xds.Status   // Nacked
	Names    []string      // Nacked: at most 5 of the response, first those that the client's text names
	Name     string        // Departed: the resource; Waived: the one that waited
	By       *xds.Type     // Waived: the type that the client did not answer
	World    *World        // Sent, SotW: what the client has when it accepts the response
	Took     time.Duration // Acked, Nacked: since it was sent
	Settled  bool          // Acked, Nacked: the response was the newest of its type
	Refuses  bool          // Acked, Nacked, Subscribed: there is something that the client has refused, wants, and has not taken since
	InUse    string        // Nacked: the version the client says it still uses
	Wildcard bool          // Subscribed
}
