// Package xdstest tests your own management server with clients in memory. [Serve] connects to a
// [server.Server]. The clients subscribe, acknowledge and refuse like Envoy and gRPC, over SotW or delta, on
// the aggregated stream or on the stream of a single type.
//
//	func TestBackend(t *testing.T) {
//		st := store.New()
//		fill(st) // your program
//		c := xdstest.Delta(t, xdstest.Serve(t, server.New(st)))
//		c.Subscribe(xds.Cluster, "*")
//		r := c.Expect(xds.Cluster, "backend")
//		c.ACK(r)
//		c.ExpectNothing()
//	}
//
// An unexpected response fails the test at once and prints the conversation so far. No call waits longer
// than the timeout ([WithTimeout]). Inside a testing/synctest bubble, waiting takes no real time.
//
// The client decodes messages by field numbers, so your tests do not link the generated messages of Envoy
// unless you import them. The client decides nothing itself: the test decides what the client sends, and
// the client holds the resources that it acknowledged. It is not for testing the behaviour of real
// clients.
package xdstest

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// T is the part of a test that this package uses. *testing.T and *testing.B implement it. Fatalf must not
// return.
type T interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

// Serve serves s in memory until the test ends and returns a connection to it. The grpc.Server gets
// [server.GRPCOptions] and then opts, such as interceptors. It fails the test if s cannot be registered,
// for example because it is nil.
func Serve(t T, s *server.Server, opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	g := grpc.NewServer(append(server.GRPCOptions(), opts...)...)
	if err := s.Register(g); err != nil {
		t.Fatalf("xdstest: %v", err)
	}
	lis := bufconn.Listen(256 << 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(lis) // until Stop
	}()
	conn, err := grpc.NewClient("passthrough:///xdstest", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatalf("xdstest: %v", err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		<-ended
	})
	return conn
}

// An Option changes a default of a client. A nil Option changes nothing.
type Option func(*options)

type options struct {
	node    xds.Node
	only    *xds.Type
	timeout time.Duration
	quiet   time.Duration
}

// WithNode sets the node that the client sends with its first request. By default its ID is "xdstest". Servers
// usually choose resources by ID and Cluster.
func WithNode(n xds.Node) Option { return func(o *options) { o.node = n } }

// WithType opens the stream of the service that serves only this type. By default, or with nil, the stream
// is the aggregated one (ADS). It fails the test if the type has no such service.
func WithType(t *xds.Type) Option { return func(o *options) { o.only = t } }

// WithTimeout sets how long the client waits for an expected response. The default is 10 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithQuiet sets how long [Client.ExpectNothing] waits. The default is 100 ms.
func WithQuiet(d time.Duration) Option { return func(o *options) { o.quiet = d } }

// SotW opens a stream of the state-of-the-world variant. It ends when the test ends, or earlier.
func SotW(t T, conn grpc.ClientConnInterface, opts ...Option) *Client {
	t.Helper()
	return open(t, conn, xds.SotW, opts)
}

// Delta opens a stream of the incremental variant. It ends when the test ends, or earlier.
func Delta(t T, conn grpc.ClientConnInterface, opts ...Option) *Client {
	t.Helper()
	return open(t, conn, xds.Delta, opts)
}
