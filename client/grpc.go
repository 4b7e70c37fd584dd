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

// GRPCOptions of [GRPC].
type GRPCOptions struct {
	// Credentials protect the connection. They must be set: insecure.NewCredentials() says that
	// nothing does.
	Credentials credentials.TransportCredentials

	// Call credentials go with each stream, such as a token. Nil: none.
	Call credentials.PerRPCCredentials

	// Delta speaks the incremental protocol, else state of the world.
	Delta bool

	// PerType has a stream for each type, of its service; else one of ADS carries all.
	PerType bool

	// MaxMessage is the largest response in bytes. Zero: 256 MiB. A larger one ends its stream.
	MaxMessage int

	// Keepalive is after how long without a response the server is asked whether it is there;
	// it has 20 s to answer. Zero: 5 min, which is the least that servers take if nobody told
	// them otherwise. Less than 10 s is 10 s.
	Keepalive time.Duration

	// Unread is how long a server may read nothing while a request waits to be sent. Then its
	// stream ends. Zero: 20 s.
	Unread time.Duration

	// Name returns the name that is in a resource's message, "" if there is none, for types
	// that the table does not list ([xds.Type.Known]). Nil: over SotW these have no names, and
	// are refused.
	Name func(t *xds.Type, body []byte) string

	// Dial are options more, which override those above.
	Dial []grpc.DialOption
}

const (
	defaultMaxMessage = 256 << 20
	defaultKeepalive  = 5 * time.Minute
	keepaliveTimeout  = 20 * time.Second
	defaultUnread     = 20 * time.Second

	// idle is how long a connection without a stream is kept: a stream that begins at once
	// after another has it.
	idle = 10 * time.Second

	// retry is the longest wait between two attempts to connect. While nobody can be reached,
	// streams fail at once; when they are tried again is the client's business.
	retry = 5 * time.Second
)

// GRPC returns a transport that reaches a server over gRPC. Target is "host:port", with "xds://"
// before it or not, or a target of gRPC such as "dns:///host:port" or "unix:path". Nothing is
// resolved and nobody is connected to until a stream is opened.
//
// The errors of its streams are a [*StatusError], unless the stream's context has ended.
func GRPC(target string, o GRPCOptions) (Transport, error) {
	if o.Credentials == nil {
		return nil, fmt.Errorf("server %q: credentials are missing; insecure.NewCredentials() says that the connection is not protected", target)
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
	t.options.Unread = cmp.Or(o.Unread, defaultUnread)
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(o.Credentials),
		grpc.WithDisableServiceConfig(), // that of the name is for clients of another service
		grpc.WithIdleTimeout(idle),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retry},
			MinConnectTimeout: 20 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cmp.Or(o.Keepalive, defaultKeepalive), Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(t.options.MaxMessage)),
	}
	if o.Call != nil {
		dial = append(dial, grpc.WithPerRPCCredentials(o.Call))
	}
	var err error
	if t.conn, err = grpc.NewClient(target, append(dial, o.Dial...)...); err != nil {
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

	answered atomic.Bool // once
}

func (t *grpcTransport) Variant() xds.Variant { return t.variant }
func (t *grpcTransport) Aggregated() bool     { return !t.options.PerType }
func (t *grpcTransport) String() string       { return t.uri }

func (t *grpcTransport) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	return t.conn.Close() // which ends its streams
}

var errClosed = errors.New("the transport is closed")

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

// ads are the methods of all types.
var ads = xds.Type{Service: "envoy.service.discovery.v3.AggregatedDiscoveryService", Stream: "StreamAggregatedResources", Delta: "DeltaAggregatedResources"}

// method returns the method of a stream: "/service/method".
func (t *grpcTransport) method(only *xds.Type) (string, error) {
	row := only
	switch {
	case t.options.PerType && only == nil:
		return "", errors.New("a stream of its own needs a type")
	case t.options.PerType:
	case only != nil:
		return "", fmt.Errorf("a stream of ADS carries all types, and not %s alone", only)
	default:
		row = &ads
	}
	method := row.Stream
	if t.variant == xds.Delta {
		method = row.Delta
	}
	if row.Service == "" || method == "" {
		return "", fmt.Errorf("%s has no service of its own with a stream of %s", row, t.variant)
	}
	return "/" + row.Service + "/" + method, nil
}
