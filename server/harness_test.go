package server

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/internal/testkit/tabletest"
	"github.com/chancery-xds/chancery/xds"
)

// Tables and resources of tests.
var with, of = tabletest.With, tabletest.Of

func TestMain(m *testing.M) {
	switch { // a process of clients, started by a benchmark
	case os.Getenv("IDLE_SERVER") != "":
		idleClients()
		return
	case os.Getenv("STORM") != "":
		stormyClients()
		return
	}
	goleak.VerifyTestMain(m)
}

// A source is a simple Source: one view for all nodes, and every change signals every watch.
type source struct {
	mu      sync.Mutex
	view    xds.Tables
	watches map[*watch]bool
	nodes   []*xds.Node // of Watch
}

func newSource() *source { return &source{view: xds.Tables{}, watches: map[*watch]bool{}} }

func (s *source) set(t *xds.Type, rs ...*xds.Resource) { s.update(t, rs) }

func (s *source) update(t *xds.Type, rs []*xds.Resource, remove ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := xds.Tables{}
	maps.Insert(next, s.view.All())
	next[t.URL] = with(s.view.Table(t), of(t, rs...), remove...)
	s.view = next
	for w := range s.watches {
		select {
		case w.c <- struct{}{}:
		default:
		}
	}
}

func (s *source) Watch(_ context.Context, n *xds.Node) (*watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{source: s, c: make(chan struct{}, 1), interests: map[string][]string{}}
	s.watches[w] = true
	s.nodes = append(s.nodes, n)
	return w, nil
}

type watch struct {
	source    *source
	c         chan struct{}
	seen      xds.Tables
	interests map[string][]string
}

func (w *watch) C() <-chan struct{} { return w.c }

func (w *watch) Next() (xds.View, []xds.Names, error) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	names := []xds.Names{}
	for url, tab := range w.source.view.All() {
		if w.seen == nil || w.seen[url] != tab {
			names = nil
		}
	}
	w.seen = w.source.view
	return w.seen, names, nil
}

func (w *watch) Interested(t *xds.Type, _ bool, added, _ []string) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.interests[t.URL] = append(w.interests[t.URL], added...)
}

func (w *watch) Close() {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	delete(w.source.watches, w)
}

// A logbook keeps the lines that a server logs.
type logbook struct{ logtest.Log }

func (l *logbook) at(level slog.Level) Option {
	return WithLogger(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level})))
}

// A world is a server in memory, with its source and its log.
type world struct {
	*source
	*Server
	grpc *grpc.Server
	lis  *bufconn.Listener
	log  *logbook
}

func serve(t testing.TB, opts ...Option) *world {
	t.Helper()
	src, log := newSource(), &logbook{}
	t.Cleanup(func() { // the log names the limit, so that the operator can raise it
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "client was refused") && !strings.Contains(line, "code=InvalidArgument") && !strings.Contains(line, "code=Internal") && !strings.Contains(line, " limit=") && !strings.Contains(line, "to a Fetch method") {
				t.Error("a line does not name its limit:", line)
			}
		}
	})
	w := serveFrom(t, New(src, append([]Option{log.at(slog.LevelWarn)}, opts...)...))
	w.source, w.log = src, log
	return w
}

func serveFrom(t testing.TB, s *Server) *world {
	t.Helper()
	w := &world{Server: s, lis: bufconn.Listen(64 << 10)}
	w.grpc = grpc.NewServer(append(GRPCOptions(), grpc.WaitForHandlers(true), grpc.Creds(s.Credentials(nil)), grpc.InTapHandle(s.Tap))...)
	if err := w.Register(w.grpc); err != nil {
		t.Fatal(err)
	}
	reflection.RegisterV1(w.grpc)
	done := make(chan struct{})
	go func() { defer close(done); w.grpc.Serve(w.lis) }()
	t.Cleanup(func() { w.grpc.Stop(); <-done })
	return w
}

func (w *world) dial(t testing.TB, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///server", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.lis.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30)),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A client is the peer of one stream.
type client[Req, Res any] struct {
	t testing.TB
	s grpc.BidiStreamingClient[Req, Res]
}

type (
	sotwClient  = client[discovery.DiscoveryRequest, discovery.DiscoveryResponse]
	deltaClient = client[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]
)

func (w *world) sotw(t testing.TB, conn *grpc.ClientConn) *sotwClient {
	t.Helper()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &sotwClient{t, s}
}

func (w *world) delta(t testing.TB, conn *grpc.ClientConn) *deltaClient {
	t.Helper()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &deltaClient{t, s}
}

func (c *client[Req, Res]) send(r *Req) {
	c.t.Helper()
	if err := c.s.Send(r); err != nil {
		c.t.Fatal(err)
	}
}

// soon panics unless its result is called within 5 minutes. In a bubble time passes without a wait,
// and connections keep the bubble running for ever.
func soon() func() bool {
	return time.AfterFunc(5*time.Minute, func() { panic("no message came for 5 minutes") }).Stop
}

func (c *client[Req, Res]) want() *Res {
	c.t.Helper()
	defer soon()()
	r, err := c.s.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// end returns the error that ends the stream.
func (c *client[Req, Res]) end() error {
	defer soon()()
	for {
		if _, err := c.s.Recv(); err != nil {
			return err
		}
	}
}

// rawCodec lets a client send any bytes.
var rawCodec = grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")})

func raw(s string) *message { return &message{data: mem.BufferSlice{mem.SliceBuffer(s)}} }

func res(name, body string) *xds.Resource { return xds.NewResource(nil, name, []byte(body)) }
