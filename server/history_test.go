package server

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// to returns a resource whose body has its name and its references.
func to(name string, refs ...xds.Ref) *xds.Resource {
	body := name
	for _, ref := range refs {
		body += " to " + ref.Name
	}
	r := res(name, body)
	r.Refs = append([]xds.Ref{}, refs...)
	return r
}

func cluster(name string) xds.Ref { return xds.Ref{Type: xds.Cluster, Name: name} }

// bodies returns the bodies of a response, in order.
func bodies(r *discovery.DiscoveryResponse) string {
	var all []string
	for _, a := range r.Resources {
		all = append(all, string(a.Value))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (c *client[Req, Res]) wants(r *discovery.DiscoveryResponse, typ *xds.Type, all string) *discovery.DiscoveryResponse {
	c.t.Helper()
	if r.TypeUrl != typ.URL || bodies(r) != all {
		c.t.Fatalf("got %s of %s, want %s of %s", bodies(r), r.TypeUrl, all, typ)
	}
	return r
}

// A moving client moves from cluster c1 to c2 when its stream breaks.
type moving struct {
	*world
	*store.Store
	t    *testing.T
	node *corev3.Node
}

func newMoving(t *testing.T, node string, opts ...Option) *moving {
	m := &moving{Store: store.New(), t: t, node: &corev3.Node{Id: node}}
	m.world = serveFrom(t, New(m.Store, opts...))
	update(t, m.Store, func(tx *store.Tx) {
		tx.Set(of(xds.Cluster, to("c1"), to("other"))...)
		tx.Set(of(xds.Route, to("r", cluster("c1")))...)
	})
	return m
}

// open opens a stream that states versions.
func (m *moving) open(cds, rds string) (*sotwClient, *grpc.ClientConn) {
	m.t.Helper()
	conn := m.dial(m.t)
	c := m.sotw(m.t, conn)
	c.send(&discovery.DiscoveryRequest{Node: m.node, TypeUrl: xds.Cluster.URL, VersionInfo: cds})
	c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Route.URL, VersionInfo: rds, ResourceNames: []string{"r"}})
	return c, conn
}

// breaks opens a stream that ends while the client moves, and returns its responses. With accept
// set, the client acknowledges the clusters.
func (m *moving) breaks(answer func(c *sotwClient, union *discovery.DiscoveryResponse)) (first, union, route *discovery.DiscoveryResponse) {
	c, conn := m.open("", "")
	first = c.wants(c.want(), xds.Cluster, "c1, other")
	c.send(ack(first))
	route = c.wants(c.want(), xds.Route, "r to c1")
	c.send(ack(route, "r"))
	synctest.Wait()
	update(m.t, m.Store, func(tx *store.Tx) {
		tx.Set(of(xds.Cluster, to("c2"))...)
		tx.Delete(xds.Cluster, "c1")
		tx.Set(of(xds.Route, to("r", cluster("c2")))...)
	})
	union = c.wants(c.want(), xds.Cluster, "c1, c2, other")
	answer(c, union)
	synctest.Wait()
	conn.Close()
	synctest.Wait()
	return first, union, route
}

// commits changes resources that no client subscribes to.
func (m *moving) commits(n int) {
	for i := range n {
		put(m.t, m.Store, xds.Cluster, res("other", fmt.Sprint("other ", i)))
	}
}

func accept(c *sotwClient, union *discovery.DiscoveryResponse) {
	c.send(ack(union))
	c.wants(c.want(), xds.Route, "r to c2") // the client does not answer this response
}

// finishes checks how the client gets from c1 to c2 after the reconnect.
func (m *moving) finishes(c *sotwClient, union, other string) {
	m.t.Helper()
	if union != "" {
		c.send(ack(c.wants(c.want(), xds.Cluster, union)))
	}
	c.send(ack(c.wants(c.want(), xds.Route, "r to c2"), "r"))
	c.send(ack(c.wants(c.want(), xds.Cluster, "c2, "+other)))
	c.idle("it has moved")
}

