package clients

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

const tooBig = 57 * xds.GRPCMessageSize / 40 // 5.7 MiB

// ends opens a stream and sends a response of some bytes. The client then ends the stream.
func (f *fleet) ends(n xds.Node, t *xds.Type, bytes int, answers ...protocol.Event) {
	f.endsWith(n, t, bytes, status.Error(codes.Canceled, "context canceled"), answers...)
}

func (f *fleet) endsWith(n xds.Node, t *xds.Type, bytes int, err error, answers ...protocol.Event) {
	st := f.open(n, "10.0.0.1:1", nil, xds.Listener)
	f.Event(st, protocol.Event{Kind: protocol.Sent, Type: t, Nonce: "7", Bytes: bytes})
	for _, e := range answers {
		e.Type, e.Nonce = t, "7"
		f.Event(st, e)
	}
	time.Sleep(time.Second)
	f.Closed(st, err)
	time.Sleep(20 * time.Second)
}

func TestDisconnectLoops(t *testing.T) {
	grpc := xds.Node{ID: "a", Cluster: "edge", UserAgentName: "gRPC Go"}
	ack, nack := protocol.Event{Kind: protocol.Acked}, protocol.Event{Kind: protocol.Nacked}
	for _, c := range []struct {
		name string
		do   func(f *fleet)
		want string
	}{
		{"SAFE-4 a gRPC client that cannot read a response", func(f *fleet) {
			for range 14 {
				f.ends(grpc, xds.Cluster, tooBig)
			}
		}, "CDS a 293s it left right after a response of CDS with 5.7 MiB, 14 times; gRPC clients accept 4 MiB by default"},
		{"an Envoy has no limit", func(f *fleet) {
			for range 3 {
				f.ends(envoy("a"), xds.Cluster, tooBig)
			}
		}, "CDS a 62s it left right after a response of CDS with 5.7 MiB, 3 times"},
		{"a small response", func(f *fleet) {
			for range 3 {
				f.ends(grpc, xds.Endpoint, 700)
			}
		}, "EDS a 62s it left right after a response of EDS with 700 bytes, 3 times"},
		{"only twice", func(f *fleet) { f.ends(grpc, xds.Cluster, tooBig); f.ends(grpc, xds.Cluster, tooBig) }, ""},
		{"with an ACK", func(f *fleet) {
			for range 5 {
				f.ends(grpc, xds.Cluster, tooBig, ack)
			}
		}, ""},
		{"with a NACK", func(f *fleet) {
			for range 5 {
				f.ends(grpc, xds.Cluster, tooBig, nack)
			}
		}, ""},
		{"until an ACK", func(f *fleet) {
			for range 5 {
				f.ends(grpc, xds.Cluster, tooBig)
			}
			f.ends(grpc, xds.Cluster, 100, ack)
			f.ends(grpc, xds.Cluster, tooBig)
		}, ""},
		{"an ACK of another type", func(f *fleet) {
			for range 3 {
				f.ends(grpc, xds.Cluster, tooBig)
			}
			f.ends(grpc, xds.Route, 10, ack)
		}, "CDS a 83s it left right after a response of CDS with 5.7 MiB, 3 times; gRPC clients accept 4 MiB by default"},
		{"the largest response counts", func(f *fleet) {
			for range 3 {
				f.ends(grpc, xds.Endpoint, 10)
				f.ends(grpc, xds.Cluster, tooBig)
			}
		}, "CDS a 104s it left right after a response of CDS with 5.7 MiB, 3 times; gRPC clients accept 4 MiB by default"},
		{"the server ended the streams", func(f *fleet) {
			for range 5 {
				f.endsWith(grpc, xds.Cluster, tooBig, status.Error(codes.Unavailable, "the stream has reached its maximum age: reconnect"))
			}
		}, ""},
		{"long after the response", func(f *fleet) {
			for range 5 {
				st := f.open(grpc, "10.0.0.1:1", nil)
				f.send(st, xds.Cluster)
				time.Sleep(leavesWithin + time.Second)
				f.Closed(st, nil)
			}
		}, ""},
		{"streams of one connection", func(f *fleet) {
			var all []*server.Stream
			for range 5 {
				st := f.open(grpc, "10.0.0.1:1", xds.Endpoint)
				f.send(st, xds.Endpoint)
				all = append(all, st)
			}
			for _, st := range all {
				time.Sleep(time.Millisecond)
				f.Closed(st, nil)
			}
		}, ""},
		{"without a node ID", func(f *fleet) {
			for range 5 {
				f.ends(xds.Node{}, xds.Cluster, tooBig)
			}
		}, ""},
		{"long ago", func(f *fleet) {
			for range 5 {
				f.ends(grpc, xds.Cluster, tooBig)
			}
			time.Sleep(loopFor)
		}, ""},
		{"rarely", func(f *fleet) {
			for range 5 {
				f.ends(grpc, xds.Cluster, tooBig)
				time.Sleep(loopFor)
			}
			f.ends(grpc, xds.Cluster, tooBig)
		}, ""},
		{"connected again", func(f *fleet) {
			for range 3 {
				f.ends(grpc, xds.Cluster, tooBig)
			}
			f.open(grpc, "10.0.0.1:1", nil, xds.Listener)
		}, "CDS a 62s it left right after a response of CDS with 5.7 MiB, 3 times; gRPC clients accept 4 MiB by default"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{Tracker: New(Options{Groups: func(n *xds.Node) []string { return []string{n.Cluster} }})}
				c.do(f)
				_, _, all := f.Summary()
				got := ""
				for _, x := range all {
					if x.Code == api.DisconnectLoop {
						got += fmt.Sprint(x.Type, " ", x.Node, " ", f.opts.Now().Sub(x.Since).Round(time.Second).Seconds(), "s ", x.Text)
					}
				}
				if got != c.want {
					t.Errorf("%q, not %q", got, c.want)
				}
				loops := 0
				for _, l := range f.Loops(Filter{}) {
					if l.Certain {
						loops++
					}
				}
				if loops != min(len(c.want), 1) {
					t.Errorf("%+v", f.Loops(Filter{}))
				}
				if c.want == "" {
					return
				}
				card := f.Client("a")[0]
				if len(card.Troubles) == 0 || card.Troubles[0].Text == "" || card.Troubles[0].Code != api.DisconnectLoop {
					t.Errorf("the client does not show the loop: %+v", card)
				}
			})
		})
	}
}

