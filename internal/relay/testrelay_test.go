package relay_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/relay"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An upstream is a server in memory that can stop and start again.
type upstream struct {
	t     testing.TB
	store *store.Store
	srv   *server.Server

	limits server.Limits // zero: the defaults

	refused refused

	mu   sync.Mutex
	lis  *bufconn.Listener // nil: it is down
	grpc *grpc.Server
}

// refused counts refusals.
type refused struct {
	n atomic.Int32

	mu    sync.Mutex
	texts []string
	last  protocol.EventKind // Acked or Nacked
}

// textsSent returns the texts of the refusals.
func (r *refused) textsSent() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.texts)
}

// settled reports whether the last answer accepts.
func (r *refused) settled() bool {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last == protocol.Acked
}

func (*refused) Opened(*server.Stream)        {}
func (*refused) Closed(*server.Stream, error) {}

func (r *refused) Event(_ *server.Stream, e protocol.Event) {
	if e.Kind != protocol.Nacked && e.Kind != protocol.Acked {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last = e.Kind; e.Kind == protocol.Nacked {
		r.n.Add(1)
		r.texts = append(r.texts, e.Error.Message)
	}
}

func newUpstream(t testing.TB) *upstream {
	u := &upstream{t: t}
	t.Cleanup(u.stop)
	u.start()
	return u
}

// start starts the server, without memory.
func (u *upstream) start() {
	u.store = store.New()
	u.srv = server.New(u.store, server.WithObserver(&u.refused), server.WithLimits(u.limits))
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.WaitForHandlers(true))...)
	if err := u.srv.Register(g); err != nil {
		u.t.Fatal(err)
	}
	lis := bufconn.Listen(64 << 10)
	go g.Serve(lis)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lis, u.grpc = lis, g
}

func (u *upstream) stop() {
	u.mu.Lock()
	g := u.grpc
	u.lis, u.grpc = nil, nil
	u.mu.Unlock()
	if g != nil {
		g.Stop()
	}
}

func (u *upstream) dial(ctx context.Context, _ string) (net.Conn, error) {
	u.mu.Lock()
	lis := u.lis
	u.mu.Unlock()
	if lis == nil {
		return nil, errors.New("it is down")
	}
	return lis.DialContext(ctx)
}

// set makes the resources the only ones of a type.
func (u *upstream) set(t *xds.Type, names ...string) {
	u.t.Helper()
	u.content(t, "", names...)
}

func (u *upstream) content(t *xds.Type, more string, names ...string) {
	u.t.Helper()
	_, err := u.store.Update(func(tx *store.Tx) error {
		var all []*xds.Resource
		for _, n := range names {
			all = append(all, resource(t, n, more))
		}
		tx.MarkKnown()
		tx.Replace(t, all...)
		return nil
	})
	if err != nil {
		u.t.Fatal(err)
	}
}

// resource is a message whose first field is its name.
func resource(t *xds.Type, name, more string) *xds.Resource {
	body := append([]byte{0x0a, byte(len(name))}, name...)
	if more != "" {
		body = append(append(body, 0xf2, 0x3f, byte(len(more))), more...)
	}
	return xds.NewResource(t, name, body)
}

// refs returns the references of a resource, from the text after its name: "to:" and a name.
func refs(r *xds.Resource) []xds.Ref {
	all := []xds.Ref{}
	if _, to, ok := strings.Cut(string(r.Body), "to:"); ok {
		t := xds.Cluster
		if r.Type.Is(xds.Cluster) {
			t = xds.Endpoint
		}
		all = append(all, xds.Ref{Type: t, Name: to})
	}
	return all
}

// A testRelay is a relay between an upstream and clients.
type testRelay struct {
	t     testing.TB
	up    *upstream
	store *store.Store
	src   *relay.Source
	cl    *client.Client
	conn  *grpc.ClientConn
	stop  func()
}

// relayOf starts a relay; dir is the client's disk, "" is none.
func relayOf(t testing.TB, up *upstream, dir string, delta bool, check func(*xds.Resource) error) *testRelay {
	t.Helper()
	w := relayWith(t, up, dir, delta, check, func(*relay.Options) {})
	w.conn = xdstest.Serve(t, server.New(w.src), grpc.WaitForHandlers(true))
	return w
}

// relayWith starts a relay with some options, without a server. The default check is its own.
func relayWith(t testing.TB, up *upstream, dir string, delta bool, check func(*xds.Resource) error, more func(*relay.Options)) *testRelay {
	t.Helper()
	w := &testRelay{t: t, up: up, store: store.New()}
	if check == nil {
		check = func(r *xds.Resource) error { return w.src.Check(r) }
	}
	tr, err := client.GRPC("passthrough:///up", client.GRPCOptions{
		Credentials: insecure.NewCredentials(), Delta: delta, DialOptions: []grpc.DialOption{grpc.WithContextDialer(up.dial)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Node: &xds.Node{ID: "relay"}, Servers: []client.Server{{Transport: tr}}, Dir: dir, Check: check})
	if err != nil {
		t.Fatal(err)
	}
	o := relay.Options{Refs: refs}
	more(&o)
	w.cl, w.src = c, relay.New(w.store, c, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.src.Run(ctx) }()
	w.stop = sync.OnceFunc(func() { cancel(); <-done; c.Close() })
	t.Cleanup(w.stop)
	return w
}

// streams is the number of streams to the upstream.
func (w *testRelay) streams() int { return w.up.srv.Stats().Open }

// takes fails the test unless f takes exactly this time, in a bubble.
func takes(t *testing.T, d time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	if f(); time.Since(start).Truncate(100*time.Millisecond) != d {
		t.Errorf("after %v, want %v", time.Since(start), d)
	}
}

// watchOf is a watch without a stream.
func watchOf(t testing.TB, w *testRelay) *relay.Watch {
	t.Helper()
	watch, err := w.src.Watch(t.Context(), &xds.Node{ID: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	return watch
}
