package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/xds"
)

// A reader is a client of the large assignment, which reads only on request.
type reader struct {
	id   string
	conn *grpc.ClientConn
	in   grpc.BidiStreamingClient[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]

	mu  sync.Mutex
	has map[string]string // name to version and body
}

// newReader connects a reader with small windows, so that unread data stays at the server.
func newReader(ctx context.Context, id, address string) (*reader, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		return nil, err
	}
	c := &reader{id: id, conn: conn, has: map[string]string{}}
	if err := c.ask(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// ask opens a stream without initial versions: a reconnecting reader has no resources.
func (c *reader) ask(ctx context.Context) (err error) {
	if c.in, err = discovery.NewAggregatedDiscoveryServiceClient(c.conn).DeltaAggregatedResources(ctx); err != nil {
		return err
	}
	return c.in.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: c.id}, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{large}})
}

// reads takes responses and accepts them until the stream ends.
func (c *reader) reads() error {
	for {
		m, err := c.in.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		for _, r := range m.GetResources() {
			c.has[r.GetName()] = r.GetVersion() + string(r.GetResource().GetValue())
		}
		for _, name := range m.GetRemovedResources() {
			delete(c.has, name)
		}
		c.mu.Unlock()
		_ = c.in.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: m.GetTypeUrl(), ResponseNonce: m.GetNonce()}) // Recv learns why it is not sent
	}
}

// holds returns what the reader has.
func (c *reader) holds() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.has)
}

// Forty clients subscribe to an assignment that does not fit into any buffer, and do not read. Ten
// read 128 KiB a second, and the assignment changes before they have read it. Other clients do not
// wait for them.
func slowReaders(r *rig) {
	before, err := r.Metrics()
	r.must(err)
	r.must(put(r.dir, large+".yaml", largeFile(1)))
	harness.Eventually(r.t, 10*time.Second, "the large assignment is served", func() error {
		m, err := r.Metrics()
		if err == nil && m["xds_server_resources"] == before["xds_server_resources"] {
			err = errors.New("it is not")
		}
		return err
	})
	slow, err := newProxy(r.addr)
	r.must(err)
	defer slow.close()
	slow.slow = 128 << 10
	ctx, cancel := context.WithCancel(context.Background())
	var all []*reader
	var reading sync.WaitGroup
	lost := make(chan error, 100)
	reads := func(c *reader) {
		reading.Go(func() {
			if err := c.reads(); ctx.Err() == nil {
				lost <- fmt.Errorf("%s lost its stream: %w", c.id, err)
			}
		})
	}
	defer func() {
		cancel()
		reading.Wait()
		for _, c := range all {
			c.conn.Close()
		}
	}()
	const idle, slowly = 40, 10
	for i := range idle + slowly {
		address := r.addr
		if i >= idle {
			address = slow.Addr().String()
		}
		c, err := newReader(ctx, fmt.Sprint("slow-", i), address)
		r.must(err)
		all = append(all, c)
		if i >= idle {
			reads(c)
		}
	}
	var longest time.Duration
	commits := 0
	for begun := time.Now(); time.Since(begun) < 45*time.Second; commits++ {
		if commits == 1 {
			r.must(put(r.dir, large+".yaml", largeFile(2)))
		}
		longest = max(longest, r.notices(10*time.Second, nil))
	}
	r.note("%d commits, each told to all others within %.1f s", commits, longest.Seconds())
	r.untouched()
	m, err := r.Metrics()
	r.must(err)
	if n := m["xds_server_blocked_writes_total"]; n != idle {
		r.t.Errorf("%v streams ended since their client read nothing, not %d", n, idle)
	}
	r.note("%v of %d streams of those that read nothing ended within 45 s", m["xds_server_blocked_writes_total"], idle)

	// Those who lost their stream come back, and read now.
	for _, c := range all[:idle] {
		r.must(c.ask(ctx))
		reads(c)
	}
	fresh, err := newReader(ctx, "new", r.addr)
	r.must(err)
	reads(fresh)
	all = append(all, fresh)
	took := r.likeNew(all, fresh)
	select {
	case err := <-lost:
		r.t.Error(err)
	default:
	}
	r.note("%.1f s later %d held what a new client is told, and so did the fleet", took.Seconds(), idle+slowly)
	r.must(os.Remove(filepath.Join(r.dir, large+".yaml")))
}

// likeNew waits until readers and fleet hold the same resources as new clients with the same
// subscriptions.
func (r *rig) likeNew(all []*reader, fresh *reader) time.Duration {
	r.t.Helper()
	fleet, err := newFleet(2, func(int) string { return r.addr })
	r.must(err)
	defer fleet.stop()
	harness.Eventually(r.t, patience, "new clients get everything", func() error {
		if len(fresh.holds()) == 0 {
			return errors.New("nothing of the large assignment")
		}
		return fleet.have(r.now)()
	})
	return harness.Eventually(r.t, patience, "all hold the resources of new clients", func() error {
		for _, c := range all {
			if !maps.Equal(c.holds(), fresh.holds()) {
				return fmt.Errorf("%s holds something else", c.id)
			}
		}
		for i, c := range r.fleet.clients {
			if err := c.differs(fleet.clients[i%2]); err != nil {
				return err
			}
		}
		return nil
	})
}

// differs compares what two clients hold.
func (c *client) differs(o *client) error {
	holds := func(c *client) map[*xds.Type]map[string]string {
		c.mu.Lock()
		defer c.mu.Unlock()
		all := map[*xds.Type]map[string]string{}
		for t, has := range c.has {
			all[t] = maps.Clone(has)
		}
		return all
	}
	mine, other := holds(c), holds(o)
	for _, t := range kinds {
		if !maps.Equal(mine[t], other[t]) {
			return fmt.Errorf("%s holds %v of %v, %s %v", c.id, mine[t], t, o.id, other[t])
		}
	}
	return nil
}
