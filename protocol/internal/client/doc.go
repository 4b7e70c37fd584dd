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
//	requests, and the versions that a resume states  ask.go
//	the meaning of a response, and its answer        take.go
//	the limit of the memory of resources             budget.go
//	changes of a name, and their events              hold.go
//	which names find a resource, when it is dropped  names.go
//	timers                                           time.go
//	the text of a NACK                               text.go
//
// A client states a version_info only if it holds all resources of this version, for the names of
// the stream's first request. The cost of a delta response is its own size, not the number of
// resources held. The client remembers nothing of a response for names without a subscription.
//
// Tests check the invariants after each step of each simulation (Check in check_test.go).
package client
