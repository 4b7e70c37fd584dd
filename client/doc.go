// Package client is the client half of xDS for Go programs: it watches resources of any management
// server, over gRPC, REST or files, in state of the world or delta.
//
//	c, err := client.New(client.Config{Node: node, Servers: []client.Server{{Transport: t}}})
//	for ev, err := range client.Watch[*clusterv3.Cluster](ctx, c, "backend") {
//		…
//	}
//
// Nothing is connected to before something is watched. Events are states: the last event of a name
// says how it stands ([Event], [Kind]). A watch that is slow, or takes nothing, holds up nobody.
//
// One goroutine, the loop, owns all that a client knows:
//
//	Watch ──▶ mailbox ◀── table of a type, of an authority ◀── link to a server: protocol.Client ◀── receiver ◀── Stream.Recv
//	                                                                                             ──▶ sender   ──▶ Stream.Send
//
// protocol.Client has the rules of the protocol. A table (table.go, hear.go, entry.go) holds what is
// in use, whichever server it came from, and tells mailboxes (mailbox.go) what changes. An
// authority (authority.go) has the servers of its names, of which one is in charge (fallback.go).
// A link (upstream.go) has one stream at a time (stream.go) and opens the next when that is due
// (reconnect.go). A disk (disk.go) keeps the last good resources.
//
// It does not know what is in a resource, save by the check of the program and the type of typed
// watches. Package client/tree watches what a listener needs, as a whole.
package client
