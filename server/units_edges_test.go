package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// arrives checks when a response comes.
func arrives(t *testing.T, c *deltaClient, want string, since time.Time, after time.Duration) *discovery.DeltaDiscoveryRequest {
	t.Helper()
	ack := takes(t, c, want)
	if took := time.Since(since); took != after {
		t.Errorf("%s came after %v, not %v", want, took, after)
	}
	return ack
}

// Each of these streams changes what another stream of the client can send.
func TestUnitsNotify(t *testing.T) {
	// begin opens streams of clusters and routes, which hold x and r.
	begin := func(t *testing.T) (p *perType, conn *grpc.ClientConn, c, r *deltaClient) {
		p = servePerType(t)
		conn = p.dialFrom(t, "192.0.2.1")
		c, r = p.open(conn, xds.Cluster, "n"), p.open(conn, xds.Route, "n", "r")
		c.send(takes(t, c, "x"))
		r.send(takes(t, r, "r"))
		synctest.Wait()
		return p, conn, c, r
	}
	within(t, "ADS-11 ADS-6 a response begins the wait of another stream", func(t *testing.T) {
		p, _, c, r := begin(t)
		p.commit(func(tx *store.Tx) { tx.Set(of(xds.Cluster, refers("z"))...) })
		takes(t, c, "z") // not acknowledged, so the next response waits for 5 s
		synctest.Wait()
		began := time.Now()
		p.repoint()
		arrives(t, c, "y", began, 5*time.Second)
		arrives(t, r, "r", began, 15*time.Second)
	})
	within(t, "ADS-11 ADS-9 a stream that ends begins the grace period of another", func(t *testing.T) {
		p, _, c, r := begin(t)
		p.repoint()
		takes(t, c, "y") // not acknowledged
		synctest.Wait()
		began := time.Now()
		c.s.CloseSend()
		c.end()
		arrives(t, r, "r", began, 5*time.Second)
	})
	within(t, "ADS-11 a stream of another client ends the waits of all", func(t *testing.T) {
		p, conn, c, r := begin(t)
		s, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := &deltaClient{t, s}
		e.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n", Cluster: "other"}, ResourceNamesSubscribe: []string{"e"}})
		synctest.Wait()
		began := time.Now()
		p.repoint()
		arrives(t, r, "r", began, 0)
		c.send(arrives(t, c, "y", began, 0))
		arrives(t, c, "-x", began, 5*time.Second)
	})
	within(t, "ADS-11 SAFE-1 the last stream before too many", func(t *testing.T) {
		p := servePerType(t)
		p.units.max = 2
		conn := p.dialFrom(t, "192.0.2.1")
		c, r := p.open(conn, xds.Cluster, "n"), p.open(conn, xds.Route, "n", "r")
		c.send(takes(t, c, "x"))
		r.send(takes(t, r, "r"))
		for _, tooMany := range []bool{false, true} {
			if tooMany {
				p.open(conn, xds.Endpoint, "n", "e")
				synctest.Wait()
				p.commit(func(tx *store.Tx) {
					tx.Delete(xds.Cluster, "y")
					tx.Set(of(xds.Cluster, refers("z"))...)
					tx.Set(of(xds.Route, refers("r", xds.Ref{Type: xds.Cluster, Name: "z"}))...)
				})
				arrives(t, r, "r", time.Now(), 0) // without a wait
				break
			}
			p.repoint()
			ack := takes(t, c, "y")
			began := time.Now()
			time.Sleep(time.Second)
			c.send(ack)
			r.send(arrives(t, r, "r", began, time.Second))
			c.send(takes(t, c, "-x"))
			synctest.Wait()
		}
	})
	within(t, "ADS-11 streams of both variants are of two clients", func(t *testing.T) {
		p, conn, c, r := begin(t)
		s, err := clusterservice.NewClusterDiscoveryServiceClient(conn).StreamClusters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sotw := &sotwClient{t, s}
		sotw.send(&discovery.DiscoveryRequest{Node: &corev3.Node{Id: "n"}})
		sotw.want()
		synctest.Wait()
		p.repoint()
		began := time.Now()
		ack := takes(t, c, "y")
		time.Sleep(time.Second)
		c.send(ack)
		arrives(t, r, "r", began, time.Second)
	})
	within(t, "ADS-11 SUB-4 a node that is refused later", func(t *testing.T) {
		p, _, c, r := begin(t)
		p.commit(func(tx *store.Tx) {
			tx.Select(func(context.Context, *xds.Node) ([]string, error) { return nil, errors.New("nobody") })
		})
		for _, one := range []*deltaClient{c, r} {
			if s := status.Convert(one.end()); s.Code() != codes.PermissionDenied || s.Message() != "nobody" {
				t.Errorf("the stream ends with %v", s)
			}
		}
	})
	within(t, "ADS-11 SUB-4 a node whose group is not known later", func(t *testing.T) {
		p, _, c, r := begin(t)
		p.commit(func(tx *store.Tx) {
			tx.Select(func(context.Context, *xds.Node) ([]string, error) { return []string{"unknown"}, nil })
		})
		for _, one := range []*deltaClient{c, r} {
			if err := one.end(); status.Code(err) != codes.Unavailable {
				t.Errorf("the stream ends with %v", err)
			}
		}
	})
}

