package clients

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testServer is an xDS server in memory whose streams a tracker observes.
type testServer struct {
	*testing.T
	*Tracker
	*store.Store
	server *server.Server
}

// within runs a test in a synctest bubble.
func within(t *testing.T, name string, f func(w *testServer)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &testServer{T: t, Store: store.New()}
			w.Tracker = New(Options{
				Groups: func(n *xds.Node) []string { return []string{n.Cluster} },
				Place: func(n *xds.Node, t *xds.Type, name string) string {
					return n.Cluster + "/" + strings.ToLower(t.Short) + ".yaml:" + name
				},
			})
			w.server = server.New(w.Store, server.WithObserver(w.Tracker), server.WithLogger(slog.New(slog.DiscardHandler)))
			f(w)
		})
	})
}

func (w *testServer) put(t *xds.Type, names ...string) {
	w.Helper()
	if _, err := w.Store.Update(func(tx *store.Tx) error {
		for _, n := range names {
			name, content, _ := strings.Cut(n, "=")
			tx.Set(xds.NewResource(t, name, []byte(content)))
		}
		return nil
	}); err != nil {
		w.Fatal(err)
	}
}

func envoy(id string) xds.Node {
	return xds.Node{ID: id, Cluster: "edge", UserAgentName: "envoy", UserAgentVersion: "1.40.0"}
}

func (w *testServer) client(v xds.Variant, n xds.Node, opts ...xdstest.Option) *xdstest.Client {
	conn := xdstest.Serve(w.T, w.server)
	opts = append(opts, xdstest.WithNode(n), xdstest.WithTimeout(time.Hour))
	if v == xds.Delta {
		return xdstest.Delta(w.T, conn, opts...)
	}
	return xdstest.SotW(w.T, conn, opts...)
}

