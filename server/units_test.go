package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// perType is a server with a store, for clients with a stream for each type.
type perType struct {
	*world
	store *store.Store
	t     *testing.T
}

func servePerType(t *testing.T, opts ...Option) *perType {
	st := store.New()
	p := &perType{serveFrom(t, New(st, opts...)), st, t}
	p.commit(func(tx *store.Tx) {
		tx.Set(of(xds.Cluster, refers("x"))...)
		tx.Set(of(xds.Route, refers("r", xds.Ref{Type: xds.Cluster, Name: "x"}))...)
	})
	return p
}

func refers(name string, refs ...xds.Ref) *xds.Resource {
	r := res(name, fmt.Sprint(name, refs))
	r.Refs = append([]xds.Ref{}, refs...)
	r.Seal("")
	return r
}

func (p *perType) commit(f func(tx *store.Tx)) {
	p.t.Helper()
	if _, err := p.store.Update(func(tx *store.Tx) error { f(tx); return nil }); err != nil {
		p.t.Fatal(err)
	}
}

// repoint replaces cluster x by y.
func (p *perType) repoint() {
	p.t.Helper()
	p.commit(func(tx *store.Tx) {
		tx.Delete(xds.Cluster, "x")
		tx.Set(of(xds.Cluster, refers("y"))...)
		tx.Set(of(xds.Route, refers("r", xds.Ref{Type: xds.Cluster, Name: "y"}))...)
	})
}

type deltaStream = grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]

// open opens a delta stream of a type, and subscribes to names, or to all.
func (p *perType) open(conn *grpc.ClientConn, t *xds.Type, node string, names ...string) *deltaClient {
	p.t.Helper()
	var s deltaStream
	var err error
	switch t {
	case xds.Cluster:
		s, err = clusterservice.NewClusterDiscoveryServiceClient(conn).DeltaClusters(p.t.Context())
	case xds.Route:
		s, err = routeservice.NewRouteDiscoveryServiceClient(conn).DeltaRoutes(p.t.Context())
	default:
		s, err = endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
	c := &deltaClient{p.t, s}
	c.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: node}, ResourceNamesSubscribe: names})
	return c
}

// takes receives a response, and checks its first resource or removed name.
func takes(t *testing.T, c *deltaClient, want string) *discovery.DeltaDiscoveryRequest {
	t.Helper()
	r := c.want()
	var got string
	for _, one := range r.Resources {
		got += one.Name
	}
	for _, name := range r.RemovedResources {
		got += "-" + name
	}
	if got != want {
		t.Fatalf("got %s, not %s", got, want)
	}
	return &discovery.DeltaDiscoveryRequest{ResponseNonce: r.Nonce}
}