// address is a net.Addr that is not a pointer: two connections may have an equal one.
type address struct{}

func (address) Network() string { return "tcp" }
func (address) String() string  { return "192.0.2.1:1" }

func TestUnitOfAStream(t *testing.T) {
	var us units
	for name, info := range map[string]*Stream{
		"an aggregated stream":  {Node: &xds.Node{ID: "n"}, Peer: &net.TCPAddr{}},
		"a node without id":     {Node: &xds.Node{}, Peer: &net.TCPAddr{}, Type: xds.Cluster},
		"an unknown connection": {Node: &xds.Node{ID: "n"}, Type: xds.Cluster},
		"an address by value":   {Node: &xds.Node{ID: "n"}, Peer: address{}, Type: xds.Cluster},
	} {
		if us.enter(info) != nil {
			t.Errorf("ADS-11: %s has a unit", name)
		}
	}
}

// What a stream notifies, and when.
func TestPoke(t *testing.T) {
	peer := &net.TCPAddr{}
	poked := func(s *stream) bool { return len(s.notices) > 0 }
	both := xds.Tables{xds.Cluster.URL: with(xds.NewTable(xds.Cluster), of(xds.Cluster, res("x", "1"))), xds.Route.URL: with(xds.NewTable(xds.Route), of(xds.Route, res("x", "1")))}
	// unitOf returns two streams of a unit. The next step of one of them updates both, because they have joined.
	unitOf := func(t *testing.T) (a, b *stream) {
		server := New(store.New())
		all := []*stream{}
		for _, typ := range []*xds.Type{xds.Cluster, xds.Route} {
			s := &stream{server: server, notices: newNotices(), info: Stream{Node: &xds.Node{ID: "n"}, Peer: peer, Type: typ, Variant: xds.Delta}}
			s.watch, s.session = stubWatch{view: both}, protocol.NewSession(xds.Delta, typ, both, protocol.Options{})
			s.join()
			s.unlock()
			all = append(all, s)
		}
		return all[0], all[1]
	}
	step := func(t *testing.T, s *stream) {
		if err := s.refreshAll(); err != nil {
			t.Fatal(err)
		}
		s.rest()
	}
	t.Run("ADS-11 one notice is enough", func(t *testing.T) {
		_, b := unitOf(t)
		b.poke()
		b.poke()
		if n := len(b.notices); n != 1 {
			t.Errorf("%d notices", n)
		}
	})
	t.Run("ADS-11 a step does not notify its own stream", func(t *testing.T) {
		a, b := unitOf(t)
		for _, s := range []*stream{a, b} {
			if err := s.session.Receive(xds.Request{Type: s.info.Type, Subscribe: []string{"x"}}); err != nil {
				t.Fatal(err)
			}
		}
		step(t, a)
		if poked(a) || !poked(b) {
			t.Errorf("notified: own stream %v, other %v", poked(a), poked(b))
		}
	})
	t.Run("ADS-11 a step that failed before it notified the others", func(t *testing.T) {
		a, b := unitOf(t)
		if err := a.refreshAll(); err != nil {
			t.Fatal(err)
		}
		a.leaveUnit()
		if !poked(b) {
			t.Error("the other stream does not notice the change")
		}
	})
	t.Run("ADS-11 a stream that ends without a change", func(t *testing.T) {
		a, b := unitOf(t)
		step(t, a)
		a.leaveUnit()
		if poked(b) {
			t.Error("a stream that waits for nothing is notified")
		}
	})
	t.Run("ADS-11 a notice during a step", func(t *testing.T) {
		a, _ := unitOf(t)
		a.poke()
		a.notices <- notice{nil, noticeStepDone}
		if err := a.awaitStep(); err != nil || !a.stirred {
			t.Errorf("the next step does not follow at once: %v", err)
		}
		a.poke()
		if !poked(a) {
			t.Error("a later notice is lost")
		}
	})
	t.Run("ADS-11 a step without a change asks for no other view", func(t *testing.T) {
		a, b := unitOf(t)
		step(t, a)
		b.watch = stubWatch{err: errors.New("refused")}
		step(t, a)
		if poked(b) {
			t.Error("the step has asked for the view of the other stream")
		}
		a.watch = stubWatch{view: both, touched: []xds.Names{{xds.Cluster.URL: {"x"}}}}
		step(t, a)
		if !poked(b) {
			t.Error("the step has not asked for the view of the other stream after a commit")
		}
	})
	t.Run("ADS-11 SUB-4 a failure of another stream", func(t *testing.T) {
		a, b := unitOf(t)
		a.watch, b.watch = stubWatch{view: both}, stubWatch{err: errors.New("refused")}
		if err := a.refreshAll(); err != nil || !poked(b) {
			t.Errorf("the stream ends with %v; the other one is notified: %v", err, poked(b))
		}
	})
}