func TestResumeSotW(t *testing.T) {
	for _, n := range []int{0, 4, 100, 10_000} {
		for _, node := range []string{"n", ""} {
			within(t, fmt.Sprintf("ADS-9 SotW: sent resources are known again after %d commits, node %q", n, node), func(t *testing.T) {
				m := newMoving(t, node)
				_, union, route := m.breaks(accept)
				m.commits(n)
				c, _ := m.open(union.VersionInfo, route.VersionInfo)
				if n == 0 {
					m.finishes(c, "", "other")
				} else {
					other := fmt.Sprint("other ", n-1)
					m.finishes(c, "c1, c2, "+other, other)
				}
			})
		}
	}
	for what, answer := range map[string]func(*sotwClient, *discovery.DiscoveryResponse){
		"refused":    func(c *sotwClient, r *discovery.DiscoveryResponse) { c.send(nack(r, "no")) },
		"unanswered": func(*sotwClient, *discovery.DiscoveryResponse) {},
	} {
		for _, states := range []string{"before", "newest"} {
			within(t, fmt.Sprintf("ADS-9 SotW: the newest is %s, and the client states the %s", what, states), func(t *testing.T) {
				m := newMoving(t, "n")
				first, union, route := m.breaks(answer)
				m.commits(100)
				stated := map[string]string{"before": first.VersionInfo, "newest": union.VersionInfo}[states]
				c, _ := m.open(stated, route.VersionInfo)
				m.finishes(c, "c1, c2, other 99", "other 99")
			})
		}
	}
	within(t, "ADS-9 SotW: a client that states the version before a refused response may have applied a part of it", func(t *testing.T) {
		m := newMoving(t, "n")
		c, conn := m.open("", "")
		first := c.wants(c.want(), xds.Cluster, "c1, other")
		c.send(ack(first))
		c.send(ack(c.wants(c.want(), xds.Route, "r to c1"), "r"))
		synctest.Wait()
		move := func(from, to_ string) {
			update(t, m.Store, func(tx *store.Tx) {
				tx.Set(of(xds.Cluster, to(to_))...)
				tx.Delete(xds.Cluster, from)
				tx.Set(of(xds.Route, to("r", cluster(to_)))...)
			})
		}
		move("c1", "c2")
		c.send(nack(c.wants(c.want(), xds.Cluster, "c1, c2, other"), "other is bad"))
		synctest.Wait()
		time.Sleep(20 * time.Second)
		route := c.wants(c.want(), xds.Route, "r to c2")
		c.send(ack(route, "r"))
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		move("c2", "c3")
		c, _ = m.open(first.VersionInfo, route.VersionInfo)
		c.wants(c.want(), xds.Cluster, "c1, c2, c3, other")
	})
	within(t, "ADS-9 SotW: the stream breaks again and again", func(t *testing.T) {
		m := newMoving(t, "n")
		_, union, route := m.breaks(accept)
		stated := union.VersionInfo
		for i := range 5 {
			m.commits(100)
			put(t, m.Store, xds.Cluster, res("other", fmt.Sprint("again ", i)))
			c, conn := m.open(stated, route.VersionInfo)
			union = c.wants(c.want(), xds.Cluster, fmt.Sprint("again ", i, ", c1, c2"))
			if i%2 == 0 {
				c.send(ack(union))
				stated = union.VersionInfo
			}
			synctest.Wait()
			conn.Close()
			synctest.Wait()
		}
		c, _ := m.open(stated, route.VersionInfo)
		if stated != union.VersionInfo {
			t.Fatal("the last was not accepted")
		}
		c.send(ack(c.wants(c.want(), xds.Route, "r to c2"), "r"))
		c.send(ack(c.wants(c.want(), xds.Cluster, "again 4, c2")))
	})
	within(t, "ADS-9 SotW: the content with which the client came is known until the next response", func(t *testing.T) {
		m := newMoving(t, "n")
		c, conn := m.open("", "")
		first := c.want()
		c.send(ack(first))
		c.send(ack(c.want(), "r"))
		conn.Close()
		m.world = serveFrom(t, New(m.Store)) // another replica
		c, conn = m.open(first.VersionInfo, "before")
		route := c.wants(c.want(), xds.Route, "r to c1")
		c.send(ack(route, "r"))
		c.idle("the client has the clusters")
		conn.Close()
		synctest.Wait()
		update(t, m.Store, func(tx *store.Tx) {
			tx.Set(of(xds.Cluster, to("c2"))...)
			tx.Delete(xds.Cluster, "c1")
			tx.Set(of(xds.Route, to("r", cluster("c2")))...)
		})
		m.commits(100)
		c, _ = m.open(first.VersionInfo, route.VersionInfo)
		m.finishes(c, "c1, c2, other 99", "other 99")
	})
	within(t, "ADS-9 SotW: a client that states the version before a response may have applied a part of it", func(t *testing.T) {
		m := newMoving(t, "n")
		_, union, route := m.breaks(accept)                                          // the route to c2 is not answered
		for i, all := range []string{"c1, c2, c3, other", "c1, c2, c3, c4, other"} { // nor on the next stream
			was, is := fmt.Sprint("c", i+2), fmt.Sprint("c", i+3)
			update(t, m.Store, func(tx *store.Tx) {
				tx.Set(of(xds.Cluster, to(is))...)
				tx.Delete(xds.Cluster, was)
				tx.Set(of(xds.Route, to("r", cluster(is)))...)
			})
			c, conn := m.open(union.VersionInfo, route.VersionInfo)
			union = c.wants(c.want(), xds.Cluster, all)
			c.send(ack(union))
			c.wants(c.want(), xds.Route, "r to "+is)
			conn.Close()
			synctest.Wait()
		}
	})
	within(t, "ADS-5 ADS-9 SotW: two streams of a node", func(t *testing.T) {
		m := newMoving(t, "n")
		_, union, route := m.breaks(accept)
		// The other client accepts everything.
		o, _ := m.open("", "")
		o.send(ack(o.wants(o.want(), xds.Cluster, "c2, other")))
		o.send(ack(o.wants(o.want(), xds.Route, "r to c2"), "r"))
		for i := range 10 {
			put(t, m.Store, xds.Cluster, res("other", fmt.Sprint("other ", i)))
			o.send(ack(o.want()))
		}
		c, _ := m.open(union.VersionInfo, route.VersionInfo)
		m.finishes(c, "c1, c2, other 9", "other 9")
		o.idle("it has all")
	})
	within(t, "ADS-5 ADS-9 SotW: two streams of a node state the same version and have different names", func(t *testing.T) {
		st := store.New()
		w := serveFrom(t, New(st))
		update(t, st, func(tx *store.Tx) {
			tx.Set(of(xds.Cluster, to("c1"), to("c2"), to("c3"))...)
			tx.Set(of(xds.Route, to("r1", cluster("c1")), to("r2", cluster("c2")))...)
		})
		node := &corev3.Node{Id: "n"}
		version := map[string]string{}
		open := func(conn *grpc.ClientConn, k string, clusters ...string) *sotwClient {
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL, ResourceNames: clusters, VersionInfo: version["c"]})
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Route.URL, ResourceNames: []string{"r" + k}, VersionInfo: version["r"]})
			return c
		}
		conn := w.dial(t)
		for _, k := range []string{"1", "2"} {
			c := open(conn, k, "c"+k)
			r := c.wants(c.want(), xds.Cluster, "c"+k)
			c.send(ack(r, "c"+k))
			route := c.wants(c.want(), xds.Route, "r"+k+" to c"+k)
			c.send(ack(route, "r"+k))
			synctest.Wait()
			if k == "2" && version["c"] != r.VersionInfo {
				t.Fatal("the two streams state different versions")
			}
			version["c"], version["r"] = r.VersionInfo, route.VersionInfo
		}
		conn.Close()
		synctest.Wait()
		for i := range 100 {
			update(t, st, func(tx *store.Tx) {
				tx.Delete(xds.Cluster, "c1", "c2")
				tx.Set(of(xds.Cluster, res("c3", fmt.Sprint("c3 ", i)))...)
				tx.Set(of(xds.Route, to("r1", cluster("c3")), to("r2", cluster("c3")))...)
			})
		}
		for _, k := range []string{"2", "1"} {
			c := open(w.dial(t), k, "c"+k, "c3")
			r := c.wants(c.want(), xds.Cluster, fmt.Sprintf("c%s, c3 99", k))
			c.send(ack(r, "c"+k, "c3"))
			c.wants(c.want(), xds.Route, "r"+k+" to c3")
		}
	})
	within(t, "ADS-9 SotW: without a node id only content that the version proves is remembered", func(t *testing.T) {
		m := newMoving(t, "")
		c, conn := m.open("", "")
		c.send(ack(c.want()))
		c.send(ack(c.want(), "r"))
		synctest.Wait()
		if n := len(m.history.index); n != 1 {
			t.Errorf("%d are remembered, want that of the clusters", n)
		}
		conn.Close()
	})
	within(t, "ADS-9 SotW: a version of a type without full state proves nothing", func(t *testing.T) {
		for node, want := range map[string]int{"": 0, "n": 1} {
			m := newMoving(t, node)
			conn := m.dial(t)
			c := m.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{Node: m.node, TypeUrl: xds.Route.URL, ResourceNames: []string{"*"}})
			c.send(ack(c.wants(c.want(), xds.Route, "r to c1"), "*"))
			synctest.Wait()
			if n := len(m.history.index); n != want {
				t.Errorf("node %q: %d are remembered, want %d", node, n, want)
			}
			conn.Close()
		}
	})
	within(t, "ADS-9 SAFE-1 the history is limited in number and time", func(t *testing.T) {
		m := newMoving(t, "n", WithLimits(Limits{Streams: 2}))
		for i := range 50 {
			m.node.Id = fmt.Sprint("n", i)
			c, conn := m.open("", "")
			for j := range 20 {
				c.send(ack(c.want()))
				if j == 0 {
					c.send(ack(c.want(), "r"))
				}
				synctest.Wait()
				put(t, m.Store, xds.Cluster, res("other", fmt.Sprint(i*20+j)))
			}
			c.want()
			if n := len(m.history.index) - m.history.ended.Len(); n != 3 {
				t.Fatalf("%d contents of one stream are remembered, want one of the routes and two of the clusters", n)
			}
			conn.Close()
			synctest.Wait()
			if n := m.history.ended.Len(); n > 2*historyPerStream {
				t.Fatalf("%d are remembered", n)
			}
		}
		if n := m.history.ended.Len(); n != 2*historyPerStream || len(m.history.index) != n {
			t.Errorf("%d and %d are remembered", n, len(m.history.index))
		}
		time.Sleep(historyTime)
		c, _ := m.open("x", "")
		c.want()
		if n := m.history.ended.Len(); n != 0 {
			t.Errorf("%d are remembered for ever", n)
		}
	})
	within(t, "ADS-9 refused and unanswered responses are limited", func(t *testing.T) {
		m := newMoving(t, "n")
		c, conn := m.open("", "")
		c.send(ack(c.want()))
		c.send(ack(c.want(), "r"))
		for i := range 50 {
			put(t, m.Store, xds.Cluster, res("other", fmt.Sprint(i)))
			r := c.want()
			if i%2 == 0 {
				c.send(nack(r, "no"))
			}
		}
		synctest.Wait()
		if n := len(m.history.index); n != 1+maxStatements {
			t.Errorf("%d are remembered", n)
		}
		conn.Close()
		synctest.Wait()
	})
	within(t, "SAFE-1 the history keeps no body in memory", func(t *testing.T) {
		m := newMoving(t, "n")
		old := func() weak.Pointer[byte] {
			body := []byte("other, at first")
			put(t, m.Store, xds.Cluster, xds.NewResource(nil, "other", body))
			return weak.Make(&body[0])
		}()
		c, conn := m.open("", "")
		c.send(ack(c.want()))
		c.send(ack(c.want(), "r"))
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		m.commits(1)
		time.Sleep(6 * time.Minute) // the store keeps recent tables
		m.commits(2)
		runtime.GC()
		if n := m.history.ended.Len(); n != 2 || old.Value() != nil {
			t.Errorf("%d are remembered, the body lives: %v", n, old.Value() != nil)
		}
	})
	within(t, "SAFE-1 a stream by name keeps no table alive", func(t *testing.T) {
		m := newMoving(t, "n")
		conn := m.dial(t)
		c := m.sotw(t, conn)
		put(t, m.Store, xds.Endpoint, to("mine"), to("other"))
		c.send(&discovery.DiscoveryRequest{Node: m.node, TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"mine"}})
		c.send(ack(c.want(), "mine"))
		synctest.Wait()
		old := func() weak.Pointer[xds.Stamp] {
			w := watchtest.Open(t, m.Store, nil)
			defer w.Close()
			view, _ := watchtest.Next(t, w)
			return weak.Make(view.Table(xds.Endpoint).Lookup("other").Stamp)
		}()
		for i := range 100 {
			put(t, m.Store, xds.Endpoint, res("other", fmt.Sprint(i)))
		}
		time.Sleep(6 * time.Minute)
		put(t, m.Store, xds.Endpoint, res("other", "last"))
		synctest.Wait()
		runtime.GC()
		if old.Value() != nil {
			t.Error("the old stamp lives")
		}
		runtime.KeepAlive(conn)
	})
}