// A loop has the groups of its node, also while no client of the node is connected. A client that has left
// once is awaited for a while.
func TestLoopsOfAFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{Tracker: New(Options{Groups: func(n *xds.Node) []string { return []string{n.Cluster} }})}
		n := xds.Node{ID: "a", Cluster: "edge"}
		for range 3 {
			f.ends(n, xds.Cluster, tooBig)
		}
		node := func(p string) *glob.Pattern {
			g, err := glob.Compile(p)
			if err != nil {
				t.Fatal(err)
			}
			return &g
		}
		for _, c := range []struct {
			f    Filter
			want int
		}{
			{Filter{}, 1}, {Filter{Group: "edge"}, 1}, {Filter{Group: "other"}, 0}, {Filter{Type: xds.Cluster}, 1}, {Filter{Type: xds.Route}, 0},
			{Filter{Node: node("a")}, 1}, {Filter{Node: node("b")}, 0},
		} {
			if all := f.Loops(c.f); len(all) != c.want {
				t.Errorf("%+v: %+v", c.f, all)
			}
			if _, _, all := f.SummaryOf(Filter{Group: c.f.Group}); c.f.Node == nil && c.f.Type == nil && len(all) != c.want {
				t.Errorf("%+v: %+v", c.f, all)
			}
		}
		time.Sleep(loopFor)
		st := f.open(n, "10.0.0.1:1", nil)
		f.send(st, xds.Cluster)
		f.Closed(st, nil)
		if all := f.Loops(Filter{}); len(all) != 1 || all[0].Certain || !all[0].At.Equal(f.opts.Now()) {
			t.Errorf("%+v", all)
		}
		time.Sleep(returnsIn + 1)
		if all := f.Loops(Filter{}); len(all) != 0 {
			t.Errorf("%+v", all)
		}
	})
}
