package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A bomb is a source and an observer that panics at one point for the node "bad".
type bomb struct {
	*store.Store
	at string
}

const goesOff = "a bomb of the test goes off"

func (b *bomb) reach(at, node string) {
	if at == b.at && node == "bad" {
		panic(goesOff)
	}
}

func (b *bomb) Watch(ctx context.Context, n *xds.Node) (*bombWatch, error) {
	b.reach("Watch", n.ID)
	w, err := b.Store.Watch(ctx, n)
	return &bombWatch{Watch: w, bomb: b, node: n.ID}, err
}

func (b *bomb) Opened(s *Stream)          { b.reach("Opened", s.Node.ID) }
func (b *bomb) Closed(s *Stream, _ error) { b.reach("Closed", s.Node.ID) }
func (b *bomb) Event(s *Stream, e protocol.Event) {
	b.reach("Event", s.Node.ID)
	if e.Kind == protocol.Acked {
		b.reach("Event of an ACK", s.Node.ID)
	}
}

// A bombWatch is also the view that it returns.
type bombWatch struct {
	*store.Watch
	bomb *bomb
	node string
}

func (w *bombWatch) C() <-chan struct{} {
	w.bomb.reach("C", w.node)
	return w.Watch.C()
}

func (w *bombWatch) Next() (xds.View, []xds.Names, error) {
	w.bomb.reach("Next", w.node)
	v, names, err := w.Watch.Next()
	if len(names) > 0 {
		w.bomb.reach("Next after a commit", w.node)
	}
	return &bombView{v, w}, names, err
}

func (w *bombWatch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	w.bomb.reach("Interested", w.node)
	w.Watch.Interested(t, wildcard, added, removed)
}

func (w *bombWatch) Recent(t *xds.Type) []*xds.Table {
	w.bomb.reach("Recent", w.node)
	return w.Watch.Recent(t)
}

func (w *bombWatch) Close() {
	w.Watch.Close()
	w.bomb.reach("Close", w.node)
}

type bombView struct {
	xds.View
	w *bombWatch
}

func (v *bombView) Table(t *xds.Type) *xds.Table {
	v.w.bomb.reach("Table", v.w.node)
	return v.View.Table(t)
}

func (v *bombView) Undecided(*xds.Type, string) bool {
	v.w.bomb.reach("Undecided", v.w.node)
	return false
}

// A bombWorld serves a bomb.
type bombWorld struct {
	*world
	st *store.Store
}

func newBombWorld(t *testing.T, at string, opts ...Option) *bombWorld {
	b, log := &bomb{Store: store.New(), at: at}, &logbook{}
	if at == "selector" {
		b.Store = store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { b.reach(at, n.ID); return nil, nil }))
	}
	put(t, b.Store, xds.Cluster, res("a", "1"))
	w := serveFrom(t, New(b, append([]Option{log.at(slog.LevelWarn), WithObserver(b), WithLimits(Limits{FirstAnswers: 1})}, opts...)...))
	w.log = log
	return &bombWorld{w, b.Store}
}

// wantOne fails the test unless exactly one panic was caught and logged, and all streams except n have ended.
func (w *bombWorld) wantOne(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	if got := w.Stats().Panics; got != 1 {
		t.Errorf("%d panics were counted", got)
	}
	log := w.log.String()
	if strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, goesOff) || !strings.Contains(log, "panics_test.go") {
		t.Errorf("the log has:\n%s", log)
	}
	if s := w.Stats(); s.Open != n || s.Waiting != 0 || s.Malformed != 0 {
		t.Errorf("%+v", s)
	}
	if first := w.first; first.free != 1 {
		t.Errorf("%d places are free", first.free)
	}
	if held := w.polls.held.taken(); held != 0 {
		t.Errorf("%d polls are held", held)
	}
}

// The points at which a stream can panic.
var bombs = []struct {
	at     string
	answer bool // passed after the answer
}{
	{at: "Watch"}, {at: "selector"}, {at: "C"}, {at: "Next"}, {at: "Interested"}, {at: "Recent"}, {at: "Table"}, {at: "Opened"}, {at: "Event"},
	{at: "Undecided"}, {at: "identifier"}, {at: "Next after a commit", answer: true}, {at: "Event of an ACK", answer: true},
	{at: "Close", answer: true}, {at: "Closed", answer: true},
}