// The client opens its clusters 2 s after the other types, like Envoy while some clusters are
// warming. The route waits. The assignments to which the client subscribes arrive, even if their
// clusters were removed.
func TestResumeWithoutClusters(t *testing.T) {
	endpoints := func(name string) xds.Ref { return xds.Ref{Type: xds.Endpoint, Name: name} }
	serve := func(t *testing.T) (*world, *store.Store) {
		st := store.New()
		update(t, st, func(tx *store.Tx) {
			tx.Set(of(xds.Cluster, to("c0", endpoints("e0")))...)
			tx.Set(of(xds.Endpoint, to("e0"))...)
			tx.Set(of(xds.Listener, to("l", xds.Ref{Type: xds.Route, Name: "r"}))...)
			tx.Set(of(xds.Route, to("r", cluster("c0")))...)
		})
		return serveFrom(t, New(st)), st
	}
	warms := func(tx *store.Tx) { // the client gets c1 just before its stream breaks
		tx.Set(of(xds.Cluster, to("c1", endpoints("e1")))...)
		tx.Set(of(xds.Endpoint, to("e1"))...)
	}
	soon := func(t *testing.T, began time.Time) {
		t.Helper()
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("the route came after %v, not when the clusters were accepted", d)
		}
	}
	moves := func(tx *store.Tx) {
		tx.Set(of(xds.Cluster, to("c2", endpoints("e2")))...)
		tx.Set(of(xds.Endpoint, to("e2"))...)
		tx.Delete(xds.Cluster, "c0", "c1")
		tx.Delete(xds.Endpoint, "e0", "e1")
		tx.Set(of(xds.Route, to("r", cluster("c2")))...)
	}
	within(t, "ADS-9 WARM-1 SotW", func(t *testing.T) {
		w, st := serve(t)
		version := map[*xds.Type]string{}
		var c *sotwClient
		open := func(typ *xds.Type, names ...string) {
			c.send(&discovery.DiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: typ.URL, ResourceNames: names, VersionInfo: version[typ]})
		}
		accept := func(typ *xds.Type, all string, names ...string) {
			t.Helper()
			r := c.wants(c.want(), typ, all)
			version[typ] = r.VersionInfo
			c.send(ack(r, names...))
			synctest.Wait()
		}
		conn := w.dial(t)
		c = w.sotw(t, conn)
		open(xds.Cluster)
		accept(xds.Cluster, "c0 to e0")
		open(xds.Endpoint, "e0")
		accept(xds.Endpoint, "e0", "e0")
		open(xds.Listener)
		accept(xds.Listener, "l to r")
		open(xds.Route, "r")
		accept(xds.Route, "r to c0", "r")
		update(t, st, warms)
		c.wants(c.want(), xds.Cluster, "c0 to e0, c1 to e1")
		conn.Close()
		synctest.Wait()
		update(t, st, moves)

		c = w.sotw(t, w.dial(t))
		began := time.Now()
		open(xds.Endpoint, "e0", "e1")
		open(xds.Listener)
		open(xds.Route, "r")
		accept(xds.Endpoint, "e0, e1", "e0", "e1")
		time.Sleep(2 * time.Second)
		open(xds.Cluster)
		r := c.wants(c.want(), xds.Cluster, "c0 to e0, c1 to e1, c2 to e2")
		accept(xds.Endpoint, "e0, e1", "e0", "e2") // both clusters may be new for the client
		accept(xds.Endpoint, "e2", "e0", "e2")
		time.Sleep(2 * time.Second)
		c.send(ack(r))
		accept(xds.Route, "r to c2", "r")
		soon(t, began)
	})
	within(t, "ADS-9 WARM-1 delta", func(t *testing.T) {
		w, st := serve(t)
		has := map[*xds.Type]map[string]string{}
		var c *deltaClient
		open := func(typ *xds.Type, names ...string) {
			c.send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n"}, TypeUrl: typ.URL, ResourceNamesSubscribe: names, InitialResourceVersions: has[typ]})
		}
		want := func(typ *xds.Type, name string) *discovery.DeltaDiscoveryResponse {
			t.Helper()
			r := c.want()
			if r.TypeUrl != typ.URL || len(r.Resources) != 1 || r.Resources[0].Name != name || len(r.RemovedResources) > 0 {
				t.Fatalf("got %v, want %s of %s", r, name, typ)
			}
			return r
		}
		accept := func(r *discovery.DeltaDiscoveryResponse, typ *xds.Type) {
			has[typ] = map[string]string{r.Resources[0].Name: r.Resources[0].Version}
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typ.URL, ResponseNonce: r.Nonce})
			synctest.Wait()
		}
		conn := w.dial(t)
		c = w.delta(t, conn)
		open(xds.Cluster)
		accept(want(xds.Cluster, "c0"), xds.Cluster)
		open(xds.Endpoint, "e0")
		accept(want(xds.Endpoint, "e0"), xds.Endpoint)
		open(xds.Listener)
		accept(want(xds.Listener, "l"), xds.Listener)
		open(xds.Route, "r")
		accept(want(xds.Route, "r"), xds.Route)
		update(t, st, warms)
		want(xds.Cluster, "c1")
		conn.Close()
		synctest.Wait()
		update(t, st, moves)

		c = w.delta(t, w.dial(t))
		began := time.Now()
		open(xds.Endpoint, "e0", "e1")
		open(xds.Listener)
		open(xds.Route, "r")
		accept(want(xds.Endpoint, "e1"), xds.Endpoint)
		time.Sleep(2 * time.Second)
		open(xds.Cluster)
		r := want(xds.Cluster, "c2")
		if gone := c.want(); !slices.Equal(gone.RemovedResources, []string{"e1"}) { // the client does not state c1
			t.Fatal(gone)
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{"e2"}})
		accept(want(xds.Endpoint, "e2"), xds.Endpoint)
		time.Sleep(2 * time.Second)
		accept(r, xds.Cluster)
		accept(want(xds.Route, "r"), xds.Route)
		soon(t, began)
	})
}

