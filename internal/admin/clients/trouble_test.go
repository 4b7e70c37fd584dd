package clients

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A fleet feeds a tracker with streams and events.
type fleet struct {
	*Tracker
	last uint64
}

func at(s string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		panic(err)
	}
	return a
}

func (f *fleet) open(n xds.Node, peer string, only *xds.Type, types ...*xds.Type) *server.Stream {
	f.last++
	st := &server.Stream{ID: f.last, Node: &n, Variant: xds.Delta, Type: only, Peer: at(peer), Since: f.opts.Now()}
	f.Opened(st)
	for _, t := range types {
		f.Event(st, protocol.Event{Kind: protocol.Opened, Type: t})
		f.Event(st, protocol.Event{Kind: protocol.Subscribed, Type: t, Wildcard: true})
		f.send(st, t)
		f.ack(st, t)
	}
	return st
}

func (f *fleet) send(st *server.Stream, t *xds.Type) {
	f.Event(st, protocol.Event{Kind: protocol.Sent, Type: t, Nonce: "1", Version: "v1", Count: 3})
}

func (f *fleet) ack(st *server.Stream, t *xds.Type) {
	f.Event(st, protocol.Event{Kind: protocol.Acked, Type: t, Nonce: "1", Version: "v1", Took: time.Millisecond})
}

func (f *fleet) troubles() (all []string) {
	_, _, ts := f.Summary()
	for _, t := range ts {
		all = append(all, fmt.Sprint(t.Code, " ", t.Node, " ", t.Type, " ", f.opts.Now().Sub(t.Since)))
	}
	return all
}

