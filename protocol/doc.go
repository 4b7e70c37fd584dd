// Package protocol is the xDS transport protocol as a pair of pure state
// machines: Session is the server's half of one stream, Client the client's.
// Requests, changes and time go in; responses and events come out. Nothing
// here starts a goroutine, takes a lock, reads a clock or performs I/O.
//
// What a node may see is an immutable [xds.View]; what its client was told is
// held. A response is the difference of the two. What is remembered besides
// are the responses in flight, what the client refused, and what is about to
// leave.
package protocol
