package rest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// within runs a test in a synctest bubble.
func within(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A world is a handler in an http.Server in memory, with its store and its log.
type world struct {
	*server.Server
	t     *testing.T
	store *store.Store
	web   *http.Server
	lis   *memory
	log   *logtest.Log
	done  chan error // from Serve
}

func newWorld(t *testing.T, opts ...Option) *world {
	w := &world{t: t, store: store.New(store.WithEmptyGroups()), lis: newMemory(), log: &logtest.Log{}, done: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.Server = server.New(w.store, server.WithLogger(log), server.WithLimits(server.Limits{Polls: 3}), server.WithIdentifier(func() string { return "replica <1>" }))
	w.web = &http.Server{Handler: New(w.Server, append([]Option{WithLogger(log)}, opts...)...)}
	go func() { w.done <- w.web.Serve(w.lis) }()
	t.Cleanup(w.end)
	return w
}

// end stops the server. Then no connection may be open.
func (w *world) end() {
	if err := w.Drain(context.Background()); err != nil {
		w.t.Error(err)
	}
	w.web.Close()
	<-w.done
	w.lis.closeAll()
	if n := w.Stats().Open + w.Stats().Polls; n != 0 {
		w.t.Errorf("%d polls are open", n)
	}
}

func (w *world) update(f func(*store.Tx)) {
	w.t.Helper()
	if _, err := w.store.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
		w.t.Error(err)
	}
}

func (w *world) set(name string) {
	w.t.Helper()
	r, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	w.update(func(tx *store.Tx) { tx.Set(of(xds.Cluster, r)...) })
}

func (w *world) delete(name string) {
	w.update(func(tx *store.Tx) { tx.Delete(xds.Cluster, name) })
}

// A client polls over its own connections.
type client struct {
	*world
	http *http.Client
	node string
}

func (w *world) client() *client {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return w.lis.dial() }}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &client{world: w, http: &http.Client{Transport: tr}, node: "n"}
}

// A reply is a response and the time of its arrival.
type reply struct {
	*http.Response
	body []byte
	took time.Duration
}

func (c *client) do(ctx context.Context, method, path string, header http.Header, body string) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://xds"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return &reply{resp, b, time.Since(start)}, err
}

func (c *client) post(path, body string) *reply {
	c.t.Helper()
	r, err := c.do(c.t.Context(), http.MethodPost, path, nil, body)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// poll polls for all clusters with a version.
func (c *client) poll(version string) *reply {
	c.t.Helper()
	return c.post(xds.Cluster.REST, fmt.Sprintf(`{"node":{"id":%q},"version_info":%q}`, c.node, version))
}

// gets expects a response at this time and returns it.
func (r *reply) gets(t *testing.T, after time.Duration, clusters ...string) *discovery.DiscoveryResponse {
	t.Helper()
	var m discovery.DiscoveryResponse
	if r.StatusCode != http.StatusOK || r.took != after {
		t.Fatalf("%d after %v, want an answer after %v: %s", r.StatusCode, r.took, after, r.body)
	}
	if err := protojson.Unmarshal(r.body, &m); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
	var got []string
	for _, a := range m.Resources {
		var c clusterv3.Cluster
		if err := a.UnmarshalTo(&c); err != nil {
			t.Fatal(err)
		}
		got = append(got, c.Name)
	}
	if fmt.Sprint(got) != fmt.Sprint(clusters) {
		t.Fatalf("got %v, want %v", got, clusters)
	}
	return &m
}

// unchanged expects a 304 at this time.
func (r *reply) unchanged(t *testing.T, after time.Duration) {
	t.Helper()
	if r.StatusCode != http.StatusNotModified || r.took != after || len(r.body) > 0 {
		t.Fatalf("%d after %v, want 304 after %v: %s", r.StatusCode, r.took, after, r.body)
	}
}

// memory is a listener in memory.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu     sync.Mutex
	dialed []net.Conn // the clients' ends
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *memory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *memory) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 80} }

func (l *memory) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	l.mu.Lock()
	l.dialed = append(l.dialed, ours)
	port := 1000 + len(l.dialed)
	l.mu.Unlock()
	select {
	case l.conns <- from{theirs, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port}}:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// count returns the number of connections so far.
func (l *memory) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.dialed)
}

func (l *memory) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.dialed {
		c.Close()
	}
}

// A from is a connection with another remote address.
type from struct {
	net.Conn
	remote net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.remote }

// of sets the type of resources that have none.
func of(t *xds.Type, rs ...*xds.Resource) []*xds.Resource {
	for _, r := range rs {
		if r != nil && r.Type == nil {
			r.Type = t
		}
	}
	return rs
}
