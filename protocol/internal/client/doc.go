// Package client is the client side of the xDS transport protocol as a pure state machine, for SotW
// and delta, across reconnects. Package protocol has its public names: [Client] is protocol.Client.
// The package starts no goroutine, takes no lock, reads no clock and performs no I/O.
//
// # Inputs and outputs
//
// Inputs are [Client.Subscribe], [Client.Connected], [Client.Receive] and [Client.Advance], which
// comes first. After each input, drain [Client.Events] and [Client.Requests].
//
// # The state of a name
//
// A nameState has all that the client knows of a name (names.go):
//
//	subscribed  by the application
//	requested   the server knows that the client subscribes to the name. If the two differ, a request
//	            is due. Each resource held is covered by a subscribed or requested name
//	res         held under this name. "*" and, with delta, an alias or a collection find it, too:
//	            typeState.held lists the resources that such a name finds
//	fault       the newest state cannot be used: it was refused, or the server reports an error. The
//	            resource held stays, except with DropOnError
//	missing     the name finds nothing: the server reported so, or sent nothing in time
//	timer       with a resource: its TTL, also without a stream. Otherwise the timeout of the request,
//	            until the server sends a state of the name or the stream ends
//
// # Where to change a rule
//
//	requests, and the versions that a resume states    request.go     CLI-4, CLI-14
//	the meaning of a response, and its ACK or NACK     receive.go     CLI-2, CLI-5, CLI-6, CLI-8
//	the text of a NACK                                 nack.go        CLI-2
//	the limit of the memory of resources               budget.go      SAFE-14
//	resources that come into use                       hold.go        CLI-2
//	removals, and errors that the server reports       remove.go      CLI-3, CLI-11
//	refused resources, and names that get their events     fault.go       CLI-2, CLI-11
//	which names find a resource                        matches.go     CLI-12
//	when a resource without a subscription is dropped  names.go       CLI-7
//	TTLs and timeouts                                  timers.go      CLI-3, CLI-8
//	the status of a name, as in CSDS                   state.go
//
// A client states a version_info only if it holds all resources of this version, for the names of
// the stream's first request. The cost of a delta response is its own size, not the number of
// resources held. The client remembers nothing of a response for names without a subscription.
//
// # Invariants
//
// Tests check the invariants after each step of each simulation (Check in check_test.go):
//
//   - typeState.unsent has the names whose subscribed and requested differ.
//   - Each resource held is found by a subscribed or requested name.
//   - A name has a nameState only if it is subscribed, requested, or held, or if a refused resource of
//     this name is found by another name. At most 1,000 names of a type have only the last reason.
//   - typeState.held and typeState.refused have no entry without a resource.
//   - A name that finds a resource is not missing. A wildcard has no timer and cannot be missing.
//   - In SotW, while rowsComplete is set, the rows have all resources held or refused.
package client
