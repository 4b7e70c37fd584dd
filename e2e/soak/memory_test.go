package soak

import (
	"context"
	"log/slog"
	"net"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A library is a server in this process. It runs in a synctest bubble, where waiting
// takes no real time.
type library struct {
	store *store.Store
	lis   *bufconn.Listener
	stop  func()
}

// newLibrary starts a server; more are additional options of its gRPC server.
func newLibrary(options []server.Option, more ...grpc.ServerOption) *library {
	l := &library{store: store.New(), lis: bufconn.Listen(64 << 10)}
	quiet := server.WithLogger(slog.New(slog.DiscardHandler))
	patient := server.WithFirstRequestTimeout(time.Hour) // clients may connect without a request
	s := server.New(l.store, append([]server.Option{quiet, patient}, options...)...)
	g := grpc.NewServer(append(append(server.GRPCOptions(), grpc.WaitForHandlers(true)), more...)...)
	if err := s.Register(g); err != nil {
		panic(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l.lis) }()
	l.stop = func() { g.Stop(); <-done }
	return l
}

func (l *library) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.lis.DialContext(ctx) }))
}

func (l *library) catchUp()      { synctest.Wait() }
func (l *library) patient() bool { return true }
func (l *library) aging() bool   { return false }
func (l *library) alive() error  { return nil } // a crash of the server ends the test, too

func (l *library) commit(w world) error {
	_, err := l.store.Update(func(tx *store.Tx) error {
		tx.Clear()
		var bad error
		w.each(func(k *kind, name string, r resource, body proto.Message) {
			x, err := wire.NewResource(k.typ, name, body)
			if err != nil {
				bad = err
				return
			}
			x.Refs = []xds.Ref{}
			for _, to := range r.to {
				x.Refs = append(x.Refs, xds.Ref{Type: k.refers, Name: to})
			}
			x.Aliases, x.TTL, x.OnDemand = r.aliases, r.ttl, r.onDemand
			x.Seal("")
			tx.Set(x)
		})
		return bad
	})
	return err
}
