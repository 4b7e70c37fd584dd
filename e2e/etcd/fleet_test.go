package etcd

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/e2e/etcd/history"
	"github.com/chancery-xds/chancery/xds"
)

// A fleet has clients that move between servers at random and record what they get.
type fleet struct {
	servers []*grpc.ClientConn // some connections to each server
	each    int                // as many
	names   []string           // of endpoints, which all want
	dwell   time.Duration      // how long a client stays with a server, about
	calm    chan struct{}      // closed: clients stop moving
	clients []*fleetClient

	moves, turnedAway, broken atomic.Int64 // streams that were begun, ended with a status of the server, ended otherwise
	needless                  atomic.Int64 // answers of SotW with nothing new, the first of their stream
}

// A fleetClient is one of them.
type fleetClient struct {
	*fleet
	i     int
	delta bool

	mu      sync.Mutex
	has     map[string]string // resource → content
	version map[string]string // SotW: of the type
	seen    []history.Seen
}

const perServer = 8 // connections

func newFleet(t testing.TB, n int, names []string, dwell time.Duration, addresses ...string) *fleet {
	f := &fleet{each: perServer, names: names, dwell: dwell, calm: make(chan struct{})}
	for _, a := range addresses {
		for range f.each {
			c, err := grpc.NewClient(a, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 300 * time.Millisecond}, MinConnectTimeout: time.Second,
			}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			f.servers = append(f.servers, c)
		}
	}
	for i := range n {
		f.clients = append(f.clients, &fleetClient{fleet: f, i: i, delta: i%2 == 0, has: map[string]string{}, version: map[string]string{}})
	}
	return f
}

// run runs all clients until ctx is done.
func (f *fleet) run(ctx context.Context, seed uint64) {
	var all sync.WaitGroup
	for _, c := range f.clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c.i)))
			for ctx.Err() == nil {
				c.visit(ctx, r)
			}
		})
	}
	all.Wait()
}

// visit is one stream to some server.
func (c *fleetClient) visit(ctx context.Context, r *rand.Rand) {
	at := r.IntN(len(c.servers))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stay := time.Duration(r.ExpFloat64()*float64(c.dwell)) + 20*time.Millisecond
	leaves := time.AfterFunc(stay, func() {
		select {
		case <-c.calm:
		default:
			cancel()
		}
	})
	defer leaves.Stop()
	c.moves.Add(1)
	var err error
	if by := fmt.Sprint("server ", at/c.each); c.delta {
		err = c.byDelta(ctx, c.servers[at], by)
	} else {
		err = c.bySotW(ctx, c.servers[at], by)
	}
	if ctx.Err() != nil {
		return
	}
	if strings.Contains(err.Error(), notSure) {
		c.turnedAway.Add(1)
	} else {
		c.broken.Add(1)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(20+r.IntN(50)) * time.Millisecond):
	}
}

// notSure is part of the status of a server that may have older content than its client.
const notSure = "may be older"

var fleetTypes = map[string]string{xds.Cluster.URL: "cds/", xds.Endpoint.URL: "eds/"}

func (c *fleetClient) node() *core.Node {
	return &core.Node{Id: fmt.Sprint("client-", c.i), Cluster: "fleet"}
}

// told records a sent resource or removal.
func (c *fleetClient) told(resource, content, by string) {
	c.seen = append(c.seen, history.Seen{Resource: resource, Content: content, By: by})
	if c.has[resource] = content; content == "" {
		delete(c.has, resource)
	}
}

func (c *fleetClient) byDelta(ctx context.Context, conn *grpc.ClientConn, by string) error {
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	clusters := &discovery.DeltaDiscoveryRequest{Node: c.node(), TypeUrl: xds.Cluster.URL, InitialResourceVersions: map[string]string{}}
	endpoints := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: c.names, InitialResourceVersions: map[string]string{}}
	for resource, content := range c.has { // only this goroutine writes to it
		if name, ok := strings.CutPrefix(resource, "cds/"); ok {
			clusters.InitialResourceVersions[name] = content
		} else {
			endpoints.InitialResourceVersions[strings.TrimPrefix(resource, "eds/")] = content
		}
	}
	for _, m := range []*discovery.DeltaDiscoveryRequest{clusters, endpoints} {
		if err := s.Send(m); err != nil {
			_, err = s.Recv()
			return err
		}
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		prefix := fleetTypes[m.TypeUrl]
		c.mu.Lock()
		for _, r := range m.Resources {
			c.told(prefix+r.Name, r.Version, by)
		}
		for _, name := range m.RemovedResources {
			c.told(prefix+name, "", by)
		}
		c.mu.Unlock()
		_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	}
}

func (c *fleetClient) bySotW(ctx context.Context, conn *grpc.ClientConn, by string) error {
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	names := map[string][]string{xds.Endpoint.URL: c.names}
	for _, url := range []string{xds.Cluster.URL, xds.Endpoint.URL} {
		if err := s.Send(&discovery.DiscoveryRequest{Node: c.node(), TypeUrl: url, ResourceNames: names[url], VersionInfo: c.version[url]}); err != nil {
			_, err = s.Recv()
			return err
		}
	}
	answered := map[string]bool{}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		prefix := fleetTypes[m.TypeUrl]
		is := map[string]string{}
		for _, r := range m.Resources {
			name, err := nameOf(r)
			if err != nil {
				return err
			}
			is[prefix+name] = xds.NewResource(xds.TypeOf(m.TypeUrl), name, r.Value).Version
		}
		c.mu.Lock()
		news := false
		for resource, content := range is {
			if c.has[resource] != content {
				c.told(resource, content, by)
				news = true
			}
		}
		if m.TypeUrl == xds.Cluster.URL { // what is not there is gone
			for _, resource := range slices.Collect(maps.Keys(c.has)) {
				if _, ok := is[resource]; !ok && strings.HasPrefix(resource, prefix) {
					c.told(resource, "", by)
					news = true
				}
			}
		}
		c.version[m.TypeUrl] = m.VersionInfo
		c.mu.Unlock()
		if !news && !answered[m.TypeUrl] && prefix == "cds/" {
			c.needless.Add(1)
		}
		answered[m.TypeUrl] = true
		_ = s.Send(&discovery.DiscoveryRequest{TypeUrl: m.TypeUrl, ResourceNames: names[m.TypeUrl], VersionInfo: m.VersionInfo, ResponseNonce: m.Nonce})
	}
}

// settled returns an error unless all clients have the expected resources.
func (f *fleet) settled(want map[string]string) error {
	behind := 0
	for _, c := range f.clients {
		c.mu.Lock()
		if !maps.Equal(c.has, want) {
			behind++
		}
		c.mu.Unlock()
	}
	if behind > 0 {
		return fmt.Errorf("%d of %d clients have something else than the newest", behind, len(f.clients))
	}
	return nil
}

// record returns what the clients got. Call it after the clients have ended.
func (f *fleet) record() (all []history.Client) {
	for _, c := range f.clients {
		kind := "SotW"
		if c.delta {
			kind = "delta"
		}
		all = append(all, history.Client{Name: fmt.Sprintf("client-%d (%s)", c.i, kind), Delta: c.delta, Rests: true, Seen: c.seen})
	}
	return all
}