// The history of a stream's names survives another stream with other names.
func TestStreamHistory(t *testing.T) {
	now := time.Now()
	stamps := func(c content) (names []string) {
		for st := range c.each.all {
			names = append(names, st.Name)
		}
		return names
	}
	memory := newSentHistory(10)
	tell := func(a *streamHistory, version string, names ...string) {
		c := &xds.Changes{}
		for _, n := range names {
			c.Upserts = append(c.Upserts, res(n, version))
		}
		a.sent(protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: version, Version: version, World: &protocol.World{}}, c)
	}
	has := func(version string) []string {
		c, _ := memory.recall(now, stateKeyOf("n", xds.Route.URL, version))
		return stamps(c)
	}
	a := &streamHistory{history: memory, node: "n"}
	a.interested(protocol.Interest{Type: xds.Route, Added: []string{"a", "b", "c", "d"}})
	tell(a, "1", "a", "b", "c")
	a.interested(protocol.Interest{Type: xds.Route, Removed: []string{"b"}})
	tell(a, "2", "d")
	a.acked(protocol.Event{Kind: protocol.Acked, Type: xds.Route, Nonce: "2"})
	if got := has("2"); !slices.Equal(got, []string{"a", "c", "d"}) || has("1") != nil {
		t.Error(got, has("1"))
	}
	a.end(now)
	a = &streamHistory{history: memory, node: "n"}
	if w := a.recall(now, xds.Route, "2", nil); len(w.Others) != 3 {
		t.Error(w)
	}
	a.interested(protocol.Interest{Type: xds.Route, Added: []string{"a", "d", "e"}})
	tell(a, "3", "d")
	if got := has("3"); !slices.Equal(got, []string{"a", "d"}) {
		t.Error(got)
	}
	a.interested(protocol.Interest{Type: xds.Route, Added: []string{"f"}})
	tell(a, "4", "f")
	if got := has("4"); !slices.Equal(got, []string{"a", "d", "f"}) {
		t.Error(got)
	}
	// A name that may be in two states is in the state of the next response.
	other := &streamHistory{history: memory, node: "n"}
	tell(other, "4", "a")
	if got := has("4"); !slices.Equal(got, []string{"a", "a", "d", "f"}) {
		t.Error(got)
	}
	a.end(now)
	other.end(now)
	a = &streamHistory{history: memory, node: "n"}
	a.recall(now, xds.Route, "4", nil)
	a.interested(protocol.Interest{Type: xds.Route, Added: []string{"a"}})
	tell(a, "5", "a")
	if got := has("5"); !slices.Equal(got, []string{"a"}) {
		t.Error(got)
	}
}

