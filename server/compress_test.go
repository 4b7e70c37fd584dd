package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// wireSizes notes how a client's messages look on the wire.
type wireSizes struct {
	mu       sync.Mutex
	sent     int    // bytes of requests
	received int    // bytes of responses
	encoding string // of responses
}

func (w *wireSizes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (w *wireSizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (w *wireSizes) HandleConn(context.Context, stats.ConnStats)                       {}
func (w *wireSizes) HandleRPC(_ context.Context, s stats.RPCStats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s := s.(type) {
	case *stats.OutPayload:
		w.sent += s.CompressedLength
	case *stats.InPayload:
		w.received += s.CompressedLength
	case *stats.InHeader:
		w.encoding = s.Compression
	}
}

func TestCompressed(t *testing.T) {
	within(t, "SAFE-1 requests may be compressed, responses are not", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", strings.Repeat("x", 10_000)))
		var seen wireSizes
		c := w.sotw(t, w.dial(t, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)), grpc.WithStatsHandler(&seen)))
		var names []string
		for i := range 10_000 {
			names = append(names, fmt.Sprintf("cluster-%d", i))
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: append(names, "a")})
		if r := c.want(); len(r.Resources) != 1 {
			t.Error(r)
		}
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if seen.sent > 50_000 || seen.received < 10_000 || seen.encoding != encoding.Identity {
			t.Errorf("%d bytes of requests, %d of responses in encoding %q", seen.sent, seen.received, seen.encoding)
		}
	})
	within(t, "REST-6 a Fetch may be compressed", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", strings.Repeat("x", 10_000)))
		var seen wireSizes
		conn := w.dial(t, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)), grpc.WithStatsHandler(&seen))
		var r discovery.DiscoveryResponse
		if err := conn.Invoke(t.Context(), "/"+xds.Cluster.Service+"/"+xds.Cluster.Fetch, &discovery.DiscoveryRequest{}, &r); err != nil || len(r.Resources) != 1 {
			t.Error(err, &r)
		}
		if seen.received < 10_000 || seen.encoding != encoding.Identity {
			t.Errorf("%d bytes of responses in encoding %q", seen.received, seen.encoding)
		}
	})
	within(t, "SAFE-1 the limit is of what a request unpacks to", func(t *testing.T) {
		w := serve(t)
		conn := w.dial(t, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
		good := w.sotw(t, conn)
		good.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		good.send(ack(good.want()))
		bad := w.sotw(t, conn)
		bad.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: strings.Repeat("x", MaxRequest)}) // 32 KiB of gzip
		if err := bad.end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		synctest.Wait() // gRPC tells the client first
		if n := w.Stats().Throttled["request"]; n != 1 {
			t.Errorf("it was counted %d times", n)
		}
		w.set(xds.Cluster, res("a", "1"))
		good.want()
	})
}