func TestTroubles(t *testing.T) {
	grpc := func(id string) xds.Node { return xds.Node{ID: id, UserAgentName: "gRPC Go"} }
	for _, c := range []struct {
		name string
		do   func(f *fleet)
		want string
	}{
		{"an Envoy has clusters and asks for no endpoints", func(f *fleet) {
			f.open(envoy("a"), "10.0.0.1:1", nil, xds.Cluster)
			time.Sleep(15 * time.Second)
		}, "[no-eds a EDS 15s]"},
		{"not yet", func(f *fleet) { f.open(envoy("a"), "10.0.0.1:1", nil, xds.Cluster); time.Sleep(14 * time.Second) }, "[]"},
		{"it asks on another stream", func(f *fleet) {
			f.open(envoy("a"), "10.0.0.1:1", xds.Cluster, xds.Cluster)
			f.open(envoy("a"), "10.0.0.1:1", xds.Endpoint, xds.Endpoint)
			time.Sleep(15 * time.Second)
		}, "[]"},
		{"a client of gRPC", func(f *fleet) { f.open(grpc("a"), "10.0.0.1:1", nil, xds.Cluster); time.Sleep(time.Hour) }, "[]"},
		{"its clusters need none", func(f *fleet) {
			f.opts.Expects = func(*xds.Node, *xds.Type) bool { return false }
			f.open(envoy("a"), "10.0.0.1:1", nil, xds.Cluster)
			time.Sleep(time.Hour)
		}, "[]"},
		{"a group of the client has no content", func(f *fleet) {
			f.opts.Unfilled = func(groups []string) string { return groups[1] }
			f.opts.Groups = func(*xds.Node) []string { return []string{"a", "b"} }
			f.open(envoy("a"), "10.0.0.1:1", nil)
			time.Sleep(10 * time.Second)
		}, "[no-resources a  10s]"},
		{"its content may still be loaded", func(f *fleet) {
			f.opts.Unfilled = func([]string) string { return "a" }
			f.open(envoy("a"), "10.0.0.1:1", nil)
			time.Sleep(9 * time.Second)
		}, "[]"},
		{"a client waits for its turn, and its groups have content", func(f *fleet) {
			f.opts.Unfilled = func([]string) string { return "" }
			f.open(envoy("a"), "10.0.0.1:1", nil)
			time.Sleep(time.Hour)
		}, "[]"},
		{"the content was removed after the client got it", func(f *fleet) {
			f.opts.Unfilled = func([]string) string { return "a" }
			f.open(envoy("a"), "10.0.0.1:1", nil, xds.Route)
			time.Sleep(time.Hour)
		}, "[]"},
		{"no answer", func(f *fleet) {
			f.send(f.open(envoy("a"), "10.0.0.1:1", nil, xds.Route), xds.Route)
			time.Sleep(31 * time.Second)
		}, "[unanswered a RDS 31s]"},
		{"no answer to an earlier one", func(f *fleet) {
			st := f.open(envoy("a"), "10.0.0.1:1", nil, xds.Route)
			f.Event(st, protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "2"})
			time.Sleep(31 * time.Second)
			f.Event(st, protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "3"})
			f.Event(st, protocol.Event{Kind: protocol.Acked, Type: xds.Route, Nonce: "3"})
		}, "[unanswered a RDS 31s]"},
		{"SAFE-4 a large response to an Envoy, which has no limit", func(f *fleet) {
			st := f.open(envoy("a"), "10.0.0.1:1", nil, xds.Route)
			f.Event(st, protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "2", Bytes: 5 << 20})
			f.Event(st, protocol.Event{Kind: protocol.Acked, Type: xds.Route, Nonce: "2"})
		}, "[]"},
		{"SAFE-4 a response near the limit of gRPC clients", func(f *fleet) {
			st := f.open(grpc("a"), "10.0.0.1:1", nil, xds.Route)
			f.Event(st, protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "2", Bytes: 3<<20 + 1<<19 + 1})
			f.Event(st, protocol.Event{Kind: protocol.Acked, Type: xds.Route, Nonce: "2"})
			f.Event(st, protocol.Event{Kind: protocol.Sent, Type: xds.Listener, Nonce: "3", Bytes: 3 << 20})
		}, "[near-limit a RDS 0s]"},
		{"two Envoys with one id", func(f *fleet) {
			f.open(envoy("a"), "10.0.0.1:1", nil, xds.Route)
			time.Sleep(5 * time.Second)
			f.open(envoy("a"), "10.0.0.1:2", nil, xds.Route)
			time.Sleep(10 * time.Second)
		}, "[same-node a  10s]"},
		{"one that comes back before it is known to be gone", func(f *fleet) {
			st := f.open(envoy("a"), "10.0.0.1:1", nil, xds.Route)
			time.Sleep(time.Hour)
			f.open(envoy("a"), "10.0.0.1:2", nil, xds.Route)
			time.Sleep(9 * time.Second)
			f.Closed(st, nil)
		}, "[]"},
		{"streams of endpoints, one for each cluster", func(f *fleet) {
			f.open(envoy("a"), "10.0.0.1:1", xds.Endpoint, xds.Endpoint)
			f.open(envoy("a"), "10.0.0.1:2", xds.Endpoint, xds.Endpoint)
			time.Sleep(time.Hour)
		}, "[]"},
		{"who uses gRPC has a connection for each server", func(f *fleet) {
			f.open(grpc("a"), "10.0.0.1:1", nil, xds.Listener)
			f.open(grpc("a"), "10.0.0.1:2", nil, xds.Listener)
			time.Sleep(time.Hour)
		}, "[]"},
		{"two of them", func(f *fleet) {
			f.open(grpc("a"), "10.0.0.1:1", nil, xds.Listener)
			f.open(grpc("a"), "10.0.0.2:1", nil, xds.Listener)
			time.Sleep(10 * time.Second)
		}, "[same-node a  10s]"},
		{"nobody says who it is", func(f *fleet) {
			f.open(envoy(""), "10.0.0.1:1", nil, xds.Listener)
			f.open(envoy(""), "10.0.0.2:1", nil, xds.Listener)
			time.Sleep(10 * time.Second)
		}, "[]"},
		{"it comes and goes", func(f *fleet) {
			for range 5 {
				f.Closed(f.open(envoy("a"), "10.0.0.1:1", nil, xds.Listener), nil)
				time.Sleep(10 * time.Second)
			}
		}, "[flaps a  50s]"},
		{"it did", func(f *fleet) {
			for range 5 {
				f.Closed(f.open(envoy("a"), "10.0.0.1:1", nil, xds.Listener), nil)
				time.Sleep(10 * time.Second)
			}
			time.Sleep(time.Minute)
			f.open(envoy("a"), "10.0.0.1:1", nil, xds.Listener)
		}, "[]"},
		{"it is here again", func(f *fleet) {
			for range 4 {
				f.Closed(f.open(envoy("a"), "10.0.0.1:1", nil, xds.Listener), nil)
			}
			f.open(envoy("a"), "10.0.0.1:1", nil, xds.Listener)
		}, "[flaps a  0s]"},
		{"many streams are no flapping", func(f *fleet) {
			for range 20 {
				f.open(envoy("a"), "10.0.0.1:1", xds.Endpoint, xds.Endpoint)
			}
		}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{Tracker: New(Options{})}
				c.do(f)
				if got := fmt.Sprint(f.troubles()); got != c.want {
					t.Errorf("%s, not %s", got, c.want)
				}
			})
		})
	}
}

// All clients with the same cause are in one refusal.
func TestRefusalsAreGrouped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{Tracker: New(Options{})}
		refuse := func(node string, u *xds.Type, text string, names ...string) *server.Stream {
			st := f.open(envoy(node), "10.0.0.1:1", nil, u)
			f.send(st, u)
			f.Event(st, protocol.Event{Kind: protocol.Nacked, Type: u, Nonce: "1", Names: names, Error: &xds.Status{Message: text}, Refuses: true})
			return st
		}
		var first *server.Stream
		for i := range 30 {
			st := refuse(fmt.Sprintf("n%02d", 29-i), xds.Cluster, fmt.Sprintf("cluster(s) b:  %*s bad", i, ""), "b", "a", "c")
			if i == 0 {
				first = st
			}
			time.Sleep(time.Second)
		}
		refuse("other", xds.Cluster, "cluster(s) c: bad", "c", "a", "b")
		refuse("other2", xds.Listener, "cluster(s) b: bad", "x", "y", "z")
		got := ""
		_, refusals, _ := f.Summary()
		for _, r := range refusals {
			got += fmt.Sprintln(r.Type, r.Error, r.Clients, r.Nodes, r.Resources, r.Partly, f.opts.Now().Sub(r.Since))
		}
		if want := `CDS cluster(s) b: bad 30 [n00 n01 n02 n03 n04 n05 n06 n07 n08 n09] [{CDS b  }] true 30s
CDS cluster(s) c: bad 1 [other] [{CDS c  }] true 0s
LDS cluster(s) b: bad 1 [other2] [{LDS x  } {LDS y  } {LDS z  }] true 0s
`; got != want {
			t.Errorf("%s\nnot %s", got, want)
		}
		f.Closed(first, nil)
		if counts, refusals, _ := f.Summary(); refusals[0].Clients != 29 || counts.By[api.Nacked] != 31 || counts.Connected != 31 {
			t.Errorf("%+v %+v", counts, refusals[0])
		}
		if _, refusals, _ := f.SummaryOf(Filter{Type: xds.Listener}); len(refusals) != 1 || refusals[0].Type != "LDS" {
			t.Errorf("%+v", refusals)
		}
	})
}