// ADS-9: a client that states a version lacks the resources that waited when the version was sent.
func TestResumeLacksWaitingResources(t *testing.T) {
	now, memory := time.Now(), newSentHistory(10)
	tell := func(w *protocol.World) {
		a := &streamHistory{history: memory, node: "n"}
		a.subscribed(protocol.Event{Type: xds.Route, Wildcard: true})
		a.sent(protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "1", Version: "v", World: w}, &xds.Changes{})
		a.end(now)
	}
	lacks := func() []string {
		return (&streamHistory{history: memory, node: "n"}).recall(now, xds.Route, "v", nil).Lacks
	}
	all := with(new(xds.Table), []*xds.Resource{res("a", "1"), res("b", "1"), res("c", "1")}).Versions()
	tell(&protocol.World{Versions: all, Lacks: []string{"a", "b", "c"}})
	if got := lacks(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Error(got)
	}
	tell(&protocol.World{Versions: all, Lacks: []string{"b", "c"}}) // another stream sent a, so the client may have a
	if got := lacks(); !slices.Equal(got, []string{"b", "c"}) {
		t.Error(got)
	}
	// A third stream served another table with b and the old c.
	tell(&protocol.World{Versions: with(new(xds.Table), []*xds.Resource{res("b", "1"), res("c", "0"), res("d", "1")}).Versions(), Lacks: []string{"d"}})
	w := (&streamHistory{history: memory, node: "n"}).recall(now, xds.Route, "v", nil)
	has := map[string]bool{}
	for st := range w.Versions.All() {
		if !slices.Contains(w.Lacks, st.Name) {
			has[st.Name+st.Version] = true
		}
	}
	for _, st := range w.Others {
		has[st.Name+st.Version] = true
	}
	want := map[string]bool{}
	for _, r := range []*xds.Resource{res("a", "1"), res("b", "1"), res("c", "0")} {
		want[r.Name+r.Version] = true
	}
	if !maps.Equal(has, want) {
		t.Errorf("the client may have %v, want %v", has, want)
	}
}

