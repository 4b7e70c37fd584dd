package protocol

import (
	"iter"
	"strconv"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// An Interest is a change of a stream's subscription to one type.
type Interest struct {
	Type     *xds.Type
	Wildcard bool // after the change
	Added    []string
	Removed  []string
}

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	Opened     EventKind = iota // the first request of a type was received
	Subscribed                  // the subscription changed; Count is the number of names in it
	Sent                        // a response was sent
	Acked                       // a response was accepted
	Nacked                      // a response was refused
	Stale                       // a request answered none of the responses in flight
	Departed                    // the removal of a kept resource was sent to the client
	Waived                      // a wait for a silent client has ended: a removal (Departed) or a response follows
	Recovered                   // the client no longer refuses a resource of the type (HEAL-5): it accepted the resource, or the resource reverted or went
)

var kinds = [...]string{"opened", "subscribed", "sent", "acked", "nacked", "stale", "departed", "waived", "recovered"}

func (k EventKind) String() string { return kinds[k] }

// An Event reports one step of a stream: a request, an answer, or a response.
type Event struct {
	Kind     EventKind
	Type     *xds.Type
	Nonce    string
	Version  string        // version of the response; Opened: the version that the client states; Departed: version of the resource; Recovered: version of the view
	Count    int           // Sent: resources; Nacked: resources in the refused response; Subscribed: names; Opened: resources stated by the client (delta)
	Removed  int           // Sent: names reported as missing or removed
	Beats    int           // Sent: heartbeats
	Bytes    int           // Sent: approximate size of the response
	Error    *xds.Status   // Nacked
	Names    []string      // Nacked: at most 5 names of the response; names in the client's error text come first
	Name     string        // Departed: the removed resource; Waived: the name that waited
	By       *xds.Type     // Waived: the type for whose answers the name waited
	World    *World        // Sent, SotW: what the client may hold once it accepts the response
	Took     time.Duration // Acked, Nacked: time since the response was sent; Recovered: time since the first NACK
	Settled  bool          // Acked, Nacked: the response was the newest of its type; Recovered: the client has accepted such a response after its last NACK
	Refuses  bool          // Acked, Nacked: the client wants a resource that it has refused, and has not accepted a newer state of this resource. A Nacked with Refuses begins a refusal; Recovered ends it
	Withheld bool          // Acked: it refuses only resources that the view withholds ([Options.Withholds])
	Retry    bool          // Sent, Acked, Nacked: the response had content that the client had refused before
	Repeated bool          // Nacked: the client has refused the same content with the same text before
	InUse    string        // Nacked: the version that the client states as still in use
	Wildcard bool          // Subscribed
	Accepted Acceptance    // Acked; valid until the next input
}

// An Acceptance has the states that a client has accepted.
type Acceptance struct {
	// All has everything that the wildcard of the subscription matches, if the client has accepted all of
	// it. Nil: there is no wildcard, or the client has not accepted everything yet.
	All *xds.Versions

	items []item
	in    *part
}

// Len is at least the number of states that Each yields.
func (a Acceptance) Len() int { return len(a.items) }

// Ends returns the first and the last state by name, which may be nil.
func (a Acceptance) Ends() (first, last *xds.Stamp) {
	if len(a.items) == 0 {
		return nil, nil
	}
	return a.items[0].Is, a.items[len(a.items)-1].Is
}

// Each yields the states of the names in the message, by name. It omits those that the client gets by a
// wildcard.
func (a Acceptance) Each(yield func(*xds.Stamp) bool) {
	for i := range a.items {
		if is := a.items[i].Is; stands(is) && a.in.within(a.items[i].Name, is) && !yield(is) {
			return
		}
	}
}

// ParseNonce returns the number of a nonce of a session. The result is 0 if no session can have sent the nonce:
// nonces begin with 1.
func ParseNonce(nonce string) uint64 {
	n, err := strconv.ParseUint(nonce, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func nonceOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// Interests yields the changes of the subscriptions since the last call.
func (s *Session) Interests() iter.Seq[Interest] {
	return func(yield func(Interest) bool) {
		for _, u := range s.subs {
			if u.moved && !yield(u.interest()) {
				return
			}
		}
	}
}

// Events yields the events since the last call.
func (s *Session) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		events := s.events
		// All steps have about the same number of events, except the first step, which has more.
		s.events = s.events[:0]
		if cap(events) > manyEvents || cap(events) > 2*len(events) {
			s.events = nil
		}
		for i := range events {
			e := events[i]
			events[i] = Event{} // do not keep the memory of a yielded event
			if !yield(e) {
				return
			}
		}
	}
}

// manyEvents limits the number of events whose memory is reused.
const manyEvents = 64
