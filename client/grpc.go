package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/chancery-xds/chancery/xds"
)

// GRPCOptions are the options of [GRPC].
type GRPCOptions struct {
	// Credentials protect the connection. They are required. For a connection without protection, use
	// insecure.NewCredentials().
	Credentials credentials.TransportCredentials

	// CallCredentials are sent with each stream, for example a token. Nil: none.
	CallCredentials credentials.PerRPCCredentials

	// Delta selects the delta (incremental) variant. The default is SotW.
	Delta bool

	// PerType opens one stream per type, to the type's own service. The default is one ADS stream for
	// all types.
	PerType bool

	// MaxMessage is the largest accepted response in bytes. Zero: 256 MiB. A larger response ends the
	// stream.
	MaxMessage int

	// Limit limits the memory of a decoded response: its size, 512 bytes for each resource, removed name
	// and error, and 64 bytes for each alias. The client refuses a larger response (NACK), and the
	// resources in use stay. Its Hint is also for MaxMessage.
	Limit xds.MemoryLimit

	// Keepalive is the time without a response after which the client sends a ping. The server must
	// answer the ping within 20 s. Zero: 5 min, the shortest time that servers accept by default.
	// Values below 10 s are raised to 10 s.
	Keepalive time.Duration

	// WriteTimeout is how long a request may wait because the server does not read. Then the stream
	// ends. Zero: 20 s.
	WriteTimeout time.Duration

	// ResourceName returns the name of a resource from its encoded message, or "" if the message
	// has no name. The client calls it for types that are not in the table of types
	// ([xds.Type.Known]). Nil: in SotW the client refuses such resources, because it does not know
	// their names.
	ResourceName func(t *xds.Type, body []byte) string

	// DialOptions are more options of gRPC. They override the options above.
	DialOptions []grpc.DialOption
}

const (
	defaultMaxMessage   = 256 << 20
	defaultKeepalive    = 5 * time.Minute
	keepaliveTimeout    = 20 * time.Second
	defaultWriteTimeout = 20 * time.Second

	// maxHeaders limits the headers and the trailer of a stream, in bytes. The trailer has the server's
	// error text.
	maxHeaders = 256 << 10

	// idleTimeout is how long a connection without a stream stays open for the next stream.
	idleTimeout = 10 * time.Second

	// maxConnectBackoff is the longest wait between two attempts to connect. Until the server is
	// reached, streams fail at once. The client decides when to open the next stream.
	maxConnectBackoff = 5 * time.Second
)

// GRPC returns a transport that reaches a server over gRPC. The target is "host:port",
// "xds://host:port", or a target of gRPC such as "dns:///host:port" or "unix:path". GRPC does not
// resolve the name and does not connect. The first stream does both.
//
// The streams return a [*StatusError], unless the stream's context has ended.
func GRPC(target string, o GRPCOptions) (Transport, error) {
	if o.Credentials == nil {
		return nil, fmt.Errorf("server %q: credentials are missing; use insecure.NewCredentials() for a connection without protection", target)
	}
	t := &grpcTransport{options: o, variant: xds.SotW, uri: target}
	target = strings.TrimPrefix(target, "xds://")
	if !strings.Contains(target, "://") && !strings.HasPrefix(target, "unix:") && !strings.HasPrefix(target, "unix-abstract:") {
		t.uri = "xds://" + target
	}
	if o.Delta {
		t.variant = xds.Delta
	}
	t.options.MaxMessage = cmp.Or(o.MaxMessage, defaultMaxMessage)
	t.options.WriteTimeout = cmp.Or(o.WriteTimeout, defaultWriteTimeout)
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(&pacedCredentials{TransportCredentials: o.Credentials}),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDisableServiceConfig(), // a service config in DNS is for clients of another service
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxConnectBackoff},
			MinConnectTimeout: 20 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cmp.Or(o.Keepalive, defaultKeepalive), Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(t.options.MaxMessage)),
	}
	if o.CallCredentials != nil {
		dial = append(dial, grpc.WithPerRPCCredentials(o.CallCredentials))
	}
	var err error
	t.conn, err = grpc.NewClient(target, append(dial, o.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", target, err)
	}
	return t, nil
}

// A grpcTransport is a connection to one server.
type grpcTransport struct {
	options GRPCOptions
	variant xds.Variant
	uri     string
	conn    *grpc.ClientConn
	closed  atomic.Bool

	answered atomic.Bool // the server has sent a response on any stream
}

func (t *grpcTransport) Variant() xds.Variant { return t.variant }
func (t *grpcTransport) Aggregated() bool     { return !t.options.PerType }
func (t *grpcTransport) String() string       { return t.uri }

func (t *grpcTransport) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	return t.conn.Close() // also ends all streams
}

var errTransportClosed = errors.New("the transport is closed")

func (t *grpcTransport) Open(ctx context.Context, only *xds.Type) (Stream, error) {
	method, err := t.method(only)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.uri, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &grpcStream{transport: t, only: only, method: method, ctx: ctx, cancel: cancel}
	s.stream, err = t.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return nil, s.end(err)
	}
	return s, nil
}

// ads has the methods of ADS, which carry all types.
var ads = xds.Type{Service: "envoy.service.discovery.v3.AggregatedDiscoveryService", Stream: "StreamAggregatedResources", Delta: "DeltaAggregatedResources"}

// method returns the gRPC method of a stream: "/service/method".
func (t *grpcTransport) method(only *xds.Type) (string, error) {
	row := only
	switch {
	case t.options.PerType && only == nil:
		return "", errors.New("a stream per type needs a type")
	case t.options.PerType:
	case only != nil:
		return "", fmt.Errorf("a stream of ADS carries all types, not only %s", only)
	default:
		row = &ads
	}
	method := row.Stream
	if t.variant == xds.Delta {
		method = row.Delta
	}
	if row.Service == "" || method == "" {
		return "", fmt.Errorf("%s does not have its own service with a %s stream", row, t.variant)
	}
	return "/" + row.Service + "/" + method, nil
}