func TestUnion(t *testing.T) {
	stamp := func(name, body string) *xds.Stamp { return res(name, body).Stamp }
	a1, a2, b, c := stamp("a", "1"), stamp("a", "2"), stamp("b", "1"), stamp("c", "1")
	table := func(rs ...*xds.Resource) *xds.Versions { return with(new(xds.Table), rs).Versions() }
	show := func(w *protocol.World) string {
		var all []string
		for st := range w.Versions.All() {
			if !slices.Contains(w.Lacks, st.Name) {
				all = append(all, st.Name+st.Version[:2])
			}
		}
		slices.Sort(all)
		for _, st := range w.Others {
			all = append(all, "or "+st.Name+st.Version[:2])
		}
		return strings.Join(all, " ")
	}
	v := func(st *xds.Stamp) string { return st.Name + st.Version[:2] }
	all := table(res("a", "1"), res("b", "1"))
	for _, tt := range []struct {
		some []content
		want string
	}{
		{[]content{{}}, ""},
		{[]content{{all: all}}, v(a1) + " " + v(b)},
		{[]content{{each: stampList{{a1}}}, {each: stampList{{b}}}}, "or " + v(a1) + " or " + v(b)},
		{[]content{{each: stampList{{a1, b}}}, {each: stampList{{a2, stamp("b", "1")}}}}, "or " + v(a1) + " or " + v(a2) + " or " + v(b)},
		{[]content{{all: all}, {each: stampList{{c}}}}, v(a1) + " " + v(b) + " or " + v(c)},
		{[]content{{each: stampList{{c}}}, {all: all}}, v(a1) + " " + v(b) + " or " + v(c)},
		{[]content{{all: all}, {all: table(res("a", "2"), res("b", "1"), res("c", "1"))}}, v(b) + " or " + v(a1) + " or " + v(a2) + " or " + v(c)},
		{[]content{{all: all}, {all: table(res("b", "2"))}}, "or " + v(a1) + " or " + v(b) + " or " + v(stamp("b", "2"))},
		{[]content{{all: all}, {all: table(res("b", "2")), since: true}}, v(a1) + " " + v(b) + " or " + v(stamp("b", "2"))},
		{[]content{{all: all}, {all: table(res("a", "2"), res("b", "2")), lacks: []string{"a"}}}, "or " + v(a1) + " or " + v(b) + " or " + v(stamp("b", "2"))},
	} {
		if got := strings.TrimSpace(show(union(tt.some).world())); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	// Two streams have b in different states: either state is possible.
	w := union([]content{{all: all, lacks: []string{"b"}}, {all: table(res("a", "1"), res("b", "2"))}}).world()
	if !slices.Equal(w.Lacks, []string{"b"}) || len(w.Others) != 1 || w.Others[0].Sum != stamp("b", "2").Sum {
		t.Errorf("ADS-9 the client lacks %v, and may have %v", w.Lacks, w.Others)
	}
	w = union([]content{{each: stampList{{c}}}, {all: all, lacks: []string{"b"}}}).world()
	if !slices.Equal(w.Lacks, []string{"b"}) {
		t.Errorf("ADS-9 with a second stream that subscribed to names, the client lacks %v", w.Lacks)
	}
	w = union([]content{{all: all, lacks: []string{"a", "b"}}, {all: all, lacks: []string{"b"}}}).world()
	if !slices.Equal(w.Lacks, []string{"b"}) {
		t.Errorf("ADS-9 the second of two streams got a, but the client lacks %v", w.Lacks)
	}
	if got := override([]*xds.Stamp{a1, c}, []*xds.Stamp{a2, b}); !slices.Equal(got, []*xds.Stamp{a2, b, c}) || cap(got) != 3 {
		t.Error(got, cap(got))
	}
	if got := override([]*xds.Stamp{a1, c}, []*xds.Stamp{a2}); !slices.Equal(got, []*xds.Stamp{a2, c}) || cap(got) != 2 {
		t.Error(got, cap(got))
	}
}

// ADS-9: a client may have a part of the responses after the version that it states. If there are
// too many responses, one in the middle is forgotten.
func TestResumeMayHaveLaterResponses(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		typ     *xds.Type
		answers int
		want    []string
	}{
		{xds.Route, 3, []string{"r0", "r1", "r2"}},
		{xds.Route, maxStatements + 1, []string{"r0", "r2", "r3", "r4", "r5", "r6", "r7", "r8"}},
		{xds.Cluster, 3, []string{"r0", "r1", "r2"}},
		{xds.Cluster, 1, []string{"r0"}},
	} {
		memory := newSentHistory(10)
		for range 2 { // the second stream leaves the same
			a := &streamHistory{history: memory, node: "n"}
			a.interested(protocol.Interest{Type: tt.typ, Added: []string{"r"}})
			for i := range tt.answers {
				v := fmt.Sprint("r", i)
				r := &xds.Resource{Stamp: &xds.Stamp{Name: v}}
				a.sent(protocol.Event{Kind: protocol.Sent, Type: tt.typ, Nonce: v, Version: v, World: &protocol.World{Others: []*xds.Stamp{r.Stamp}}}, &xds.Changes{})
			}
			a.end(now)
		}
		w := (&streamHistory{history: memory, node: "n"}).recall(now, tt.typ, "r0", nil)
		var got []string
		for _, st := range w.Others {
			if !slices.Contains(got, st.Name) {
				got = append(got, st.Name)
			}
		}
		if w.Since != (tt.answers > 1) {
			t.Errorf("%s after %d answers: other stamps were sent since: %v", tt.typ, tt.answers, w.Since)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s after %d: %v, want %v", tt.typ, tt.answers, got, tt.want)
		}
	}
}

// ADS-9: a response that only one of a node's streams got after the stated version counts for both, whichever stream ended
// first.
func TestResumeLaterResponsesOfOneStream(t *testing.T) {
	now := time.Now()
	all := []*protocol.World{ // which all streams share
		{Others: []*xds.Stamp{{Name: "r0"}}}, {Others: []*xds.Stamp{{Name: "r1"}}}, {Others: []*xds.Stamp{{Name: "r2"}}},
	}
	for _, answers := range [][]int{{1, 3}, {3, 1}, {1, 3, 1}, {2, 3}} {
		memory := newSentHistory(10)
		for _, n := range answers {
			a := &streamHistory{history: memory, node: "n"}
			a.interested(protocol.Interest{Type: xds.Route, Added: []string{"r"}})
			for i := range n {
				v := fmt.Sprint("r", i)
				a.sent(protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: v, Version: v, World: all[i]}, &xds.Changes{})
			}
			a.end(now)
		}
		got := map[string]bool{}
		w := (&streamHistory{history: memory, node: "n"}).recall(now, xds.Route, "r0", nil)
		for _, st := range w.Others {
			got[st.Name] = true
		}
		if len(got) != 3 || !w.Since {
			t.Errorf("after %v: %v, otherwise since: %v", answers, got, w.Since)
		}
	}
}

// SAFE-9: if many streams of a node state the same version and have different names, the cost of one more stream is constant.
// A client that may have too many names may have any.
func TestResumeOfManyStreams(t *testing.T) {
	const streams, each = 200, 500
	now, m := time.Now(), newSentHistory(4*streams)
	key := stateKeyOf("n", xds.Route.URL, "v")
	known := 0
	for i := range streams {
		a := &streamHistory{history: m, node: "n"}
		w := a.recall(now, xds.Route, "v", &protocol.World{Versions: new(xds.Table).Versions()})
		if i > 0 && w.Others[0].Name != "" {
			if known++; known < i {
				t.Fatal("ADS-9: the content was unknown, and is known again with more names")
			}
			if got := len(w.Others); got != i*each {
				t.Fatalf("ADS-9: after %d streams the client may have %d names", i, got)
			}
		}
		var names []string
		c := &xds.Changes{}
		for n := range each {
			r := &xds.Resource{Stamp: &xds.Stamp{Name: fmt.Sprintf("%05d", i*each+n)}}
			names, c.Upserts = append(names, r.Name), append(c.Upserts, r)
		}
		a.interested(protocol.Interest{Type: xds.Route, Added: names})
		a.sent(protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: "1", Version: "v", World: &protocol.World{}}, c)
		a.end(now)
		cost := 0
		for _, c := range m.find(now, key) {
			cost += c.each.len()
		}
		if cost > maxRecalled+each {
			t.Fatalf("after %d streams %d names are looked at", i, cost)
		}
	}
	if known < 20 || known > maxRecalled/each+1 { // the first does not count
		t.Errorf("the content is still known after %d streams", known)
	}
	stamps := 0
	for h := m.index[key]; h != nil; h = h.next {
		stamps += h.each.len()
	}
	if stamps > (streams+1)*each {
		t.Errorf("%d names are remembered, of %d that were sent", stamps, streams*each)
	}
}

