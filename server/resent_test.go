package server

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A meter counts the traffic of a connection: responses, their bytes with
// gRPC's framing, and the resources in them.
type meter struct {
	mu                         sync.Mutex
	messages, resources, bytes int
}

func (c *meter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *meter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *meter) HandleConn(context.Context, stats.ConnStats)                       {}
func (c *meter) HandleRPC(_ context.Context, s stats.RPCStats) {
	p, ok := s.(*stats.InPayload)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages++
	c.bytes += p.WireLength
	switch m := p.Payload.(type) {
	case *discovery.DiscoveryResponse:
		c.resources += len(m.Resources)
	case *discovery.DeltaDiscoveryResponse:
		c.resources += len(m.Resources) + len(m.RemovedResources)
	}
}

// A want is a subscription of a client; no names mean all.
type want struct {
	typ   *xds.Type
	names []string
}

// A memory is the state that a client keeps when its stream breaks.
type memory struct {
	mu       sync.Mutex
	accepted map[string]string            // SotW: versions by type
	held     map[string]map[string]string // delta: versions by type and name
}

// A fellow describes a known kind of client: its streams and their subscriptions.
type fellow struct {
	name    string
	variant xds.Variant
	streams [][]want
	only    bool // on streams of their own, not ADS
}

// connect opens the streams, in the order in which Envoy and gRPC send their requests after a reconnect. It accepts all
// responses until the connection is closed.
func (f *fellow) connect(t *testing.T, w *world, m *memory) (*meter, *grpc.ClientConn) {
	count := &meter{}
	conn := w.dial(t, grpc.WithStatsHandler(count))
	accepted, held := map[string]string{}, map[string]map[string]string{} // copies of the state before the first answer
	m.mu.Lock()
	maps.Copy(accepted, m.accepted)
	for url, names := range m.held {
		held[url] = maps.Clone(names)
	}
	m.mu.Unlock()
	for _, wants := range f.streams {
		method := adsStream
		switch {
		case f.only && f.variant == xds.Delta:
			method = "/" + wants[0].typ.Service + "/" + wants[0].typ.Delta
		case f.only:
			method = "/" + wants[0].typ.Service + "/" + wants[0].typ.Stream
		case f.variant == xds.Delta:
			method = adsDelta
		}
		if f.variant == xds.Delta {
			m.delta(bidi[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse](t, conn, method), wants, held)
		} else {
			m.sotw(bidi[discovery.DiscoveryRequest, discovery.DiscoveryResponse](t, conn, method), wants, accepted)
		}
	}
	return count, conn
}

func (m *memory) sotw(c *sotwClient, wants []want, accepted map[string]string) {
	names := map[string][]string{}
	for _, w := range wants {
		names[w.typ.URL] = w.names
		c.send(&discovery.DiscoveryRequest{Node: &corev3.Node{Id: "n", UserAgentName: "envoy"}, TypeUrl: w.typ.URL, ResourceNames: w.names, VersionInfo: accepted[w.typ.URL]})
	}
	go func() {
		for {
			r, err := c.s.Recv()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.accepted[r.TypeUrl] = r.VersionInfo
			m.mu.Unlock()
			_ = c.s.Send(ack(r, names[r.TypeUrl]...))
		}
	}()
}

func (m *memory) delta(c *deltaClient, wants []want, retained map[string]map[string]string) {
	for _, w := range wants {
		r := &discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "n", UserAgentName: "envoy"}, TypeUrl: w.typ.URL, ResourceNamesSubscribe: w.names}
		if held := retained[w.typ.URL]; len(w.names) == 0 {
			r.InitialResourceVersions = held
		} else {
			r.InitialResourceVersions = map[string]string{}
			for _, n := range w.names {
				if v := held[n]; v != "" {
					r.InitialResourceVersions[n] = v
				}
			}
		}
		c.send(r)
	}
	go func() {
		for {
			r, err := c.s.Recv()
			if err != nil {
				return
			}
			m.mu.Lock()
			if m.held[r.TypeUrl] == nil {
				m.held[r.TypeUrl] = map[string]string{}
			}
			for _, u := range r.Resources {
				m.held[r.TypeUrl][u.Name] = u.Version
			}
			m.mu.Unlock()
			_ = c.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
		}
	}()
}

