package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// strict refuses nodes without a cluster, and refuses nodes of cluster "busy" with its own status.
func strict(ctx context.Context, n *xds.Node) ([]string, error) {
	if _, ok := peer.FromContext(ctx); !ok {
		return nil, errors.New("the connection is not known")
	}
	switch n.Cluster {
	case "":
		return nil, fmt.Errorf("node %q is of no cluster", n.ID)
	case "busy":
		return nil, status.Error(codes.Unavailable, "later")
	}
	return []string{n.Cluster, store.DefaultGroup}, nil
}

// "The management server decides which resources to send to a client based on the node": it may also send none.
func TestDenied(t *testing.T) {
	start := func(t *testing.T) (*world, *store.Store) {
		st, log := store.New(store.WithGroups(strict)), &logbook{}
		put(t, st, xds.Cluster, res("a", "1"))
		if _, err := st.Update(func(tx *store.Tx) error { tx.Group("edge").MarkKnown(); return nil }); err != nil {
			t.Fatal(err)
		}
		w := serveFrom(t, New(st, log.at(slog.LevelWarn)))
		w.log = log
		return w, st
	}
	for _, tt := range []struct {
		node *corev3.Node
		code codes.Code
		want string
	}{
		{&corev3.Node{Id: "stray"}, codes.PermissionDenied, `node "stray" is of no cluster`},
		{nil, codes.PermissionDenied, `node "" is of no cluster`},
		{&corev3.Node{Id: "n", Cluster: "busy"}, codes.Unavailable, "later"},
	} {
		within(t, fmt.Sprint("SUB-4 ", tt.want), func(t *testing.T) {
			w, _ := start(t)
			conn := w.dial(t)
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: tt.node})
			if s := status.Convert(c.end()); s.Code() != tt.code || s.Message() != tt.want {
				t.Errorf("the stream ends with %v", s)
			}
			synctest.Wait()
			if lines := w.log.lines("its node may see nothing"); len(lines) != 1 || !strings.Contains(lines[0], strings.ReplaceAll(tt.want, `"`, `\"`)) {
				t.Errorf("the log says %q", lines)
			}
			if s := w.Stats(); s.Denied != 1 || s.Malformed != 0 || s.Open != 0 {
				t.Errorf("%+v", s)
			}
			node := &xds.Node{ID: tt.node.GetId(), Cluster: tt.node.GetCluster()}
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}})
			if _, err := w.Poll(ctx, xds.Cluster, xds.Request{Node: node}, Caller{}); status.Code(err) != tt.code {
				t.Errorf("a poll ends with %v", err)
			}
		})
	}
	within(t, "SUB-4 a node that is refused later", func(t *testing.T) {
		w, st := start(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: "n", Cluster: "edge"}})
		r := c.want()
		c.send(ack(r))
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}})
		p, err := w.Poll(ctx, xds.Cluster, xds.Request{Node: &xds.Node{ID: "n", Cluster: "edge"}, Version: r.VersionInfo}, Caller{})
		if err != nil || p.Ready() {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() {
			if _, err := st.Update(func(tx *store.Tx) error {
				tx.Select(func(context.Context, *xds.Node) ([]string, error) { return nil, errors.New("nobody") })
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		if _, err := p.Wait(t.Context(), MaxHold); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a held poll ends with %v", err)
		}
		p.Close(nil)
		if s := status.Convert(c.end()); s.Code() != codes.PermissionDenied || s.Message() != "nobody" {
			t.Errorf("the stream ends with %v", s)
		}
		if n := w.Stats().Denied; n != 2 {
			t.Errorf("%d were refused", n)
		}
	})
}

// A client that now sees other groups gets the difference. Resources to which other resources still
// refer are removed last.
func TestOtherGroups(t *testing.T) {
	within(t, "ADS-3 SUB-4 from a canary group back to the group of all nodes", func(t *testing.T) {
		in := func(groups ...string) store.Selector {
			return func(context.Context, *xds.Node) ([]string, error) { return groups, nil }
		}
		st := store.New(store.WithGroups(in("canary", store.DefaultGroup)))
		refers := func(body, cluster string) *xds.Resource {
			r := res("route", body)
			r.Refs = []xds.Ref{{Type: xds.Cluster, Name: cluster}}
			return r
		}
		put(t, st, xds.Cluster, res("stable", "1"))
		put(t, st, xds.Route, refers("to stable", "stable"))
		if _, err := st.Update(func(tx *store.Tx) error {
			tx.Group("canary").Set(of(xds.Cluster, res("canary", "1"))...)
			tx.Group("canary").Set(of(xds.Route, refers("to canary", "canary"))...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		w := serveFrom(t, New(st))
		c := w.delta(t, w.dial(t))
		next := func() *discovery.DeltaDiscoveryResponse {
			r := c.want()
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
			return r
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if r := next(); len(r.Resources) != 2 {
			t.Fatalf("clusters: %v", r)
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Route.URL, ResourceNamesSubscribe: []string{"route"}})
		if r := next(); len(r.Resources) != 1 {
			t.Fatalf("route: %v", r)
		}
		synctest.Wait()
		if _, err := st.Update(func(tx *store.Tx) error {
			tx.Select(in(store.DefaultGroup))
			tx.Group("canary").Delete(xds.Cluster, "canary")
			tx.Group("canary").Delete(xds.Route, "route")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if r := next(); r.TypeUrl != xds.Route.URL || len(r.Resources) != 1 {
			t.Errorf("\"the management server should send CDS/EDS, LDS/RDS, then remove\": first of all came %v", r)
		}
		if r := next(); r.TypeUrl != xds.Cluster.URL || len(r.RemovedResources) != 1 || r.RemovedResources[0] != "canary" {
			t.Errorf("then came %v", r)
		}
		c.idle("nothing else has changed")
	})
	within(t, "SUB-4 to groups with unknown content", func(t *testing.T) {
		st := store.New()
		put(t, st, xds.Cluster, res("a", "1"))
		w := serveFrom(t, New(st))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.send(ack(c.want()))
		if _, err := st.Update(func(tx *store.Tx) error {
			tx.Select(func(context.Context, *xds.Node) ([]string, error) { return []string{"later"}, nil })
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if s := status.Convert(c.end()); s.Code() != codes.Unavailable {
			t.Errorf("the stream ends with %v", s)
		}
		c = w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		if _, err := st.Update(func(tx *store.Tx) error { tx.Group("later").Set(of(xds.Cluster, res("b", "1"))...); return nil }); err != nil {
			t.Fatal(err)
		}
		if r := c.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "1" {
			t.Errorf("got %v", r)
		}
	})
}