// SAFE-9: equal responses count, and shared pieces count once. The first response is used whatever its size.
func TestRecallLimit(t *testing.T) {
	now := time.Now()
	key := stateKeyOf("n", "t", "v")
	var many []*xds.Stamp
	for i := range 2 * maxRecalled {
		many = append(many, &xds.Stamp{Name: fmt.Sprintf("%06d", i)})
	}
	big := piecesOf(many)
	one := stampList{{{Name: "a"}}}
	repeat := func(n int, l stampList) (ls []stampList) {
		for range n {
			ls = append(ls, l)
		}
		return ls
	}
	for what, tt := range map[string]struct {
		each []stampList
		want int // zero: anything
	}{
		"one":                 {[]stampList{big}, len(many)},
		"two that share":      {[]stampList{big.with(one[0]), big}, len(many) + 1},
		"two that do not":     {[]stampList{big, piecesOf(many)}, 0},
		"many equal contents": {repeat(maxRecalled+1, one), 1},
		"too many":            {repeat(maxRecalled+2, one), 0},
		"and anything":        {[]stampList{one, anyContent.each}, 0},
	} {
		if what == "two that do not" {
			tt.each[1] = piecesOf(slices.Clone(many[1:]))
		}
		m := newSentHistory(10)
		for _, l := range tt.each {
			m.hold(&statedContent{content: content{each: l}, of: key}, nil)
		}
		c, ok := m.recall(now, key)
		// A content with any resource needs no other stamps.
		if !ok || c.isAnything() != (tt.want == 0) || c.each.len() != max(tt.want, 1) {
			t.Errorf("%s: %d names, want %d", what, c.each.len(), tt.want)
		}
	}
	// A client with too many different tables may have any resource.
	table := func(n int, body string) *xds.Versions {
		var rs []*xds.Resource
		for i := range n {
			rs = append(rs, res(fmt.Sprint(i), body))
		}
		return with(new(xds.Table), rs).Versions()
	}
	for n, want := range map[int]bool{maxMerged / 2: false, maxMerged/2 + 1: true} {
		c := union([]content{{all: table(n, "1")}, {all: table(n, "2")}, {all: table(n, "3")}})
		if c.isAnything() != want {
			t.Errorf("ADS-9 of %d names three states: anything is %v", n, !want)
		}
	}
}

// ADS-9: of the content that a client states at its start, it keeps the part to which it
// subscribes: by name, by a collection, or with the wildcard.
func TestResumeKeepsSubscribedPart(t *testing.T) {
	now := time.Now()
	const in, glob = "xdstp://a/" + "envoy.config.route.v3.RouteConfiguration/x/1", "xdstp://a/" + "envoy.config.route.v3.RouteConfiguration/x/*"
	for _, tt := range []struct {
		asks protocol.Interest
		want []string
	}{
		{protocol.Interest{Added: []string{"b"}}, []string{"b", "b"}},
		{protocol.Interest{Added: []string{glob}}, []string{in}},
		{protocol.Interest{Wildcard: true}, []string{"a", "b", "b", in}},
	} {
		m := newSentHistory(10)
		l := stampList{{{Name: "a"}, {Name: "b"}, {Name: "b", Version: "2"}, {Name: in}}}
		h := &statedContent{content: content{each: l}, of: stateKeyOf("n", xds.Route.URL, "v")}
		m.hold(h, nil)
		a := &streamHistory{history: m, node: "n"}
		a.recall(now, xds.Route, "v", nil)
		m.release([]*statedContent{h}, nil)
		tt.asks.Type = xds.Route
		a.interested(tt.asks)
		a.end(now)
		var got []string
		for _, st := range (&streamHistory{history: m, node: "n"}).recall(now, xds.Route, "v", nil).Others {
			got = append(got, st.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("a client that subscribes to %v has %v, want %v", tt.asks.Added, got, tt.want)
		}
	}
}

// ADS-9: a client that may have any resource keeps that state for every subscription.
func TestResumeWithUnknownContent(t *testing.T) {
	now, m := time.Now(), newSentHistory(10)
	h := &statedContent{content: anyContent, of: stateKeyOf("n", xds.Route.URL, "v")}
	m.hold(h, nil)
	a := &streamHistory{history: m, node: "n"}
	a.recall(now, xds.Route, "v", nil)
	m.release([]*statedContent{h}, nil)
	a.interested(protocol.Interest{Type: xds.Route, Added: []string{"a"}})
	a.end(now)
	if c, ok := m.recall(now, h.of); !ok || !c.isAnything() {
		t.Errorf("the client has only %v of its subscription", c.each)
	}
}

// A client without a node id that subscribes to names gets a part of a table. The table is not kept in memory for it, because
// nothing else is remembered.
func TestNamesWithoutIDKeepNoTable(t *testing.T) {
	m := newSentHistory(10)
	all := with(new(xds.Table), []*xds.Resource{res("a", "1"), res("b", "1")})
	a := &streamHistory{history: m}
	tell := func(wildcard bool, names int) {
		a.subscribed(protocol.Event{Type: xds.Cluster, Wildcard: wildcard, Count: names})
		a.sent(protocol.Event{Kind: protocol.Sent, Type: xds.Cluster, Nonce: "1", Version: all.Version(), World: &protocol.World{Versions: all.Versions()}}, &xds.Changes{})
	}
	if tell(false, 1); len(m.index) != 0 {
		t.Error("the response for a name is remembered")
	}
	if tell(true, 0); len(m.index) != 1 {
		t.Error("the response for the wildcard is not remembered")
	}
}

// Two streams with equal content at their end count once, in any order.
func TestEqualContentsCountOnce(t *testing.T) {
	now := time.Now()
	m := newSentHistory(10)
	key := stateKeyOf("n", "t", "v")
	hold := func(name string) *statedContent {
		h := &statedContent{content: content{each: stampList{{{Name: name}}}}, of: key}
		m.hold(h, nil)
		return h
	}
	a, b, a2, c := hold("a"), hold("b"), hold("a"), hold("c")
	a2.each = a.each
	m.end(now, "", []*statedContent{a})
	m.end(now.Add(time.Minute), "", []*statedContent{a2, b})
	if n := m.ended.Len(); n != 2 {
		t.Errorf("%d are remembered", n)
	}
	m.release([]*statedContent{c}, nil)
	const hour = 60 * time.Minute           // as documented
	got, ok := m.recall(now.Add(hour), key) // the second end renewed it
	if !ok || got.each.len() != 2 {
		t.Error(got, ok)
	}
	if _, ok := m.recall(now.Add(hour+time.Minute), key); ok || len(m.index) != 0 || m.ended.Len() != 0 {
		t.Error("the content is remembered for ever")
	}
}

// The content of each of a node's three streams is found by its version and type, in any order of the streams.
func TestRecallOfSeveralStreams(t *testing.T) {
	now, m := time.Now(), newSentHistory(10)
	key := stateKeyOf("n", xds.Route.URL, "v")
	for _, name := range []string{"a", "b", "c"} {
		m.hold(&statedContent{content: content{each: stampList{{{Name: name}}}}, of: key}, nil)
	}
	if got, ok := m.recall(now, key); !ok || got.each.len() != 3 {
		t.Error("ADS-9:", got, ok)
	}
	a := &streamHistory{history: m, node: "n"}
	if a.recall(now, xds.Cluster, "v", nil) != nil {
		t.Error("ADS-9: the version of one type counts for another type")
	}
	if a.recall(now, xds.Route, "v", nil) == nil {
		t.Error("ADS-9: a version is not known")
	}
}

// If too many streams have ended, the streams whose content was not renewed for the longest time
// are forgotten.
func TestHistoryForgetsOldest(t *testing.T) {
	now, m := time.Now(), newSentHistory(2)
	key := func(name string) stateKey { return stateKeyOf("n", "t", name) }
	same := content{each: stampList{{{Name: "x"}}}}
	for _, name := range []string{"a", "b", "a", "c"} {
		h := &statedContent{content: same, of: key(name)}
		m.hold(h, nil)
		m.end(now, "", []*statedContent{h})
	}
	for name, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, ok := m.recall(now, key(name)); ok != want {
			t.Errorf("SAFE-9: %s is remembered: %v", name, ok)
		}
	}
}

