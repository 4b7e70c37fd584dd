package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A grpcWorld is a server in memory.
type grpcWorld struct {
	t     *testing.T
	store *store.Store
	lis   *bufconn.Listener
	grpc  *grpc.Server
}

func newGRPCWorld(t *testing.T, opts ...server.Option) *grpcWorld {
	w := &grpcWorld{t: t, store: store.New(store.WithEmptyGroups())}
	s := server.New(w.store, append([]server.Option{server.WithV2()}, opts...)...)
	w.serve(func(g *grpc.Server) {
		if err := s.Register(g); err != nil {
			t.Fatal(err)
		}
	}, append(server.GRPCOptions(), grpc.WaitForHandlers(true))...)
	return w
}

// serve starts a gRPC server with the services that register adds.
func (w *grpcWorld) serve(register func(*grpc.Server), opts ...grpc.ServerOption) {
	w.t.Cleanup(func() { goleak.VerifyNone(w.t) }) // cleanups run in reverse order, so this is the last
	w.lis, w.grpc = bufconn.Listen(64<<10), grpc.NewServer(opts...)
	register(w.grpc)
	done := make(chan struct{})
	go func() { defer close(done); w.grpc.Serve(w.lis) }()
	w.t.Cleanup(func() { w.grpc.Stop(); <-done })
}

// handle starts a server that answers each call by f.
func handle(t *testing.T, f func(grpc.ServerStream) error) *grpcWorld {
	w := &grpcWorld{t: t}
	w.serve(func(*grpc.Server) {}, grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return f(s) }), grpc.ForceServerCodecV2(client.RawCodec{}), grpc.WaitForHandlers(true))
	return w
}

func (w *grpcWorld) set(typ *xds.Type, name, more string) {
	w.t.Helper()
	body := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	body = protowire.AppendString(protowire.AppendTag(body, 1000, protowire.BytesType), more)
	if _, err := w.store.Update(func(tx *store.Tx) error { tx.Set(xds.NewResource(typ, name, body)); return nil }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *grpcWorld) transport(o client.GRPCOptions) client.Transport {
	w.t.Helper()
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	o.DialOptions = append(o.DialOptions, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.lis.DialContext(ctx) }))
	t, err := client.GRPC("passthrough:///server", o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { t.Close() })
	return t
}

// A talk is the server's end of a stream.
type talk struct {
	t *testing.T
	client.Stream
}

func open(t *testing.T, tr client.Transport, only *xds.Type) talk {
	t.Helper()
	s, err := tr.Open(t.Context(), only)
	if err != nil {
		t.Fatal(err)
	}
	return talk{t, s}
}

func (k talk) say(r *xds.Request) {
	k.t.Helper()
	if err := k.Send(r); err != nil {
		k.t.Fatal(err)
	}
}

func (k talk) hear() *xds.Response {
	k.t.Helper()
	r, err := k.Recv()
	if err != nil {
		k.t.Fatal(err)
	}
	if len(r.Malformed) > 0 {
		k.t.Fatal(r.Malformed)
	}
	return r
}

// Each variant of each service.
func TestGRPCServices(t *testing.T) {
	types := xds.Types()
	for _, typ := range xds.Types() {
		if typ.Legacy() != nil {
			types = append(types, typ.Legacy())
		}
	}
	w := newGRPCWorld(t)
	for _, delta := range []bool{false, true} {
		for _, perType := range []bool{false, true} {
			tr := w.transport(client.GRPCOptions{Delta: delta, PerType: perType})
			if tr.Aggregated() == perType || (tr.Variant() == xds.Delta) != delta {
				t.Errorf("the transport is %s, aggregated: %v", tr.Variant(), tr.Aggregated())
			}
			for _, typ := range types {
				t.Run(fmt.Sprintf("CLI-1 %s per type %v %s", tr.Variant(), perType, typ), func(t *testing.T) {
					only := typ
					if !perType {
						only = nil
					}
					if perType && (delta && typ.Delta == "" || !delta && typ.Stream == "") {
						if _, err := tr.Open(t.Context(), only); err == nil {
							t.Error("a stream was opened for a service that does not exist")
						}
						return
					}
					if !delta && typ.Name == "" {
						return // in SotW a resource of this type has no name
					}
					w.converse(t, open(t, tr, only), typ)
				})
			}
		}
	}
}

// converse subscribes, and follows a change.
func (w *grpcWorld) converse(t *testing.T, k talk, typ *xds.Type) {
	w.set(typ, "a", "first")
	first := &xds.Request{Type: typ, Node: &xds.Node{ID: "n"}, Names: []string{"a"}, Subscribe: []string{"a"}}
	k.say(first)
	r := k.hear()
	if !r.Type.Is(typ) || len(r.Upserts) != 1 || r.Upserts[0].Name != "a" || !strings.HasSuffix(string(r.Upserts[0].Body), "first") {
		t.Fatalf("%+v", r.Changes)
	}
	k.say(&xds.Request{Type: typ, Nonce: r.Nonce, Version: r.Version, Names: []string{"a"}})
	w.set(typ, "a", "second")
	r = k.hear()
	if len(r.Upserts) != 1 || !strings.HasSuffix(string(r.Upserts[0].Body), "second") {
		t.Fatalf("%+v", r.Changes)
	}
	k.say(&xds.Request{Type: typ, Nonce: r.Nonce, Version: r.Version, Names: []string{"a"}, Error: &xds.Status{Code: 3, Message: "no"}})
}

