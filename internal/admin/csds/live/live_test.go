package live

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/admin/csds"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	began   = time.Date(2031, 5, 6, 7, 8, 9, 10, time.UTC)
	cluster = &clusterv3.Cluster{Name: "backend"}
)

func resource(t testing.TB, typ *xds.Type, m proto.Message) *xds.Resource {
	t.Helper()
	r, err := wire.NewResource(typ, "", m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A tracker lists the streams of a server and the refusals.
type tracker struct {
	mu      sync.Mutex
	streams []*server.Stream
	nacked  map[string][]api.Client
}

func (t *tracker) Opened(s *server.Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams = append(t.streams, s)
}

func (t *tracker) Event(s *server.Stream, e protocol.Event) {
	if e.Kind != protocol.Nacked {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nacked == nil {
		t.nacked = map[string][]api.Client{}
	}
	t.nacked[s.Node.ID] = append(t.nacked[s.Node.ID], api.Client{Types: []api.TypeStatus{{
		URL: e.Type.URL, Stream: s.ID, Nacked: &api.NackedStatus{At: began, Error: e.Error.Message}}}})
}

func (t *tracker) Closed(s *server.Stream, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams = slices.DeleteFunc(t.streams, func(o *server.Stream) bool { return o == s })
}

func (t *tracker) Selected(clients.Filter) []*server.Stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.streams)
}

func (t *tracker) Client(node string) []api.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nacked[node]
}