func TestPanicsOfStreams(t *testing.T) {
	for _, tt := range bombs {
		within(t, "SAFE-8 "+tt.at, func(t *testing.T) {
			broken := false
			w := newBombWorld(t, tt.at, WithIdentifier(func() string {
				if broken {
					panic(goesOff)
				}
				return ""
			}))
			conn := w.dial(t)
			good := w.sotw(t, conn)
			good.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "good"}})
			good.send(ack(good.want()))
			synctest.Wait()

			broken = tt.at == "identifier"
			bad := w.delta(t, conn)
			bad.send(&discovery.DeltaDiscoveryRequest{
				TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{"a", "b"}, Node: &corev3.Node{Id: "bad"},
				InitialResourceVersions: map[string]string{"b": "1"},
			})
			if tt.answer {
				r := bad.want()
				bad.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
				synctest.Wait()
				switch tt.at {
				case "Close", "Closed":
					if err := bad.s.CloseSend(); err != nil {
						t.Error(err)
					}
				case "Next after a commit":
					put(t, w.st, xds.Cluster, res("a", "1b"))
					good.send(ack(good.want()))
				}
			}
			err := bad.end()
			if status.Code(err) != codes.Internal || strings.Contains(err.Error(), goesOff) {
				t.Errorf("the stream ended with %v", err)
			}
			synctest.Wait()
			broken = false
			put(t, w.st, xds.Cluster, res("a", "2"))
			if r := good.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "2" {
				t.Errorf("the neighbour got %v", r)
			} else {
				good.send(ack(r))
			}
			w.wantOne(t, 1)
			// The other place for first answers is free again.
			next := w.sotw(t, conn)
			next.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "next"}})
			next.want()
		})
	}
	within(t, "SAFE-8 a repeated panic is logged once", func(t *testing.T) {
		w := newBombWorld(t, "Table")
		conn := w.dial(t)
		for range 20 {
			bad := w.sotw(t, conn)
			bad.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "bad"}})
			if err := bad.end(); status.Code(err) != codes.Internal {
				t.Error(err)
			}
		}
		if n := strings.Count(w.log.String(), "level=ERROR"); n != 1 || w.Stats().Panics != 20 {
			t.Errorf("%d lines, %d panics", n, w.Stats().Panics)
		}
	})
}

// The client gets the first reason for the end of its stream, even if a panic follows.
func TestPanicAfterRefusal(t *testing.T) {
	within(t, "SAFE-8 a refused client gets the reason", func(t *testing.T) {
		w := newBombWorld(t, "Closed", WithLimits(Limits{Types: 1}))
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "bad"}, TypeUrl: xds.Cluster.URL})
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Listener.URL})
		if err := c.end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
	})
}

func TestPanicsOfPolls(t *testing.T) {
	for _, at := range []string{"Watch", "selector", "Next", "Interested", "Table", "Opened", "Event", "Undecided", "identifier", "Next after a commit", "Close", "Closed"} {
		within(t, "SAFE-8 "+at, func(t *testing.T) {
			var broken atomic.Bool // read also by the poll that has ended
			w := newBombWorld(t, at, WithIdentifier(func() string {
				if broken.Load() {
					panic(goesOff)
				}
				return ""
			}))
			conn := w.dial(t)
			fetch := func(node, version string) (*discovery.DiscoveryResponse, error) {
				var r discovery.DiscoveryResponse
				err := conn.Invoke(t.Context(), "/"+xds.Cluster.Service+"/"+xds.Cluster.Fetch, &discovery.DiscoveryRequest{
					Node: &corev3.Node{Id: node}, ResourceNames: []string{"a"}, VersionInfo: version,
				}, &r)
				return &r, err
			}
			first, err := fetch("good", "")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan *discovery.DiscoveryResponse)
			go func() {
				r, err := fetch("good", first.VersionInfo)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			synctest.Wait()
			version, want := "", codes.Internal
			switch at {
			case "Next after a commit":
				version = first.VersionInfo // held
			case "Close", "Closed":
				want = codes.OK // the client already has its answer
			}
			broken.Store(at == "identifier")
			failed := make(chan error)
			go func() { _, err := fetch("bad", version); failed <- err }()
			synctest.Wait()
			if version != "" {
				put(t, w.st, xds.Cluster, res("a", "2"))
			}
			if err := <-failed; status.Code(err) != want {
				t.Errorf("the poll ended with %v", err)
			}
			broken.Store(false)
			if version == "" {
				put(t, w.st, xds.Cluster, res("a", "2"))
			}
			if r := <-done; len(r.GetResources()) != 1 || r.VersionInfo == first.VersionInfo {
				t.Errorf("the neighbour got %v", r)
			}
			w.wantOne(t, 0)
		})
	}
}