func TestUnits(t *testing.T) {
	within(t, "ADS-11 the streams of a node on a connection wait for each other", func(t *testing.T) {
		p := servePerType(t)
		conn := p.dialFrom(t, "192.0.2.1")
		c, r := p.open(conn, xds.Cluster, "n"), p.open(conn, xds.Route, "n", "r")
		c.send(takes(t, c, "x"))
		r.send(takes(t, r, "r"))
		synctest.Wait()
		began := time.Now()
		p.repoint()
		ack := takes(t, c, "y")
		time.Sleep(time.Second)
		c.send(ack)
		accepted := takes(t, r, "r")
		if took := time.Since(began); took != time.Second {
			t.Errorf("the route came after %v, without an ACK of its cluster", took)
		}
		time.Sleep(9 * time.Second)
		r.send(accepted)
		takes(t, c, "-x")
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the old cluster left after %v: the route was accepted after 10 s", took)
		}
	})
	within(t, "ADS-11 an unreferenced cluster goes at once", func(t *testing.T) {
		p := servePerType(t)
		p.commit(func(tx *store.Tx) { tx.Set(of(xds.Cluster, refers("unused"))...) })
		c := p.open(p.dialFrom(t, "192.0.2.1"), xds.Cluster, "n")
		c.send(takes(t, c, "unusedx"))
		synctest.Wait()
		began := time.Now()
		p.commit(func(tx *store.Tx) { tx.Delete(xds.Cluster, "unused") })
		c.send(takes(t, c, "-unused"))
		if took := time.Since(began); took != 0 {
			t.Errorf("it stayed for %v", took)
		}
	})
	for name, other := range map[string]func(p *perType, conn *grpc.ClientConn) *deltaClient{
		"routes on another connection": func(p *perType, _ *grpc.ClientConn) *deltaClient {
			return p.open(p.dialFrom(p.t, "192.0.2.2"), xds.Route, "n", "r")
		},
		"routes of another node": func(p *perType, conn *grpc.ClientConn) *deltaClient { return p.open(conn, xds.Route, "m", "r") },
		"routes of a stream with other contents of the node": func(p *perType, conn *grpc.ClientConn) *deltaClient {
			s, err := routeservice.NewRouteDiscoveryServiceClient(conn).DeltaRoutes(p.t.Context())
			if err != nil {
				p.t.Fatal(err)
			}
			c := &deltaClient{p.t, s}
			c.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n", Cluster: "other"}, ResourceNamesSubscribe: []string{"r"}})
			return c
		},
		"a second stream of clusters": func(p *perType, conn *grpc.ClientConn) *deltaClient {
			c := p.open(conn, xds.Cluster, "n")
			c.send(takes(p.t, c, "x"))
			return p.open(conn, xds.Route, "n", "r")
		},
	} {
		within(t, "ADS-11 the grace period holds: "+name, func(t *testing.T) {
			p := servePerType(t)
			conn := p.dialFrom(t, "192.0.2.1")
			c := p.open(conn, xds.Cluster, "n")
			c.send(takes(t, c, "x"))
			r := other(p, conn)
			r.send(takes(t, r, "r"))
			synctest.Wait()
			began := time.Now()
			p.repoint()
			r.send(takes(t, r, "r")) // without a wait for the cluster
			c.send(takes(t, c, "y"))
			takes(t, c, "-x")
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("the old cluster left after %v", took)
			}
		})
	}
	within(t, "ADS-11 ADS-9 a stream that ends keeps its references for the grace period", func(t *testing.T) {
		p := servePerType(t)
		conn := p.dialFrom(t, "192.0.2.1")
		c := p.open(conn, xds.Cluster, "n")
		c.send(takes(t, c, "x"))
		ctx, end := context.WithCancel(t.Context())
		s, err := routeservice.NewRouteDiscoveryServiceClient(conn).DeltaRoutes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r := &deltaClient{t, s}
		r.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, ResourceNamesSubscribe: []string{"r"}})
		r.send(takes(t, r, "r"))
		p.repoint()
		c.send(takes(t, c, "y"))
		takes(t, r, "r")
		time.Sleep(time.Second)
		end()
		synctest.Wait()
		began := time.Now()
		takes(t, c, "-x")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the old cluster left after %v", took)
		}
	})
	within(t, "ADS-11 a log that hangs delays only one stream", func(t *testing.T) {
		hangs := hangingLog{slog.DiscardHandler, make(chan struct{})}
		defer close(hangs.ends)
		p := servePerType(t, WithLogger(slog.New(hangs)))
		conn := p.dialFrom(t, "192.0.2.1")
		c, r := p.open(conn, xds.Cluster, "n"), p.open(conn, xds.Route, "n", "r")
		c.send(takes(t, c, "x"))
		nack := takes(t, r, "r")
		nack.ErrorDetail = &rpcstatus.Status{Code: 3, Message: "no"}
		r.send(nack)
		synctest.Wait()
		p.repoint()
		c.send(takes(t, c, "y"))
	})
	within(t, "ADS-11 SAFE-1 a client with too many streams", func(t *testing.T) {
		p := servePerType(t)
		p.units.max = 3
		conn := p.dialFrom(t, "192.0.2.1")
		c := p.open(conn, xds.Cluster, "n")
		c.send(takes(t, c, "x"))
		for i := range 4 {
			p.open(conn, xds.Endpoint, "n", fmt.Sprint(i))
		}
		synctest.Wait()
		began := time.Now()
		p.repoint()
		c.send(takes(t, c, "y"))
		takes(t, c, "-x")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the old cluster left after %v", took)
		}
	})
}

