package client

import (
	"context"

	"github.com/chancery-xds/chancery/xds"
)

// A Transport reaches one management server. Streams of any spelling, polls over REST and
// files are the same to the client: requests go out, responses come in. It is safe for
// concurrent use. While it has no stream it holds no connection, or not for long. Servers are told
// apart by their transports among others, so it must be comparable, as a pointer is.
//
// A client closes its transports, so two clients must not have the same one.
type Transport interface {
	// Open begins a stream. Only is its type; nil: the stream is aggregated (ADS). Open may
	// return before the server is reached: Recv then says what went wrong. The stream ends
	// with ctx.
	Open(ctx context.Context, only *xds.Type) (Stream, error)

	// Variant is what its streams speak.
	Variant() xds.Variant

	// Aggregated reports whether one stream carries all types. If it does not, Open wants a
	// type.
	Aggregated() bool

	// String is the server's URI, for logs, metrics and status: "xds://127.0.0.1:18000". It
	// names no secret.
	String() string

	// Close frees what the streams shared. Streams that are open end.
	Close() error
}

// A Stream is one conversation. One goroutine may send while another receives.
type Stream interface {
	// Send sends a request. It may block while the server reads nothing, until the stream's
	// context ends.
	Send(*xds.Request) error

	// Recv waits for the next response. What it returns may be kept and must not be changed.
	// After an error the stream is over. io.EOF: the server ended it in good order. It never
	// returns nil and no error.
	Recv() (*xds.Response, error)
}
