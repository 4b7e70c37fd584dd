package client

import (
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Config says which servers a client asks, and how. Package client/bootstrap makes one of the
// bootstrap files of gRPC and Envoy, and of a ConfigSource.
type Config struct {
	// Node is who the client is. The user agent is "chancery" if it is empty, and the client
	// features xds.config.resource-in-sotw and xds.config.supports-resource-ttl are added.
	Node *xds.Node

	// Servers of names that have no authority, the preferred one first. The others are asked
	// only while a better one cannot be reached and a watched resource is missing (gRFC A71).
	//
	// Servers that are equal are one server and share its streams. A transport may be of several
	// that differ in the rest: these have streams of their own.
	Servers []Server

	// Authorities have servers of their own, by the authority of an xdstp name (gRFC A47). One
	// without servers has Servers.
	Authorities map[string]Authority

	// Check says whether the client can use a resource; nil: any. The NACK says its error.
	// It is called by one goroutine at a time, on which the client waits: it must not call the
	// client, whose answer would never come.
	Check func(*xds.Resource) error

	// Timeout is how long a server has to send a resource that it was asked for, before it is
	// taken to be absent. Zero: 15 s, as the document says; negative: for ever.
	Timeout time.Duration

	// Dir keeps the last good resources on disk, for a start without a server: it is a
	// directory of this client alone, made for this user alone, since there may be secrets in
	// it. Empty: none.
	Dir string

	// Log gets what an operator would want to know. Nil: nothing is logged.
	Log *slog.Logger

	// Metrics is told what gRFC A78 counts. It must not call the client, as Check must not. Nil:
	// nobody is told.
	Metrics Metrics
}

// An Authority is a name space of its own.
type Authority struct {
	Servers []Server
}

// A Server is one management server, and what is known of it.
type Server struct {
	Transport Transport

	// IgnoreDeletion keeps a resource that the server removes (gRFC A53).
	IgnoreDeletion bool

	// FailOnDataErrors gives up a resource when the server reports an error or an absence, even
	// if there is a good one (gRFC A88). It wins over IgnoreDeletion.
	FailOnDataErrors bool

	// TimerIsTransient takes a resource that did not come in time, 30 s then, for unavailable
	// and not for absent (gRFC A88).
	TimerIsTransient bool

	// Trusted allows what only a trusted server may ask for; the client passes it on to whoever
	// asks (gRFC A81).
	Trusted bool
}

// Metrics is told what gRFC A78 counts. Its methods are called by one goroutine at a time and
// must not block, nor call the client. Types are told as their URL without "type.googleapis.com/".
type Metrics interface {
	// ResourceUpdates counts resources of a response: grpc.xds_client.resource_updates_valid
	// and resource_updates_invalid.
	ResourceUpdates(server, typ string, valid, invalid int)
	// ServerFailure counts: grpc.xds_client.server_failure.
	ServerFailure(server string)
	// Connected is a gauge: grpc.xds_client.connected.
	Connected(server string, connected bool)
	// Resources is a gauge: grpc.xds_client.resources, by authority ("#old" for names that are
	// no xdstp names) and cache state: "requested", "does_not_exist", "acked", "nacked",
	// "nacked_but_cached".
	Resources(authority, cacheState, typ string, n int)
}
