package server

import (
	"context"
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A named source knows the identity of each watch.
type named struct{ *store.Store }

type namedWatch struct{ *store.Watch }

type name string

func (n name) String() string { return string(n) }

func (namedWatch) Identity() fmt.Stringer { return name("who") }

func (n named) Watch(ctx context.Context, node *xds.Node) (namedWatch, error) {
	w, err := n.Store.Watch(ctx, node)
	return namedWatch{w}, err
}

// who is an observer that collects identities.
type who chan string

func (w who) Opened(s *Stream)              { w <- fmt.Sprint(s.Identity) }
func (w who) Event(*Stream, protocol.Event) {}
func (w who) Closed(*Stream, error)         {}

func TestIdentityWatch(t *testing.T) {
	within(t, "SAFE-13 observers get the identity of a stream or poll, if its watch knows the identity", func(t *testing.T) {
		told := make(who, 10)
		st := store.New(store.WithEmptyGroups())
		w := serveFrom(t, New(named{st}, WithObserver(told)))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n"}})
		if got := <-told; got != "who" {
			t.Error(got)
		}
		p, err := w.Poll(t.Context(), xds.Cluster, xds.Request{Node: &xds.Node{ID: "n"}}, Caller{})
		if err != nil {
			t.Fatal(err)
		}
		p.Close(nil)
		if got := <-told; got != "who" {
			t.Error(got)
		}
	})
}
