// Package xdstest tests a management server of your own by clients in memory: a connection to a
// [server.Server], and clients that subscribe, acknowledge and refuse as Envoy and gRPC do, over
// SotW or delta, on the aggregated stream or that of a single type.
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
// What is not as expected fails the test at once, with the conversation so far. Nothing waits
// longer than the timeout ([WithTimeout]). In a bubble of testing/synctest all of it costs no time.
//
// The client knows messages by the numbers of their fields, so that tests link none of Envoy's
// generated code but what they bring. It decides nothing by itself: it sends what it is told to,
// and what it holds is what it acknowledged. To test a client, or to see how a real one behaves,
// take a real one.
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

// T is what this package needs of a test; *testing.T and *testing.B are one. Fatalf must not return.
type T interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

// Serve serves s in memory until the test ends, and returns a connection to it. The grpc.Server
// has [server.GRPCOptions], and opts after them, such as interceptors. A server that cannot be
// registered, such as nil, fails the test.
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

// An Option changes a client from its defaults. A nil one changes nothing.
type Option func(*options)

type options struct {
	node    xds.Node
	only    *xds.Type
	timeout time.Duration
	quiet   time.Duration
}

// WithNode sets what the client says of itself, with its first request; by default that its id is
// "xdstest". Its ID and Cluster are what servers usually choose by.
func WithNode(n xds.Node) Option { return func(o *options) { o.node = n } }

// WithType opens the stream of the service that a type has for itself. By default, and of nil, the
// stream is the aggregated one (ADS). It fails the test if the type has no such service.
func WithType(t *xds.Type) Option { return func(o *options) { o.only = t } }

// WithTimeout sets how long the client waits for what is expected; 10 s by default.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithQuiet sets how long [Client.ExpectNothing] listens; 100 ms by default.
func WithQuiet(d time.Duration) Option { return func(o *options) { o.quiet = d } }

// SotW opens a stream of the state-of-the-world variant, which ends with the test at the latest.
func SotW(t T, conn grpc.ClientConnInterface, opts ...Option) *Client {
	t.Helper()
	return open(t, conn, xds.SotW, opts)
}

// Delta opens a stream of the incremental variant, which ends with the test at the latest.
func Delta(t T, conn grpc.ClientConnInterface, opts ...Option) *Client {
	t.Helper()
	return open(t, conn, xds.Delta, opts)
}