// TestResent counts the resources that an up-to-date client gets again after a reconnect. In delta
// the client gets none. In SotW it gets no resources of the wildcard, but it gets the resources
// that it subscribes to by name, because a version does not show the names to which it belongs.
//
// The table is in docs/performance.md.
func TestResent(t *testing.T) {
	const clusters, routes, size = 100, 10, 500
	var cds, eds, lds, rds []string
	for i := range clusters {
		cds, eds = append(cds, fmt.Sprint("cluster-", i)), append(eds, fmt.Sprint("cluster-", i))
	}
	for i := range routes {
		lds, rds = append(lds, fmt.Sprint("listener-", i)), append(rds, fmt.Sprint("route-", i))
	}
	content := func() *store.Store {
		st := store.New()
		if _, err := st.Update(func(tx *store.Tx) error {
			for _, w := range []want{{xds.Cluster, cds}, {xds.Endpoint, eds}, {xds.Listener, lds}, {xds.Route, rds}} {
				for _, n := range w.names {
					r := res(n, strings.Repeat("x", size))
					r.Refs = []xds.Ref{}
					if w.typ == xds.Cluster {
						r.Refs = append(r.Refs, xds.Ref{Type: xds.Endpoint, Name: n})
					}
					tx.Set(of(w.typ, r)...)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return st
	}
	envoy := []want{{xds.Cluster, nil}, {xds.Endpoint, eds}, {xds.Listener, nil}, {xds.Route, rds}}
	var apart [][]want // a stream per EDS and RDS resource
	for _, w := range envoy {
		if w.names == nil {
			apart = append(apart, []want{w})
		}
		for _, n := range w.names {
			apart = append(apart, []want{{w.typ, []string{n}}})
		}
	}
	var table strings.Builder
	table.WriteString("| client | first | comes back | server restarted | one assignment changed |\n|---|---|---|---|---|\n")
	for _, f := range []fellow{
		{name: "Envoy, ADS, delta", variant: xds.Delta, streams: [][]want{envoy}},
		{name: "Envoy, streams of their own, delta", variant: xds.Delta, streams: apart, only: true},
		{name: "by name, ADS, delta", variant: xds.Delta, streams: [][]want{{{xds.Listener, lds}, {xds.Route, rds}, {xds.Cluster, cds}, {xds.Endpoint, eds}}}},
		{name: "Envoy, ADS, SotW", streams: [][]want{envoy}},
		{name: "Envoy, streams of their own, SotW", streams: apart, only: true},
		{name: "gRPC, ADS, SotW", streams: [][]want{{{xds.Listener, lds}, {xds.Route, rds}, {xds.Cluster, cds}, {xds.Endpoint, eds}}}},
	} {
		within(t, "SOTW-12 DELTA-9 "+f.name, func(t *testing.T) {
			st := content()
			m := &memory{accepted: map[string]string{}, held: map[string]map[string]string{}}
			cell := func(w *world) string {
				c, conn := f.connect(t, w, m)
				time.Sleep(time.Minute) // the responses end long before
				conn.Close()
				synctest.Wait()
				if c.messages == 0 {
					return "0"
				}
				return fmt.Sprintf("%d B: %d in %d", c.bytes, c.resources, c.messages)
			}
			w := serveFrom(t, New(st))
			cells := []string{f.name, cell(w), cell(w), cell(serveFrom(t, New(content())))}
			if _, err := st.Update(func(tx *store.Tx) error { tx.Set(of(xds.Endpoint, res(eds[7], "new"))...); return nil }); err != nil {
				t.Fatal(err)
			}
			cells = append(cells, cell(w))
			fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | "))
			for i, got := range cells[2:4] {
				if f.variant == xds.Delta && got != "0" {
					t.Errorf("%s again: %s", []string{"came back", "after a restart"}[i], got)
				}
			}
		})
	}
	doc, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), table.String()) {
		t.Errorf("docs/performance.md does not say\n\n%s", &table)
	}
}
