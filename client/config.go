package client

import (
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Config lists the servers of a client and how it uses them. Package client/bootstrap makes a Config of
// a bootstrap file of gRPC or Envoy, and of a ConfigSource.
type Config struct {
	// Node identifies the client. An empty user agent becomes "chancery". The client features
	// xds.config.resource-in-sotw and xds.config.supports-resource-ttl are added.
	Node *xds.Node

	// Servers of names without an authority, in order of preference. A later server is used only while
	// an earlier one cannot be reached and a watched resource is missing (gRFC A71).
	//
	// Equal servers are one server and share its streams. Servers with the same transport and different
	// other fields have streams of their own.
	Servers []Server

	// Authorities have their own servers. The key is the authority of an xdstp name (gRFC A47). An
	// authority without servers uses Servers.
	Authorities map[string]Authority

	// Check decides whether the client can use a resource. Its error is sent in the NACK. Nil accepts
	// all resources. Check is called by one goroutine at a time. The client waits for it, so Check must
	// not call the client: the call would never return.
	Check func(*xds.Resource) error

	// Timeout is how long the client waits for a requested resource before it reports the resource as
	// absent. Zero is 15 s, as the xDS document recommends. A negative value waits without limit.
	Timeout time.Duration

	// Dir is a directory for the last good resources, for a start without a server. Each client needs
	// its own directory. Only the client's user should have access to it, because resources may contain
	// secrets. Empty: nothing is stored.
	Dir string

	// Held limits the memory of the resources from all servers. A resource counts its texts, 3 KiB, and
	// 1 KiB for each alias. A response with more is refused as a whole, and the resources in use stay.
	Held xds.MemoryLimit

	// Log receives events for an operator. Nil: nothing is logged.
	Log *slog.Logger

	// Metrics receives the metrics of gRFC A78. It must not call the client, for the reason given at
	// Check. Nil: nothing is counted.
	Metrics Metrics
}

// An Authority lists the servers of one authority of xdstp names.
type Authority struct {
	Servers []Server
}

// A Server is one management server with its options.
type Server struct {
	Transport Transport

	// IgnoreDeletion keeps a resource in use after the server removes it (gRFC A53).
	IgnoreDeletion bool

	// FailOnDataErrors drops a good resource when the server reports an error for it or that it does
	// not exist (gRFC A88). It has precedence over IgnoreDeletion.
	FailOnDataErrors bool

	// TimerIsTransient reports a resource that did not arrive in time as unavailable, not as absent.
	// The timeout is then 30 s (gRFC A88).
	TimerIsTransient bool

	// Trusted marks a server that may use features reserved for trusted servers (gRFC A81). The client
	// itself does not use it: the program reads it.
	Trusted bool
}

// Metrics receives the metrics of gRFC A78. Its methods are called by one goroutine at a time. They
// must not block or call the client. Parameter typ is a type URL without "type.googleapis.com/".
type Metrics interface {
	// ResourceUpdates counts the resources of a response: grpc.xds_client.resource_updates_valid and
	// resource_updates_invalid.
	ResourceUpdates(server, typ string, valid, invalid int)
	// ServerFailure adds one to grpc.xds_client.server_failure.
	ServerFailure(server string)
	// Connected sets the gauge grpc.xds_client.connected.
	Connected(server string, connected bool)
	// Resources sets the gauge grpc.xds_client.resources. The authority is "#old" for names that are
	// not xdstp names. The cache state is "requested", "does_not_exist", "acked", "nacked" or
	// "nacked_but_cached".
	Resources(authority, cacheState, typ string, n int)
}