// states lists all clients with the states of their types, then the troubles.
func (w *testServer) states() string {
	synctest.Wait()
	var lines []string
	for _, c := range w.Clients(Filter{All: true, Left: true}).Items {
		line := c.Node + " " + string(c.State)
		for _, u := range c.Types {
			line += fmt.Sprintf(" %s:%s", u.Type, u.State)
		}
		for _, t := range c.Troubles {
			line += " " + t.Code + "!"
		}
		if c.Left != nil {
			line += " left"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func (w *testServer) want(want string) {
	w.Helper()
	if got := w.states(); got != want {
		w.Fatalf("%s\nnot %s", got, want)
	}
}

var variants = []xds.Variant{xds.SotW, xds.Delta}

func TestStates(t *testing.T) {
	for _, v := range variants {
		within(t, v.String()+" from nothing to in step, and back", func(w *testServer) {
			c := w.client(v, envoy("a"))
			c.Subscribe(xds.Cluster, "*")
			w.want("a WAITING") // the store has no content yet
			w.put(xds.Cluster, "one")
			w.want("a SENT CDS:SENT")
			r := c.Next(xds.Cluster)
			time.Sleep(29 * time.Second)
			w.want("a SENT CDS:SENT")
			time.Sleep(time.Second)
			w.want("a STALE CDS:STALE unanswered!")
			c.ACK(r)
			w.want("a SYNCED CDS:SYNCED")
			c.Subscribe(xds.Endpoint, "one")
			synctest.Wait()
			if got := w.states(); v == xds.SotW && got != "a NOT_SENT CDS:SYNCED EDS:NOT_SENT" { // SotW cannot report the missing resources
				t.Error(got)
			}
			w.put(xds.Endpoint, "one")
			if v == xds.Delta {
				c.ACK(c.Next(xds.Endpoint)) // as missing
			}
			c.ACK(c.Next(xds.Endpoint))
			w.want("a SYNCED CDS:SYNCED EDS:SYNCED")
			c.Unsubscribe(xds.Endpoint, "one")
			w.want("a SYNCED CDS:SYNCED EDS:IDLE")
			c.Close()
			w.want("a SYNCED CDS:SYNCED EDS:IDLE left")
		})
		within(t, v.String()+" refused, and made up for", func(w *testServer) {
			w.put(xds.Cluster, "one", "two")
			c := w.client(v, envoy("a"))
			c.Subscribe(xds.Cluster, "*")
			c.NACK(c.Next(xds.Cluster), "Error adding/updating cluster(s) two: no such thing")
			w.want("a NACKED CDS:NACKED")
			got := w.Client("a")[0].Types[0]
			if n := got.Nacked; n == nil || n.Error != "Error adding/updating cluster(s) two: no such thing" || got.Acked != nil || got.Sent.Resources != 2 ||
				fmt.Sprint(n.Resources) != "[{CDS two edge/cds.yaml:two }]" || n.Nonce != got.Sent.Nonce {
				t.Errorf("%+v %+v", got, got.Nacked)
			}
			if _, refusals, _ := w.Summary(); len(refusals) != 1 || !refusals[0].Partly || refusals[0].Clients != 1 || refusals[0].Nodes[0] != "a" {
				t.Errorf("%+v", refusals)
			}
			w.put(xds.Cluster, "two=mended")
			w.want("a NACKED CDS:NACKED") // until it accepts the resource
			c.ACK(c.Next(xds.Cluster))
			w.want("a SYNCED CDS:SYNCED")
			if _, refusals, _ := w.Summary(); len(refusals) != 0 || len(w.causes.known) != 0 || w.causes.bytes != 0 {
				t.Errorf("%+v %+v", refusals, w.causes.known)
			}
		})
		within(t, v.String()+" refused, and not wanted any more", func(w *testServer) {
			w.put(xds.Endpoint, "one", "two")
			c := w.client(v, envoy("a"))
			c.Subscribe(xds.Endpoint, "one")
			c.ACK(c.Next(xds.Endpoint))
			c.Subscribe(xds.Endpoint, "two")
			c.NACK(c.Next(xds.Endpoint), "two is bad")
			w.want("a NACKED EDS:NACKED")
			c.Unsubscribe(xds.Endpoint, "two")
			w.want("a SYNCED EDS:SYNCED")
		})
	}
	within(t, "a delta client that comes back with all that there is, is told nothing", func(w *testServer) {
		w.put(xds.Endpoint, "one")
		c := w.client(xds.Delta, envoy("a"))
		c.Subscribe(xds.Endpoint, "one")
		c.ACK(c.Next(xds.Endpoint))
		synctest.Wait()
		c.Close()
		synctest.Wait() // otherwise the two clients would count as one
		w.client(xds.Delta, envoy("a")).Resume(xds.Endpoint, c)
		w.want("a SYNCED EDS:SYNCED; a SYNCED EDS:SYNCED left")
	})
	within(t, "several responses are under way", func(w *testServer) {
		w.put(xds.Endpoint, "one=1", "two=1")
		c := w.client(xds.Delta, envoy("a"))
		c.Subscribe(xds.Endpoint, "one")
		first := c.Next(xds.Endpoint)
		c.Subscribe(xds.Endpoint, "two")
		synctest.Wait()
		c.ACK(c.Next(xds.Endpoint))
		w.want("a SENT EDS:SENT")
		c.ACK(first)
		w.want("a SYNCED EDS:SYNCED")
	})
}

// A client with one stream for each type counts as one client, also after it has disconnected.
func TestSeveralStreams(t *testing.T) {
	within(t, "streams of single types", func(w *testServer) {
		w.put(xds.Cluster, "one")
		w.put(xds.Listener, "in")
		conn := xdstest.Serve(w.T, w.server)
		var clients []*xdstest.Client
		for _, u := range []*xds.Type{xds.Listener, xds.Cluster} {
			c := xdstest.SotW(w.T, conn, xdstest.WithNode(envoy("a")), xdstest.WithType(u))
			c.Subscribe(u)
			c.ACK(c.Next(u))
			clients = append(clients, c)
		}
		w.want("a SYNCED CDS:SYNCED LDS:SYNCED")
		if c := w.Client("a")[0]; len(c.Streams) != 2 || c.Streams[0].API != "LDS" || c.Streams[0].Variant != "sotw" || c.Agent != "envoy 1.40.0" || !slices.Equal(c.Groups, []string{"edge"}) {
			t.Errorf("%+v", c)
		}
		if got := w.Streams("a"); len(got) != 2 || len(w.Streams("b")) != 0 || len(w.Selected(Filter{Type: xds.Cluster})) != 2 || len(w.Selected(Filter{Type: xds.Route})) != 0 {
			t.Errorf("%+v", got)
		}
		for _, c := range clients {
			c.Close()
		}
		w.want("a SYNCED CDS:SYNCED LDS:SYNCED left")
		if c := w.Client("a")[0]; c.Left == nil || c.Left.Code == "" || c.Left.Why == "" {
			t.Errorf("%+v", c.Left)
		}
	})
}

func TestFilter(t *testing.T) {
	within(t, "who is selected", func(w *testServer) {
		w.put(xds.Cluster, "one")
		for i, id := range []string{"b/2", "a/1", "c"} {
			n := envoy(id)
			n.Cluster = []string{"edge", "core", "edge"}[i]
			c := w.client(xds.Delta, n)
			c.Subscribe(xds.Cluster, "*")
			c.ACK(c.Next(xds.Cluster))
			if id == "c" {
				w.put(xds.Cluster, "one=bad")
				c.NACK(c.Next(xds.Cluster), "bad")
			}
			synctest.Wait()
		}
		for _, x := range []struct {
			f    Filter
			want string
		}{
			{Filter{}, "3 hides 0: c a/1 b/2"}, // the other clients have not answered
			{Filter{Limit: 1}, "3 hides 0: c"},
			{Filter{Limit: 1, Offset: 1}, "3 hides 0: a/1"},
			{Filter{Offset: 4}, "3 hides 0:"},
			{Filter{All: true, Group: "edge"}, "2 hides 0: c b/2"},
			{Filter{All: true, Node: pattern(t, "*/*")}, "2 hides 0: a/1 b/2"},
			{Filter{States: []api.State{api.Sent}}, "2 hides 0: a/1 b/2"},
			{Filter{Type: xds.Route}, "0 hides 0:"},
			{Filter{Type: xds.Cluster, States: []api.State{api.Nacked}}, "1 hides 0: c"},
		} {
			l := w.Clients(x.f)
			got := fmt.Sprintf("%d hides %d:", l.Total, l.Hidden)
			for _, c := range l.Items {
				got += " " + c.Node
			}
			if got != x.want {
				t.Errorf("%+v: %s, not %s", x.f, got, x.want)
			}
		}
		if got := w.Nodes("a", 5); !slices.Equal(got, []string{"a/1"}) {
			t.Error(got)
		}
	})
}

// A client without a node ID is found by its stream. A node that chooses such a name as its ID does not hide it.
func TestClientWithoutNodeID(t *testing.T) {
	tr := New(Options{})
	a, b := &server.Stream{ID: 7, Node: &xds.Node{}}, &server.Stream{ID: 8, Node: &xds.Node{}}
	tr.Opened(a)
	tr.Opened(b)
	if all := tr.Client("stream:8"); len(all) != 1 || all[0].Path != "stream:8" || all[0].Node != "" {
		t.Errorf("%+v", all)
	}
	if all := tr.Streams("stream:7"); len(all) != 1 || all[0] != a {
		t.Error(all)
	}
	tr.Closed(b, nil)
	if all := tr.Client("stream:8"); len(all) != 1 || all[0].Left == nil {
		t.Errorf("the disconnected client: %+v", all)
	}
	for id, name := range map[uint64]string{9: "stream:7", 10: "stream:8", 11: "stream:99"} {
		tr.Opened(&server.Stream{ID: id, Node: &xds.Node{ID: name}})
	}
	if all := tr.Client("stream:7"); len(all) != 1 || all[0].Node != "" || all[0].Path != "stream:7" {
		t.Errorf("a node has the name as its ID: %+v", all)
	}
	if all := tr.Streams("stream:7"); len(all) != 1 || all[0] != a {
		t.Errorf("a node has the name as its ID: %+v", all)
	}
	if all := tr.Client("stream:8"); len(all) != 1 || all[0].Node != "" {
		t.Errorf("a node has the name of the disconnected client: %+v", all)
	}
	if all := tr.Streams("stream:8"); len(all) != 0 {
		t.Errorf("a node has the name of the disconnected client: %+v", all)
	}
	if all := tr.Client("stream:99"); len(all) != 1 || all[0].Node != "stream:99" || all[0].Path != "" {
		t.Errorf("no other client has the name: %+v", all)
	}
	for _, path := range []string{"stream:", "stream:0", "stream:x", "stream:98", "7"} {
		if all := tr.Client(path); len(all) != 0 {
			t.Errorf("%s: %+v", path, all)
		}
	}
}

func pattern(t *testing.T, text string) *glob.Pattern {
	t.Helper()
	p, err := glob.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}