// ask returns the resources of a client, one on each line.
func ask(t *testing.T, clients []csds.Client, node string) (lines []string) {
	t.Helper()
	for _, c := range clients {
		if c.Node.ID != node {
			continue
		}
		all, err := c.Config(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range all {
			for _, r := range typ.Resources {
				if (r.State == csds.Sent) == r.Updated.IsZero() {
					t.Errorf("%s is in state %d, sent %v", r.Name, r.State, r.Updated)
				}
				line := []string{typ.Type.Short, r.Name, [...]string{"unknown", "synced", "absent", "sent", "refused", "not sent", "leaving"}[r.State]}
				if r.Body != nil && r.Body.Name != r.Name {
					t.Error("the body of another resource:", r.Body.Name)
				}
				if r.Body != nil {
					line = append(line, "body")
				}
				if r.Has {
					line = append(line, "has")
				}
				if r.Failure != nil {
					line = append(line, r.Failure.Text)
				}
				lines = append(lines, strings.Join(line, " "))
			}
		}
	}
	return lines
}

func TestLive(t *testing.T) {
	tr, st := &tracker{}, store.New()
	put := func(name string, alt string) *xds.Resource {
		return resource(t, xds.Cluster, &clusterv3.Cluster{Name: name, AltStatName: alt})
	}
	update := func(f func(tx *store.Tx)) {
		t.Helper()
		if _, err := st.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx *store.Tx) { tx.Set(put("a", "1"), put("b", "1")) })
	conn := xdstest.Serve(t, server.New(st, server.WithObserver(tr)))
	clients := Clients(tr, nil)

	c := xdstest.Delta(t, conn, xdstest.WithNode(xds.Node{ID: "one"}))
	c.Subscribe(xds.Cluster, "*")
	r := c.Expect(xds.Cluster, "a", "b")
	want := func(want ...string) {
		t.Helper()
		for range 2000 { // wait until the client's last request has arrived
			if slices.Equal(ask(t, clients(), "one"), want) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%q, want %q", ask(t, clients(), "one"), want)
	}
	want("CDS a sent body", "CDS b sent body")
	c.ACK(r)
	want("CDS a synced body has", "CDS b synced body has")
	update(func(tx *store.Tx) { tx.Set(put("a", "2")); tx.Delete(xds.Cluster, "b") })
	r = c.Next(xds.Cluster)
	c.NACK(r, "I do not like a")
	want("CDS a refused body has I do not like a", "CDS b refused has I do not like a")
	c.Subscribe(xds.Endpoint, "nowhere")
	c.Next(xds.Endpoint)
	want("CDS a refused body has I do not like a", "CDS b refused has I do not like a", "EDS nowhere sent")

	two := xdstest.SotW(t, conn, xdstest.WithNode(xds.Node{ID: "two"}))
	two.Subscribe(xds.Cluster, "a")
	two.Expect(xds.Cluster, "a")
	if got := ask(t, clients(), "two"); !slices.Equal(got, []string{"CDS a sent body"}) {
		t.Errorf("%q", got)
	}
	all := clients()
	if len(all) != 2 || all[0].Node.ID != "one" || all[1].Node.ID != "two" {
		t.Error(all)
	}

	// The state comes from the newest stream of a client; an ended stream does not cause an error.
	again := xdstest.Delta(t, conn, xdstest.WithNode(xds.Node{ID: "one"}))
	again.Subscribe(xds.Cluster, "a")
	again.ACK(again.Expect(xds.Cluster, "a"))
	want("EDS nowhere sent", "CDS a synced body has")
	before := clients()
	c.Close()
	again.Close()
	two.Close()
	for try := 0; len(clients()) > 0; try++ {
		if try > 2000 {
			t.Fatal("the clients stay in the list")
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := before[0].Config(t.Context()); !errors.Is(err, server.ErrEnded) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := before[0].Config(ctx); err == nil {
		t.Error("no error for a disconnected client")
	}
}

// A held resource is shown as refused, or as waiting for a refused one, together with the version that
// the client keeps.
func TestLiveHeld(t *testing.T) {
	tr, st := &tracker{}, store.New()
	kept, is := xds.NewResource(xds.Cluster, "a", []byte("1")), xds.NewResource(xds.Cluster, "a", []byte("2"))
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(kept, xds.NewResource(xds.Cluster, "b", []byte("1")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c := xdstest.Delta(t, xdstest.Serve(t, server.New(st, server.WithObserver(tr))), xdstest.WithNode(xds.Node{ID: "one"}))
	c.Subscribe(xds.Cluster, "*")
	c.ACK(c.Next(xds.Cluster))
	next := xds.NewResource(xds.Cluster, "b", []byte("2"))
	all := Clients(tr, func(*server.Stream, *xds.Type) []Held {
		return []Held{{Name: "a", Version: is.Version, Body: is}, {Name: "new", Version: is.Version, Body: is}, {Name: "b", Body: next, Waits: true}}
	})
	types, err := all()[0].Config(t.Context())
	if err != nil || len(types) != 1 || len(types[0].Resources) != 3 {
		t.Fatalf("%+v, %v", types, err)
	}
	for i, want := range []csds.Resource{
		{Name: "a", State: csds.Refused, Body: kept, Failure: &csds.Failure{Version: is.Version, Body: is}},
		{Name: "b", State: csds.NotSent, Body: next},
		{Name: "new", State: csds.Refused, Failure: &csds.Failure{Version: is.Version, Body: is}},
	} {
		got := types[0].Resources[i]
		if got.Name != want.Name || got.State != want.State || got.Body != want.Body || !reflect.DeepEqual(got.Failure, want.Failure) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// A resource subscribed to by an alias is listed once, by its own name. If two streams refuse a resource,
// the reason comes from the newest stream. A leaving resource has no last_updated.
func TestLiveAliasesAndNewestStream(t *testing.T) {
	tr, st := &tracker{}, store.New()
	update := func(f func(tx *store.Tx)) {
		t.Helper()
		if _, err := st.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	a := resource(t, xds.Cluster, &clusterv3.Cluster{Name: "a"})
	a.Aliases, a.Refs = []string{"nick"}, []xds.Ref{{Type: xds.Endpoint, Name: "e"}}
	a.Seal("")
	update(func(tx *store.Tx) { tx.Set(a, xds.NewResource(xds.Endpoint, "e", nil)) })
	conn := xdstest.Serve(t, server.New(st, server.WithObserver(tr)))
	open := func(node string) *xdstest.Client {
		return xdstest.Delta(t, conn, xdstest.WithNode(xds.Node{ID: node}))
	}
	want := func(node string, want ...string) {
		t.Helper()
		for range 2000 {
			if slices.Equal(ask(t, Clients(tr, nil)(), node), want) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%q, want %q", ask(t, Clients(tr, nil)(), node), want)
	}
	c := open("one")
	c.Subscribe(xds.Cluster, "nick")
	c.ACK(c.Next(xds.Cluster))
	want("one", "CDS a synced body has")
	c.Subscribe(xds.Endpoint, "e")
	c.ACK(c.Next(xds.Endpoint))
	want("one", "CDS a synced body has", "EDS e synced body has")

	older := open("two")
	older.Subscribe(xds.Cluster, "a")
	r := older.Next(xds.Cluster)
	newer := open("two")
	newer.Subscribe(xds.Cluster, "a")
	newer.NACK(newer.Next(xds.Cluster), "newer")
	want("two", "CDS a refused body newer")
	older.NACK(r, "older")
	for range 2000 {
		if len(tr.Client("two")) == 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	want("two", "CDS a refused body newer")

	update(func(tx *store.Tx) { tx.Delete(xds.Cluster, "a"); tx.Delete(xds.Endpoint, "e") })
	c.Next(xds.Cluster)                                                 // without an answer
	want("one", "CDS a sent has", "CDS nick sent", "EDS e leaving has") // the alias matches no resource any more
}

// Clients without a node ID on one host are listed separately, each with its own refusals.
func TestLiveWithoutNodeID(t *testing.T) {
	tr, st := &tracker{}, store.New()
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Cluster, "a", nil), xds.NewResource(xds.Listener, "l", nil))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	conn := xdstest.Serve(t, server.New(st, server.WithObserver(tr)))
	one, two := xdstest.Delta(t, conn, xdstest.WithNode(xds.Node{})), xdstest.Delta(t, conn, xdstest.WithNode(xds.Node{}))
	one.Subscribe(xds.Cluster, "a")
	one.NACK(one.Next(xds.Cluster), "one's")
	two.Subscribe(xds.Cluster, "a")
	two.NACK(two.Next(xds.Cluster), "two's")
	two.Subscribe(xds.Listener, "l")
	two.Next(xds.Listener)
	want := []string{"CDS a refused body one's", "CDS a refused body two's", "LDS l sent body"}
	var got []string
	for range 2000 { // wait until their last requests have arrived
		if got = ask(t, Clients(tr, nil)(), ""); slices.Equal(got, want) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if all := Clients(tr, nil)(); len(all) != 2 || !slices.Equal(got, want) {
		t.Errorf("%d clients: %q, want %q", len(all), got, want)
	}
}

// Each client has its own client_scope, by which tools without matchers choose a client.
func TestLiveScopes(t *testing.T) {
	tr := &tracker{}
	for i, at := range []struct{ node, ip string }{{"one", "10.0.0.1"}, {"two", "10.0.0.1"}, {"two", "10.0.0.2"}, {"two", "10.0.0.2"}, {"", "10.0.0.1"}} {
		tr.Opened(&server.Stream{ID: uint64(i + 1), Node: &xds.Node{ID: at.node}, Peer: &net.TCPAddr{IP: net.ParseIP(at.ip), Port: i + 1}})
	}
	var got []string
	for _, c := range Clients(tr, nil)() {
		got = append(got, c.Scope)
	}
	if want := []string{"stream:5", "one", "two@10.0.0.1", "two@10.0.0.2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// CSDS over gRPC shows the state of a real server.
func TestLiveService(t *testing.T) {
	tr, st := &tracker{}, store.New()
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(resource(t, xds.Cluster, cluster))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	conn := xdstest.Serve(t, server.New(st, server.WithObserver(tr)))
	c := xdstest.SotW(t, conn, xdstest.WithNode(xds.Node{ID: "one"}))
	c.Subscribe(xds.Cluster, "*")
	c.Expect(xds.Cluster, "backend")
	g := grpc.NewServer()
	csds.New(csds.Options{Clients: Clients(tr, nil)}).Register(g)
	l := bufconn.Listen(1 << 20)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	asks, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asks.Close() })
	got, err := statusv3.NewClientStatusDiscoveryServiceClient(asks).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Config) != 1 || len(got.Config[0].GenericXdsConfigs) != 1 {
		t.Fatal(got)
	}
	is := got.Config[0].GenericXdsConfigs[0]
	if is.Name != "backend" || !is.XdsConfig.MessageIs(cluster) || is.LastUpdated == nil || is.ConfigStatus.String() != "STALE" {
		t.Error(is)
	}
}