// A client states its last accepted version, or a newer one if its ACK was lost. The number of unanswered responses does not
// matter.
func TestHistoryOfUnansweredResponses(t *testing.T) {
	now, m := time.Now(), newSentHistory(10)
	a := &streamHistory{history: m, node: "n"}
	const answers = 3 * maxStatements
	for i := range answers {
		v := fmt.Sprint(i)
		a.sent(protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: v, Version: v, World: &protocol.World{}}, &xds.Changes{Upserts: []*xds.Resource{res("r", v)}})
		if i == 1 {
			a.acked(protocol.Event{Kind: protocol.Acked, Type: xds.Route, Nonce: v})
		}
	}
	known := func(i int) bool {
		_, ok := m.recall(now, stateKeyOf("n", xds.Route.URL, fmt.Sprint(i)))
		return ok
	}
	if known(0) || !known(1) || known(2) || !known(answers-1) {
		t.Error("ADS-9:", known(0), known(1), known(2), known(answers-1))
	}
}

// A client that changes from the wildcard to names still has the resources that it got before. It
// has resources on demand by name, in addition to the wildcard.
func TestHistoryOfWildcardThenNames(t *testing.T) {
	now, m := time.Now(), newSentHistory(10)
	a := &streamHistory{history: m, node: "n"}
	lazy := res("lazy", "1")
	lazy.OnDemand = true
	all := with(new(xds.Table), []*xds.Resource{res("r", "1"), lazy}).Versions()
	tell := func(version string, upserts ...*xds.Resource) *protocol.World {
		e := protocol.Event{Kind: protocol.Sent, Type: xds.Route, Nonce: version, Version: version, World: &protocol.World{Versions: all}}
		a.sent(e, &xds.Changes{Upserts: upserts})
		return (&streamHistory{history: m, node: "n"}).recall(now, xds.Route, version, nil)
	}
	a.subscribed(protocol.Event{Type: xds.Route, Wildcard: true, Count: 1})
	if w := tell("1", res("r", "1"), lazy); w.Versions != all || len(w.Others) != 1 || w.Others[0] != lazy.Stamp {
		t.Error("ADS-9: a name in addition to a wildcard", w)
	}
	a.subscribed(protocol.Event{Type: xds.Route, Count: 1})
	if w := tell("2"); w.Versions != all {
		t.Error("ADS-9: after a wildcard", w)
	}
}

// SAFE-1: the history of ended streams is also limited in bytes. The oldest content is forgotten
// first.
func TestHistoryBytes(t *testing.T) {
	now, m := time.Now(), newSentHistory(10_000)
	var sts []*xds.Stamp
	for i := range 100_000 {
		sts = append(sts, &xds.Stamp{Name: fmt.Sprintf("%06d", i)})
	}
	each, most := piecesOf(sts), historyLimit(10_000)/(8*len(sts))
	for i := range most + 10 {
		h := &statedContent{of: stateKeyOf("n", "t", fmt.Sprint(i)), content: content{each: each}}
		m.hold(h, nil)
		m.end(now, "", []*statedContent{h})
	}
	knows := func(i int) bool {
		_, ok := m.recall(now, stateKeyOf("n", "t", fmt.Sprint(i)))
		return ok
	}
	if n := m.ended.Len(); n > most || n < most-2 || knows(0) || !knows(most+9) || !knows(most+10-n) {
		t.Errorf("%d answers of %d names are remembered, at most %d", n, len(sts), most)
	}
	if m.end(now.Add(historyTime), "", nil); m.bytes != 0 || m.ended.Len() > 0 {
		t.Errorf("the empty history takes %d bytes", m.bytes)
	}
}
