// Package client is an xDS client for Go programs. It watches resources of management servers over
// gRPC, REST or files, with the SotW or the delta variant of the protocol.
//
//	c, err := client.New(client.Config{Node: node, Servers: []client.Server{{Transport: t}}})
//	for ev, err := range client.Watch[*clusterv3.Cluster](ctx, c, "backend") {
//		…
//	}
//
// The client connects to a server when the first resource of that server is watched. Each event is a
// state: the last event of a name describes its present state ([Event], [Kind]). A slow watch does
// not delay the client or other watches.
//
// One goroutine, the loop, owns the client's state:
//
//	Watch ──▶ mailbox ◀── table of a type, of an authority ◀── link to a server: protocol.Client ◀── receiver ◀── Stream.Recv
//	                                                                                             ──▶ sender   ──▶ Stream.Send
//
// The parts are:
//
//   - protocol.Client implements the rules of the protocol.
//   - A table (table.go, apply.go, entry.go) holds the resources in use, from all servers of its
//     authority. It puts changes into mailboxes (mailbox.go).
//   - An authority (authority.go) has the servers of its names. One of them is active (fallback.go).
//   - A link (upstream.go) has one stream at a time (stream.go) and schedules the next (reconnect.go).
//   - A disk (disk.go) stores the last good resources.
//
// The client does not decode resources, except in two checks: Config.Check of the program, and the
// decoding for typed watches. Package client/tree watches a listener with all resources that it refers
// to.
package client
