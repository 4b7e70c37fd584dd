package client

import (
	"context"

	"github.com/chancery-xds/chancery/xds"
)

// A Transport reaches one management server. Its streams can be gRPC, REST polls or files: the
// client sends requests and receives responses in the same way. A Transport is safe for concurrent
// use. Without streams, it closes its connection after a short time. The type of a Transport must
// be comparable, as a pointer is, because the client compares servers.
//
// A client closes its transports, so two clients must not share one.
type Transport interface {
	// Open starts a stream for one type, or for all types (ADS) if only is nil. Open may return
	// before the server is reached; then Recv returns the error. The stream ends with ctx.
	Open(ctx context.Context, only *xds.Type) (Stream, error)

	// Variant returns the protocol variant of the streams.
	Variant() xds.Variant

	// Aggregated reports whether one stream serves all types. If not, Open needs a type.
	Aggregated() bool

	// String returns the server's URI for logs, metrics and status, such as
	// "xds://127.0.0.1:18000". The URI contains no secrets.
	String() string

	// Close ends open streams and frees resources that streams share.
	Close() error
}

// A Stream is one stream to a server. One goroutine may send while another receives.
type Stream interface {
	// Send sends a request. While the server does not read, Send may block until the stream's
	// context ends. An error means that the stream has ended; Recv returns the reason.
	Send(*xds.Request) error

	// Recv waits for the next response. The caller may keep the response, but must not change it. After
	// an error the stream has ended; io.EOF means that the server ended it without an error. Recv never
	// returns nil and no error.
	Recv() (*xds.Response, error)
}
