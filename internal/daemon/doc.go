// Package daemon is the server behind the command serve. It turns flags into a [Config], makes the
// parts of the server, and starts and stops them.
//
//	Command   declares the flags of serve
//	Config    holds the flags and checks them
//	build     makes the parts; nothing runs yet (build.go lists its side effects)
//	parts     lists the parts in the order of their start
//	run       starts the parts, waits for a signal, stops the parts in the reverse order
//
// The parts, in the order of their start:
//
//  1. metrics and health: probes get an answer while files are loaded
//  2. first load: of a directory, a store of revisions, or another xDS server
//  3. registered endpoints (--endpoints)
//  4. listeners of xDS, REST-JSON and the admin API: they are open and serve nothing yet
//  5. updates of the source, of the access rules and of the keys of tokens
//  6. quarantine of refused resources, shedding of surplus streams
//  7. streams: clients and operators get answers
//
// After a signal the server reports that it is not ready, sends GOAWAY, and closes the streams one by
// one. After the last stream the listeners close. Then the context of all other parts ends.
package daemon
