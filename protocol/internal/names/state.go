package names

import (
	"cmp"

	"github.com/chancery-xds/chancery/xds"
)

// A State is the answer of the client to the last response with a name. An entry stores the nonce of this
// response, and the state is a comparison: in flight while the response is unanswered; refused if a refusal
// has the name and the response is not a later one; otherwise held. These events change the nonce:
//
//	event                                      nonce                       by
//	the entry is added                         of the newest unanswered    trace
//	                                           response with the name
//	told without a response                    Earlier, if it was 0        Had, Tell
//	a response has the name                    of the response             Tell
//	a removal that SotW cannot report          Earlier, if it was 0        Tell
//	the client unsubscribes under a wildcard   as for a new entry          trace
//
// A name without an entry has no nonce: the wildcard covers it, and its last response is searched for
// (unanswered in told.go).
//
// Invariant: the search finds the same state for a name with an entry.
type State uint8

// The states of a name.
const (
	Held     State = iota // the client has accepted the told state, or was told it without a response
	InFlight              // the client has not answered the last response with the name
	Refused               // the client has refused a state, and has accepted no newer one
)

func (s State) String() string { return [...]string{"held", "in flight", "refused"}[s] }

// Earlier stands for the nonce of a state that the client has from an earlier stream, or without a response.
const Earlier = ^uint64(0)

// Untold reports whether no response had the name, on this stream or an earlier one.
func (e *Entry) Untold() bool { return e.Nonce == 0 }

// Tell records that the client is told this state now, by the response with a nonce, or without a
// response (0). It clears the field Again.
func (e *Entry) Tell(is *xds.Stamp, nonce uint64) {
	e.Told, e.Again, e.Nonce = is, false, cmp.Or(nonce, e.Nonce, Earlier)
}

// Had records that the client was told this state earlier. It does not clear the field Again.
func (e *Entry) Had(is *xds.Stamp) { e.Told, e.Nonce = is, cmp.Or(e.Nonce, Earlier) }

// Sent records the newest response with the name.
func (e *Entry) Sent(nonce uint64) { e.Nonce = nonce }