// An expiring source has watches that end one by one, as tokens expire.
type expiring struct {
	*store.Store
	watches []*expiringWatch
}

type expiringWatch struct {
	*store.Watch
	ended *error // the error is nil: the content is unknown
}

func (e *expiring) Watch(ctx context.Context, n *xds.Node) (*expiringWatch, error) {
	of, err := e.Store.Watch(ctx, n)
	w := &expiringWatch{Watch: of}
	e.watches = append(e.watches, w)
	return w, err
}

func (w *expiringWatch) Next() (xds.View, []xds.Names, error) {
	if w.ended != nil {
		return nil, nil, *w.ended
	}
	return w.Watch.Next()
}

// ADS-11: the end of one stream leaves the others of its client alone, also if a step of another stream finds the end.
func TestUnitsEndAlone(t *testing.T) {
	for what, end := range map[string]struct {
		err  error
		want codes.Code
	}{
		"the token of one stream expires":         {errors.New("expired"), codes.PermissionDenied},
		"the content for one stream gets unknown": {nil, codes.Unavailable},
	} {
		within(t, "ADS-11 "+what, func(t *testing.T) {
			e := &expiring{Store: store.New()}
			p := &perType{serveFrom(t, New(e)), e.Store, t}
			p.commit(func(tx *store.Tx) {
				tx.Set(of(xds.Cluster, refers("x"))...)
				tx.Set(of(xds.Route, refers("r", xds.Ref{Type: xds.Cluster, Name: "x"}))...)
			})
			conn := p.dialFrom(t, "192.0.2.1")
			c := p.open(conn, xds.Cluster, "n")
			c.send(takes(t, c, "x"))
			r := p.open(conn, xds.Route, "n", "r")
			ack := takes(t, r, "r")
			synctest.Wait()
			e.watches[0].ended = &end.err
			r.send(ack)
			p.commit(func(tx *store.Tx) { tx.Set(of(xds.Route, refers("r"))...) })
			if err := c.end(); status.Code(err) != end.want {
				t.Error(err)
			}
			r.send(takes(t, r, "r"))
		})
	}
}

// A hangingLog does not return from the line of a NACK before the end.
type hangingLog struct {
	slog.Handler
	ends chan struct{}
}

func (h hangingLog) Enabled(context.Context, slog.Level) bool { return true }

func (h hangingLog) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h hangingLog) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "client refused") {
		<-h.ends
	}
	return nil
}

// ADS-11: many streams of a client come and go while the resources change. Nothing is left behind.
func TestUnitsTogether(t *testing.T) {
	p := servePerType(t)
	conn := p.dialFrom(t, "192.0.2.1")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for range 20 {
				ctx, end := context.WithCancel(t.Context())
				s, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx)
				if err != nil {
					t.Error(err)
				}
				c := &deltaClient{t, s}
				c.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, ResourceNamesSubscribe: []string{fmt.Sprint("e", i)}})
				p.commit(func(tx *store.Tx) { tx.Set(of(xds.Endpoint, refers(fmt.Sprint("e", i)))...) })
				c.want()
				end()
			}
		})
	}
	all.Wait()
	for began := time.Now(); p.Stats().Open > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("streams stay open")
		}
	}
	p.units.mu.Lock()
	defer p.units.mu.Unlock()
	if n := len(p.units.all); n != 0 {
		t.Errorf("ADS-11: %d units are left", n)
	}
}
