package names

import "github.com/chancery-xds/chancery/xds"

// A State is the answer of the client to the last response with a name. An entry stores it, and these
// events change it:
//
//	event                                      state                   by
//	the entry is added                         as without an entry     add
//	told without a response                    held, if it was untold  Had, Tell
//	a response has the name                    in flight               Sent
//	ACK of the newest response with the name   held                    Acked, rowsAnswered
//	NACK of that response                      refused                 rowsAnswered
//	NACK of a later full state                 refused                 rowsAnswered
//	the response is forgotten (SAFE-1)         as before the response  rowsForgotten
//	a removal that SotW cannot report          held or refused         rowSent
//	a refusal of an earlier stream (ADS-9)     refused                 adoptRefused
//	the client unsubscribes under a wildcard   held or in flight       dropUnwanted, letGoAll
//
// No state is stored for a name without an entry: the wildcard covers it, and its state follows from
// the table that was told, the deliveries and the refusals (answer in answer.go).
//
// Invariant: the state of an entry that is not untold is the result of answer.
type State uint8

// The states of an entry.
const (
	Untold   State = iota // no response had the name, on this stream or an earlier one
	InFlight              // the client has not answered the last response with the name
	Held                  // the client has accepted the told state, or was told it without a response
	Refused               // the client has refused a state, and has accepted no newer one
)

func (s State) String() string { return [...]string{"untold", "in flight", "held", "refused"}[s] }

// StateOf returns the state of a new entry with a told state.
func StateOf(told *xds.Stamp) State {
	if told == Absent {
		return Untold
	}
	return Held
}

// Tell records that the client is told this state now, and clears the field Again.
func (e *Entry) Tell(is *xds.Stamp) {
	e.Had(is)
	e.Again = false
}

// Had records that the client was told this state earlier. It does not clear the field Again.
func (e *Entry) Had(is *xds.Stamp) {
	e.Told = is
	if e.State == Untold {
		e.State = Held
	}
}

// Sent records that a response with the told state is in flight.
func (e *Entry) Sent() { e.State = InFlight }

// Acked records that the client has accepted the told state.
func (e *Entry) Acked() { e.Settle(Held) }

// Settle sets the state of a name that was told.
func (e *Entry) Settle(is State) {
	if e.State != Untold {
		e.State = is
	}
}
