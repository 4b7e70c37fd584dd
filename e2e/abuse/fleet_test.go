package abuse

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/chancery-xds/chancery/xds"
)

// A fleet is good clients, each with a connection of its own. They subscribe to all clusters, half of them by SotW
// and half by delta.
type fleet struct {
	addr  string
	size  int
	creds credentials.TransportCredentials

	running sync.WaitGroup
	stop    context.CancelFunc
	lost    atomic.Int64 // streams that ended
	first   sync.Map     // of errors that ended a stream

	mu  sync.Mutex
	has []int // newest generation of each client
}

func newFleet(addr string, n int, creds credentials.TransportCredentials) *fleet {
	f := &fleet{addr: addr, size: n, creds: creds, has: make([]int, n)}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = func() { cancel(); f.running.Wait() }
	for i := range n {
		f.running.Go(func() {
			for ctx.Err() == nil {
				err := f.client(ctx, fmt.Sprint("good-", i), i%2 == 1, func(generation int) bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					f.has[i] = max(f.has[i], generation)
					return true
				})
				if ctx.Err() == nil {
					f.lost.Add(1)
					f.first.LoadOrStore(fmt.Sprint(err), i)
					pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	return f
}

// behind returns how many clients lack a generation.
func (f *fleet) behind(generation int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.has {
		if g < generation {
			n++
		}
	}
	return n
}

// newcomer connects a client and returns when it got its first response.
func (f *fleet) newcomer() (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	served := false
	err := f.client(ctx, "new", false, func(int) bool { served = true; return false })
	if served {
		err = nil
	}
	return time.Since(began), err
}

// client is a client with a new connection until its stream ends. It calls got with the generation of each response
// that has one, and leaves if got returns false.
func (f *fleet) client(ctx context.Context, id string, delta bool, got func(generation int) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+f.addr, grpc.WithTransportCredentials(f.creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	ads, node := discovery.NewAggregatedDiscoveryServiceClient(conn), &core.Node{Id: id}
	if delta {
		s, err := ads.DeltaAggregatedResources(ctx)
		if err != nil {
			return err
		}
		req := &discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{"*"}}
		for {
			if err := s.Send(req); err != nil {
				_, err = s.Recv()
				return err
			}
			r, err := s.Recv()
			if err != nil {
				return err
			}
			for _, x := range r.Resources {
				if g, ok := generationOf(x.Name); ok && !got(g) {
					return nil
				}
			}
			req = &discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce}
		}
	}
	s, err := ads.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	req := &discovery.DiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL}
	for {
		if err := s.Send(req); err != nil {
			_, err = s.Recv()
			return err
		}
		r, err := s.Recv()
		if err != nil {
			return err
		}
		for _, x := range r.Resources {
			_, name, ok := strings.Cut(string(x.Value[:min(40, len(x.Value))]), tick)
			var g int
			if ok {
				if n, _ := fmt.Sscanf(name, "%d", &g); n == 1 && !got(g) {
					return nil
				}
			}
		}
		req = &discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce, VersionInfo: r.VersionInfo}
	}
}

// tick begins the name of the cluster that has the generation.
const tick = "tick-"

func generationOf(name string) (g int, ok bool) {
	rest, ok := strings.CutPrefix(name, tick)
	if !ok {
		return 0, false
	}
	n, _ := fmt.Sscanf(rest, "%d", &g)
	return g, n == 1
}
