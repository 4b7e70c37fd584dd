package protocol

import (
	"iter"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// API SKETCH; the implementation is being written.

// Options of a session. The zero value is ready to use.
type Options struct {
	// MaxTypes is how many resource types one stream may open; 64 if zero.
	MaxTypes int
	// MaxNames is how many names of one type a stream may subscribe to; 100,000 if zero.
	MaxNames int
	// MaxNameLen is the longest accepted resource name in bytes; 4,096 if zero.
	MaxNameLen int
	// MaxResponse is the size in bytes above which a delta answer, or a SotW
	// answer of a type without full state, is split; 3 MiB if zero.
	MaxResponse int
	// Refused lists the types of which this node has refused a response and
	// accepted none since (on an earlier stream): SOTW-18.
	Refused func(*xds.Type) bool
}

type Session struct{}

// NewSession returns the session of a stream that serves view. If only is
// non-nil, the stream carries that type alone (a per-type service).
func NewSession(v xds.Variant, only *xds.Type, view xds.View, opts Options) *Session { return nil }

// Advance tells the session what time it is. Call it before each other input.
func (s *Session) Advance(now time.Time) {}

// Receive applies a request. An error ends the stream; errors.Is(err, ErrLimit)
// tells limits (RESOURCE_EXHAUSTED) from malformed requests (INVALID_ARGUMENT).
func (s *Session) Receive(req xds.Request) error { return nil }

// Change replaces the view. touched lists what may differ since the last view
// in one or several steps; nil: anything may.
func (s *Session) Change(view xds.View, touched []xds.Names) {}

// Responses yields the responses that are due, in make-before-break order.
func (s *Session) Responses() iter.Seq[*xds.Response] { return nil }

// Deadline is when Advance is wanted next (then look at Responses again); zero: never.
func (s *Session) Deadline() time.Time { return time.Time{} }

// Interests yields how the subscriptions have moved since it was last called.
func (s *Session) Interests() iter.Seq[Interest] { return nil }

// Events yields what happened since it was last called.
func (s *Session) Events() iter.Seq[Event] { return nil }

// An Interest is a change of what a stream subscribes to of one type.
type Interest struct {
	Type     *xds.Type
	Wildcard bool // after the change
	Added    []string
	Removed  []string
}

type EventKind uint8

const (
	Opened     EventKind = iota // first request of a type
	Subscribed                  // the subscription changed; Names is its new size
	Sent                        // a response left
	Acked
	Nacked
	Stale    // a request with a nonce that is not the newest
	Departed // a lingering resource was withdrawn
	Waived   // a deadline ended a wait
)

type Event struct {
	Kind     EventKind
	Type     *xds.Type
	Nonce    string
	Version  string
	Count    int           // Sent: resources; Subscribed: names
	Removed  int           // Sent
	Error    *xds.Status   // Nacked
	Name     string        // Departed, Waived: the resource
	Took     time.Duration // Acked, Nacked: since it was sent
	Settled  bool          // Acked, Nacked: the response was the newest of its type
	InUse    string        // Nacked: the version the client says it still uses
}