// Two groups may have a resource of one name: the refusals of each are separate, even with one error text.
func TestRefusalsOfGroupsAreSeparate(t *testing.T) {
	f := &fleet{Tracker: New(Options{
		Groups: func(n *xds.Node) []string { return []string{n.Cluster} },
		Place:  func(n *xds.Node, _ *xds.Type, name string) string { return n.Cluster + "/" + name + ".yaml:1:1" },
	})}
	for i, group := range []string{"edge", "core", "edge"} {
		n := envoy(fmt.Sprint("n", i))
		n.Cluster = group
		st := f.open(n, fmt.Sprintf("10.0.0.%d:1", i+1), nil, xds.Cluster)
		f.send(st, xds.Cluster)
		f.Event(st, protocol.Event{Kind: protocol.Nacked, Type: xds.Cluster, Nonce: "1", Names: []string{"b"}, Error: &xds.Status{Message: "b is bad"}, Refuses: true})
	}
	got := ""
	_, refusals, _ := f.Summary()
	for _, r := range refusals {
		got += fmt.Sprintln(r.Clients, r.Nodes, r.Resources[0].Place, len(r.Resources))
	}
	if want := "2 [n0 n2] edge/b.yaml:1:1 1\n1 [n1] core/b.yaml:1:1 1\n"; got != want {
		t.Errorf("%s\nnot %s", got, want)
	}
}

// A REST poll is not a client.
func TestPollIsNotAClient(t *testing.T) {
	within(t, "REST and Fetch", func(w *testServer) {
		w.put(xds.Cluster, "one")
		n := envoy("a")
		p, err := w.server.Poll(t.Context(), xds.Cluster, xds.Request{Type: xds.Cluster, Node: &n}, server.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		w.want("")
		p.Close(nil)
		if events := w.Events(0); len(events) != 0 {
			t.Errorf("%+v", events)
		}
	})
}

// Groups are requested once for each client, and again after GroupsChanged.
func TestGroups(t *testing.T) {
	asked, groups := 0, []string{"a"}
	f := &fleet{Tracker: New(Options{Groups: func(*xds.Node) []string { asked++; return groups }, Identity: func(*server.Stream) string { return "spiffe://x/a" }})}
	f.open(envoy("a"), "10.0.0.1:1", nil, xds.Cluster)
	for range 3 {
		if c := f.Client("a")[0]; fmt.Sprint(c.Groups) != "[a]" || c.Identity != "spiffe://x/a" {
			t.Errorf("%+v", c)
		}
	}
	groups = []string{"b"}
	f.GroupsChanged()
	if c := f.Client("a")[0]; fmt.Sprint(c.Groups) != "[b]" || asked != 2 {
		t.Errorf("%+v, asked %d times", c, asked)
	}
	for s := range f.States() {
		if s.State != api.Synced || fmt.Sprint(s.Groups) != "[b]" || len(s.Stale) != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// Ended streams keep the causes of their refusals for a while, then release them.
func TestEndedStreamsReleaseCauses(t *testing.T) {
	now := time.Unix(1000, 0)
	f := &fleet{Tracker: New(Options{Now: func() time.Time { return now }})}
	f.open(envoy("a"), "10.0.0.1:1", nil, xds.Cluster) // stays connected
	refuses := func(text string) {
		t.Helper()
		st := f.open(envoy("a"), "10.0.0.1:1", nil, xds.Cluster)
		f.Event(st, protocol.Event{Kind: protocol.Nacked, Type: xds.Cluster, Nonce: "1", Refuses: true, Error: &xds.Status{Message: text}})
		f.Closed(st, nil)
	}
	for i := range maxEnded + 3 {
		refuses(fmt.Sprint("reason ", i))
	}
	if n := len(f.causes.known); n != maxEnded {
		t.Errorf("%d causes, %d remembered streams", n, maxEnded)
	}
	now = now.Add(endedFor + time.Second)
	refuses("the last")
	if n := len(f.causes.known); n != 1 {
		t.Errorf("%d causes are kept after a while", n)
	}
}