// A stubWatch returns the same each time.
type stubWatch struct {
	Watch
	view    xds.View
	touched []xds.Names
	err     error
}

func (w stubWatch) Next() (xds.View, []xds.Names, error) {
	if w.touched == nil && w.err == nil {
		return w.view, []xds.Names{}, nil
	}
	return w.view, w.touched, w.err
}

// A client whose streams are not ordered is reported once, with the reason.
func TestUnorderedUnitsAreLogged(t *testing.T) {
	for why, open := range map[string]func(t *testing.T, p *perType, conn *grpc.ClientConn){
		"more than 1 streams": func(_ *testing.T, p *perType, conn *grpc.ClientConn) {
			p.units.max = 1
			p.open(conn, xds.Route, "n", "r")
		},
		"two streams of CDS or LDS": func(_ *testing.T, p *perType, conn *grpc.ClientConn) { p.open(conn, xds.Cluster, "n") },
		"the node of the stream differs": func(t *testing.T, p *perType, conn *grpc.ClientConn) {
			s, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			(&deltaClient{t, s}).send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n", Cluster: "other"}, ResourceNamesSubscribe: []string{"e"}})
		},
	} {
		within(t, "ADS-11 "+why, func(t *testing.T) {
			log := &logbook{}
			p := servePerType(t, log.at(0))
			conn := p.dialFrom(t, "192.0.2.1")
			p.open(conn, xds.Cluster, "n")
			synctest.Wait()
			const line = "streams of a client are not ordered"
			if strings.Contains(log.String(), line) {
				t.Error("logged for one stream")
			}
			for range 2 {
				open(t, p, conn)
				synctest.Wait()
			}
			if log := log.String(); strings.Count(log, line) != 1 || !strings.Contains(log, why) {
				t.Error(log)
			}
		})
	}
}
