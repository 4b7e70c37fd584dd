package server

import (
	"log/slog"
	"strings"
	"testing"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/xds"
)

// wrapped is a registrar that hides its grpc.Server.
type wrapped struct{ grpc.ServiceRegistrar }

// A grpc.Server without GRPCOptions uses another codec. Register returns an error, and so does each call, with a line in the
// log.
func TestWithoutOptions(t *testing.T) {
	for name, opts := range map[string][]grpc.ServerOption{
		"none":                    nil,
		"another codec follows":   append(GRPCOptions(), grpc.ForceServerCodecV2(encoding.GetCodecV2("proto"))),
		"a codec that takes all":  {grpc.ForceServerCodec(lax{})},
		"all but our codec":       GRPCOptions()[1:],
		"with an older codec API": {grpc.CustomCodec(lax{})}, //nolint:staticcheck // programs can still use it
	} {
		within(t, ""+name, func(t *testing.T) {
			log := &logbook{}
			s := New(newSource(), log.at(slog.LevelInfo))
			w := &world{Server: s, lis: bufconn.Listen(64 << 10), grpc: grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)}
			if err := s.Register(w.grpc); err == nil || !strings.Contains(err.Error(), "server.GRPCOptions()") {
				t.Errorf("Register says %v", err)
			}
			done := make(chan struct{})
			go func() { defer close(done); w.grpc.Serve(w.lis) }()
			t.Cleanup(func() { w.grpc.Stop(); <-done })
			conn := w.dial(t)
			sotw, delta := w.sotw(t, conn), w.delta(t, conn)
			_ = sotw.s.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL}) // it may have ended
			_ = delta.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
			_, fetch := clusterservice.NewClusterDiscoveryServiceClient(conn).FetchClusters(t.Context(), &discovery.DiscoveryRequest{})
			for call, err := range map[string]error{"sotw": sotw.end(), "delta": delta.end(), "fetch": fetch} {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "grpc.NewServer(append(server.GRPCOptions()") {
					t.Errorf("%s ends with %v", call, err)
				}
			}
			if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "server.GRPCOptions()") {
				t.Errorf("the log says %s", got)
			}
		})
	}
	t.Run("with them", func(t *testing.T) {
		for name, opts := range map[string][]grpc.ServerOption{"alone": GRPCOptions(), "others follow": append(GRPCOptions(), grpc.MaxRecvMsgSize(1<<20))} {
			g := grpc.NewServer(opts...)
			if err := New(newSource()).Register(g); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			g.Stop()
		}
	})
	within(t, "behind an unknown registrar", func(t *testing.T) {
		for want, opt := range map[string]grpc.ServerOption{"failed to unmarshal": grpc.MaxRecvMsgSize(1), "server.GRPCOptions()": grpc.ForceServerCodec(lax{})} {
			log := &logbook{}
			s := New(newSource(), log.at(slog.LevelInfo))
			w := &world{Server: s, lis: bufconn.Listen(64 << 10), grpc: grpc.NewServer(opt, grpc.MaxRecvMsgSize(4<<20), grpc.WaitForHandlers(true))}
			if err := s.Register(wrapped{w.grpc}); err != nil {
				t.Error(err)
			}
			done := make(chan struct{})
			go func() { defer close(done); w.grpc.Serve(w.lis) }()
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			if err := c.end(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the stream ends with %v, want %s", err, want)
			}
			w.grpc.Stop() // gRPC reports an unreadable request to the client before the handler knows, and logs
			<-done
			if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "server.GRPCOptions()") {
				t.Errorf("the log says %s", got)
			}
		}
	})
	t.Run("behind another registrar", func(t *testing.T) {
		for want, opts := range map[bool][]grpc.ServerOption{false: nil, true: GRPCOptions()} {
			g, s := grpc.NewServer(opts...), New(newSource(), WithLogger(slog.New(slog.DiscardHandler)))
			if err := s.Register(s.Limited(g)); (err == nil) != want {
				t.Errorf("bound, %t: %v", want, err)
			}
			g.Stop()
			g = grpc.NewServer(opts...)
			if err := s.Register(wrapped{g}); err != nil { // the first call returns the error
				t.Errorf("wrapped, %t: %v", want, err)
			}
			g.Stop()
		}
	})
}

// Registering a service twice would end the program. It is an error, and the first service continues.
func TestRegisterTwice(t *testing.T) {
	const ads = "the grpc.Server has envoy.service.discovery.v3.AggregatedDiscoveryService already"
	within(t, "", func(t *testing.T) {
		w := serve(t)
		others := map[string]func() error{
			"the same":        func() error { return w.Register(w.grpc) },
			"another":         func() error { return New(newSource()).Register(w.grpc) },
			"without source":  func() error { return New[*watch](nil).Register(w.grpc) },
			"where it counts": func() error { return w.Register(w.Limited(w.grpc)) },
		}
		for name, register := range others {
			if err := register(); err == nil || !strings.Contains(err.Error(), ads) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if r := c.want(); len(r.Resources) != 1 {
			t.Error(r)
		}
	})
}

// lax is a codec that decodes anything into anything.
type lax struct{}

func (lax) Marshal(any) ([]byte, error) { return nil, nil }
func (lax) Unmarshal([]byte, any) error { return nil }
func (lax) Name() string                { return "proto" }
func (lax) String() string              { return "proto" }

// A nil server, or one that was not made by New, serves no client and returns a clear error.
func TestNil(t *testing.T) {
	said := func(t *testing.T, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	quiet := WithLogger(slog.New(slog.DiscardHandler))
	var none *source
	g := grpc.NewServer(GRPCOptions()...)
	defer g.Stop()
	said(t, New(newSource()).Register(nil), "a nil grpc.Server")
	said(t, New(newSource()).Register((*grpc.Server)(nil)), "a nil grpc.Server")
	said(t, (*Server)(nil).Register(g), "not made by server.New")
	said(t, new(Server).Register(g), "not made by server.New")
	said(t, new(Server).Drain(t.Context()), "not made by server.New")
	_, err := new(Server).Poll(t.Context(), xds.Cluster, xds.Request{}, Caller{})
	said(t, err, "not made by server.New")
	_, err = New[*watch](nil, quiet).Poll(t.Context(), xds.Cluster, xds.Request{}, Caller{})
	said(t, err, "a nil source")
	_, err = New(newSource(), quiet).Poll(t.Context(), nil, xds.Request{}, Caller{})
	said(t, err, "no type")

	s := New(none, quiet)
	said(t, s.Register(g), "server.New was given a nil source")
	lis := bufconn.Listen(64 << 10)
	done := make(chan struct{})
	go func() { defer close(done); g.Serve(lis) }()
	defer func() { g.Stop(); <-done }()
	w := &world{Server: s, grpc: g, lis: lis}
	said(t, w.sotw(t, w.dial(t)).end(), "server.New was given a nil source")

	nils := []Option{nil, WithIdentifier(nil), WithLogger(nil), WithPlaces(nil), WithRedactor(nil), WithObserver(nil), quiet}
	within(t, "options change nothing", func(t *testing.T) {
		w := serve(t, nils...)
		w.set(xds.Cluster, res("a", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if r := c.want(); len(r.Resources) != 1 {
			t.Error(r)
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: "1", ErrorDetail: status.New(codes.InvalidArgument, "no").Proto()})
	})
	//nolint:staticcheck // a beginner's nil
	if err := New(newSource(), quiet).Drain(nil); err != nil {
		t.Error(err)
	}
}