// A stuntman is the stream of an interceptor. It panics at the second request.
type stuntman struct {
	grpc.ServerStream
	requests int
}

func (s *stuntman) RecvMsg(m any) error {
	if s.requests++; s.requests == 2 {
		panic(goesOff)
	}
	return s.ServerStream.RecvMsg(m)
}

// Requests are read in another goroutine, which the interceptors of gRPC do not guard.
func TestPanicsOfReading(t *testing.T) {
	within(t, "SAFE-8 RecvMsg", func(t *testing.T) {
		b := newBombWorld(t, "")
		w := &world{Server: b.Server, lis: bufconn.Listen(64 << 10)}
		w.grpc = grpc.NewServer(append(GRPCOptions(), grpc.WaitForHandlers(true), grpc.ChainStreamInterceptor(
			func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
				return handle(srv, &stuntman{ServerStream: s})
			}))...)
		if err := w.Register(w.grpc); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); w.grpc.Serve(w.lis) }()
		t.Cleanup(func() { w.grpc.Stop(); <-done })
		good, bad := b.sotw(t, b.dial(t)), w.sotw(t, w.dial(t))
		for _, c := range []*sotwClient{good, bad} {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
		}
		if err := bad.end(); status.Code(err) != codes.Internal || strings.Contains(err.Error(), goesOff) {
			t.Errorf("the stream ended with %v", err)
		}
		good.send(ack(good.want()))
		b.wantOne(t, 1)
	})
}

// Other services on the same grpc.Server are guarded too.
func TestPanicsOfOthers(t *testing.T) {
	before := panics.Count()
	_, err := guardUnary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { panic(goesOff) })
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), goesOff) {
		t.Error(err)
	}
	err = guardStream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(any, grpc.ServerStream) error { panic(goesOff) })
	if status.Code(err) != codes.Internal || panics.Count() != before+2 {
		t.Error(err, panics.Count()-before)
	}
}

// A sprung log panics at the first warning.
type sprung struct {
	slog.Handler
	gone *atomic.Bool
}

func (l sprung) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && !l.gone.Swap(true) {
		panic(goesOff)
	}
	return l.Handler.Handle(ctx, r)
}

// A booby is credentials that panic.
type booby struct {
	credentials.TransportCredentials
}

func (booby) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) { panic(goesOff) }

// Panics in the transport below gRPC are caught only by this package.
func TestPanicsOfConnections(t *testing.T) {
	logs := func(w *world) {
		t.Helper()
		synctest.Wait()
		log := w.log.String()
		if strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "in=connection") || !strings.Contains(log, goesOff) || !strings.Contains(log, "panics_test.go") {
			t.Errorf("the log has:\n%s", log)
		}
		if n := w.Stats().Panics; n != 1 {
			t.Errorf("%d panics were counted", n)
		}
	}
	within(t, "SAFE-8 a tick", func(t *testing.T) {
		log := &logbook{}
		w := serve(t, WithLogger(slog.New(sprung{slog.NewTextHandler(log, nil), new(atomic.Bool)})))
		w.log = log
		w.source.set(xds.Cluster, res("a", "1"))
		good := w.sotw(t, w.dial(t))
		good.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "good"}})
		good.send(ack(good.want()))
		w.begun(t)
		time.Sleep(25 * time.Second) // it comes too slowly, which is a warning
		synctest.Wait()
		if s := w.Stats(); s.Unfinished != 0 || s.Open != 1 {
			t.Errorf("%+v", s)
		}
		w.source.set(xds.Cluster, res("a", "2"))
		good.send(ack(good.want()))
		logs(w)
	})
	within(t, "SAFE-8 a handshake", func(t *testing.T) {
		w := serve(t)
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		if _, _, err := w.Credentials(booby{insecure.NewCredentials()}).ServerHandshake(far); err == nil || strings.Contains(err.Error(), goesOff) {
			t.Error(err)
		}
		logs(w)
	})
}
