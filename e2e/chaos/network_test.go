package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/xds"
)

var networkRows = []row{
	{name: "SAFE-1 half-open connections", fault: halfOpen},
	{name: "SAFE-2 clients that read nothing, and slow ones", fault: slowReaders},
	{name: "SAFE-9 2,000 clients reconnect at once", fast: true, setup: setup{clients: 2000, far: true}, fault: reconnects},
}

// Both Envoys and a tenth of the fleet lose the server without a word, and the server
// them. Each side notices by its own pings; the others notice nothing.
func halfOpen(r *rig) {
	r.proxy.freeze()
	far := map[*client]bool{}
	for i, c := range r.fleet.clients {
		far[c] = r.distant(i)
	}
	took := r.notices(5*time.Second, func(c *client) bool { return far[c] })
	r.note("the others were told a change in %.1f s", took.Seconds())
	back := r.converges("through new connections")
	r.note("those behind had it: %v", back)
	gone := back.told + harness.Eventually(r.t, patience, "the server gives up what has vanished", func() error {
		m, err := r.Metrics()
		if err == nil && int(m["xds_server_streams_open"]) != r.before.Streams {
			err = fmt.Errorf("%v streams are open", m["xds_server_streams_open"])
		}
		return err
	})
	r.note("the server gave up their streams within %.0f s", max(gone, time.Since(r.begun)).Seconds())
}

// Forty clients ask for what fits into no buffer and read nothing of it, ten read
// 128 KiB a second. Nobody else waits for them.
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
	defer cancel()
	var readers []grpc.ClientStream
	for i := range 50 {
		address := r.addr
		if i >= 40 {
			address = slow.Addr().String()
		}
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
		r.must(err)
		defer conn.Close()
		s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		r.must(err)
		r.must(s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: fmt.Sprint("slow-", i)}, TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: []string{large}}))
		if i >= 40 {
			readers = append(readers, s)
		}
	}
	read := make(chan error, len(readers))
	for _, s := range readers {
		go func() {
			var m discovery.DeltaDiscoveryResponse
			read <- s.RecvMsg(&m)
		}()
	}
	var longest time.Duration
	commits := 0
	for begun := time.Now(); time.Since(begun) < 45*time.Second; commits++ {
		longest = max(longest, r.notices(10*time.Second, nil))
	}
	r.note("%d commits, each told to all others within %.1f s", commits, longest.Seconds())
	r.untouched()
	for range readers {
		if err := <-read; err != nil {
			r.t.Errorf("a client that reads slowly lost its stream: %v", err)
		}
	}
	m, err := r.Metrics()
	r.must(err)
	if n := m["xds_server_blocked_writes_total"]; n != 40 {
		r.t.Errorf("%v streams ended since their client read nothing, not 40", n)
	}
	r.note("%v of 40 streams of those that read nothing ended within 45 s, all 10 slow ones got all", m["xds_server_blocked_writes_total"])
	r.must(os.Remove(filepath.Join(r.dir, large+".yaml")))
}

// A network comes back, and everyone with it. They state what they have.
func reconnects(r *rig) {
	r.proxy.cut()
	r.note("all back: %v", r.converges("after the cut"))
	r.nothingNew()
	m, err := r.Metrics()
	r.must(err)
	r.note("peak of memory %.0f MiB, %v refused", r.peak(), m["xds_server_throttled_total"])
}