func TestGRPCMemory(t *testing.T) {
	t.Run("CLI-6 a resource in two consecutive responses is made once", func(t *testing.T) {
		w := newGRPCWorld(t)
		w.set(xds.Cluster, "a", "")
		w.set(xds.Cluster, "b", "")
		k := open(t, w.transport(client.GRPCOptions{}), nil)
		k.say(&xds.Request{Type: xds.Cluster, Node: &xds.Node{ID: "n"}})
		was := k.hear()
		k.say(&xds.Request{Type: xds.Cluster, Nonce: was.Nonce, Version: was.Version})
		w.set(xds.Cluster, "b", "changed")
		is := k.hear()
		if len(is.Upserts) != 2 || is.Upserts[0] != was.Upserts[0] || is.Upserts[1] == was.Upserts[1] {
			t.Errorf("%v, and then %v", was.Upserts, is.Upserts)
		}
	})
}

func TestGRPCErrors(t *testing.T) {
	big := wire.Encode(xds.SotW, &xds.Response{Type: xds.Cluster, Changes: &xds.Changes{Upserts: []*xds.Resource{xds.NewResource(xds.Cluster, "a", make([]byte, 5000))}}}, "").Materialize()
	refuse := func(err error) func(grpc.ServerStream) error { return func(grpc.ServerStream) error { return err } }
	for name, tt := range map[string]struct {
		server func(grpc.ServerStream) error
		code   codes.Code
		want   string
	}{
		"CLI-1 a large response": {func(s grpc.ServerStream) error { return s.SendMsg(&big) }, codes.ResourceExhausted,
			"a response has " + fmt.Sprint(len(big)) + " bytes, more than the limit of 1000 bytes (MaxMessage)"},
		"CLI-1 a large request": {refuse(status.Error(codes.ResourceExhausted, "grpc: received message larger than max (4194305 vs. 4194304)")), codes.ResourceExhausted,
			"the server does not accept a request of 4194305 bytes: its limit is 4194304"},
		"CLI-1 no such service": {refuse(status.Error(codes.Unimplemented, "unknown service")), codes.Unimplemented, "the server does not implement /envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources: unknown service"},
		"CLI-1 who are you":     {refuse(status.Error(codes.PermissionDenied, "no token")), codes.PermissionDenied, "the server does not accept this client: no token"},
		"CLI-1 only a code":     {refuse(status.Error(codes.Internal, "")), codes.Internal, "the server gave no reason"},
		"CLI-1 something else":  {refuse(status.Error(codes.Aborted, "later")), codes.Aborted, "later"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := handle(t, tt.server).transport(client.GRPCOptions{MaxMessage: 1000})
			_, err := open(t, tr, nil).Recv()
			e, ok := errors.AsType[*client.StatusError](err)
			if want := tr.String() + ": " + tt.code.String() + ": " + tt.want; !ok || err.Error() != want {
				t.Fatalf("got  %v\nwant %s", err, want)
			}
			if e.Code != tt.code || status.Code(err) != tt.code {
				t.Error(e.Code, status.Code(err))
			}
		})
	}
	t.Run("CLI-4 the server ends the stream in good order", func(t *testing.T) {
		if _, err := open(t, handle(t, refuse(nil)).transport(client.GRPCOptions{}), nil).Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	t.Run("SAFE-14 an error text above the limit of headers", func(t *testing.T) {
		long := status.Error(codes.Aborted, strings.Repeat("x", 300<<10))
		if _, err := open(t, handle(t, refuse(long)).transport(client.GRPCOptions{}), nil).Recv(); err == nil || status.Code(err) == codes.Aborted {
			t.Errorf("%.200v", err)
		}
	})
	t.Run("CLI-1 a malformed response", func(t *testing.T) {
		bad := []byte{0xff}
		k := open(t, handle(t, func(s grpc.ServerStream) error { s.SendMsg(&bad); <-s.Context().Done(); return nil }).transport(client.GRPCOptions{}), nil)
		if _, err := k.Recv(); err == nil || !strings.HasPrefix(err.Error(), "passthrough:///server: malformed DiscoveryResponse: ") {
			t.Error(err)
		}
		if _, err := k.Recv(); err == nil {
			t.Error("the stream continues after an error")
		}
	})
	t.Run("CLI-1 nobody listens", func(t *testing.T) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lis.Close()
		tr, err := client.GRPC("xds://"+lis.Addr().String(), client.GRPCOptions{Credentials: insecure.NewCredentials()})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		s, err := tr.Open(t.Context(), nil)
		if err == nil {
			_, err = s.Recv()
		}
		if want := tr.String() + ": Unavailable: no server listens there: "; err == nil || !strings.HasPrefix(err.Error(), want) || tr.String() != "xds://"+lis.Addr().String() {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
	t.Run("CLI-1 the listener closes each connection", func(t *testing.T) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		go func() {
			for conn, err := lis.Accept(); err == nil; conn, err = lis.Accept() {
				conn.Read(make([]byte, 100))
				io.WriteString(conn, "SSH-2.0-x\r\n")
				conn.Close()
			}
		}()
		tr, err := client.GRPC(lis.Addr().String(), client.GRPCOptions{Credentials: insecure.NewCredentials()})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if s, e := tr.Open(t.Context(), nil); e == nil {
			_, err = s.Recv()
		} else {
			err = e
		}
		if want := tr.String() + ": Unavailable: the server ended the connection at once; it may require TLS, or not speak gRPC: "; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
	t.Run("CLI-1 TLS on one side only", func(t *testing.T) {
		w := handle(t, refuse(nil))
		_, err := w.transport(client.GRPCOptions{Credentials: credentials.NewTLS(nil)}).Open(t.Context(), nil)
		if want := "passthrough:///server: Unavailable: the server does not speak TLS: "; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

// The client ends a stream.
func TestGRPCStreamEndedByClient(t *testing.T) {
	waits := func(s grpc.ServerStream) error { <-s.Context().Done(); return nil }
	t.Run("CLI-1 its context", func(t *testing.T) {
		tr := handle(t, waits).transport(client.GRPCOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		s, err := tr.Open(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := s.Recv(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := s.Send(&xds.Request{}); err == nil {
			t.Error("it takes requests")
		}
	})
	t.Run("CLI-1 Close", func(t *testing.T) {
		tr := handle(t, waits).transport(client.GRPCOptions{})
		k := open(t, tr, nil)
		got := make(chan error, 1)
		go func() { _, err := k.Recv(); got <- err }()
		if err := errors.Join(tr.Close(), tr.Close()); err != nil {
			t.Error(err)
		}
		if err := <-got; err == nil || err.Error() != "passthrough:///server: the transport is closed" {
			t.Error(err)
		}
		if _, err := tr.Open(t.Context(), nil); err == nil {
			t.Error("it opens streams")
		}
	})
	t.Run("CLI-1 a server that reads nothing", func(t *testing.T) {
		tr := handle(t, waits).transport(client.GRPCOptions{WriteTimeout: 50 * time.Millisecond})
		k := open(t, tr, nil)
		large := &xds.Request{Names: []string{strings.Repeat("n", 100<<10)}}
		var err error
		for range 100 {
			if err = k.Send(large); err != nil {
				break
			}
		}
		if err == nil {
			t.Fatal("the client sent 10 MB without an error")
		}
		if _, err := k.Recv(); err == nil || err.Error() != "passthrough:///server: the server read nothing for 50ms while a request waited" {
			t.Error(err)
		}
	})
	t.Run("CLI-1 Send fails after the end, also if responses are unread", func(t *testing.T) {
		b := wire.Encode(xds.SotW, &xds.Response{Type: xds.Cluster, Version: "1", Changes: &xds.Changes{}}, "1").Materialize()
		k := open(t, handle(t, func(s grpc.ServerStream) error {
			return errors.Join(s.SendMsg(&b), s.SendMsg(&b), status.Error(codes.Aborted, "the reason"))
		}).transport(client.GRPCOptions{}), nil)
		for k.Send(&xds.Request{Type: xds.Cluster}) == nil {
			runtime.Gosched()
		}
		for range 2 {
			if _, err := k.Recv(); err != nil {
				t.Error(err)
			}
		}
		if _, err := k.Recv(); err == nil || !strings.Contains(err.Error(), "the reason") {
			t.Error(err)
		}
	})
	t.Run("CLI-1 invalid calls of Open", func(t *testing.T) {
		ads, own := handle(t, waits), client.GRPCOptions{PerType: true}
		for want, open := range map[string]func() error{
			"passthrough:///server: a stream of ADS carries all types, not only CDS": func() error {
				_, err := ads.transport(client.GRPCOptions{}).Open(t.Context(), xds.Cluster)
				return err
			},
			"passthrough:///server: a stream per type needs a type": func() error { _, err := ads.transport(own).Open(t.Context(), nil); return err },
			"passthrough:///server: VHDS does not have its own service with a sotw stream": func() error {
				_, err := ads.transport(own).Open(t.Context(), xds.VirtualHost)
				return err
			},
			`server "x": credentials are missing; use insecure.NewCredentials() for a connection without protection`: func() error {
				_, err := client.GRPC("x", client.GRPCOptions{})
				return err
			},
		} {
			if err := open(); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		}
	})
}
