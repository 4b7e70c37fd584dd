package server

import (
	"context"
	"sync/atomic"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"

	"github.com/chancery-xds/chancery/xds"
)

// A sniffer counts compressed responses.
type sniffer struct{ calls, compressed atomic.Int64 }

func (s *sniffer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (s *sniffer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (s *sniffer) HandleConn(context.Context, stats.ConnStats)                       {}
func (s *sniffer) HandleRPC(_ context.Context, st stats.RPCStats) {
	if h, ok := st.(*stats.InHeader); ok {
		if s.calls.Add(1); h.Compression != "" && h.Compression != "identity" {
			s.compressed.Add(1)
		}
	}
}

// A response is encoded once for all streams. The response is not compressed, even if the requests
// of the client are compressed.
func TestResponsesAreNotCompressed(t *testing.T) {
	within(t, "SAFE-1 a response costs the same if its client compresses", func(t *testing.T) {
		w, s := serve(t), &sniffer{}
		w.set(xds.Cluster, res("a", "1"))
		conn := w.dial(t, grpc.WithStatsHandler(s), grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
		if err := conn.Invoke(t.Context(), "/"+xds.Cluster.Service+"/"+xds.Cluster.Fetch, &discovery.DiscoveryRequest{}, &discovery.DiscoveryResponse{}); err != nil {
			t.Fatal(err)
		}
		if all, n := s.calls.Load(), s.compressed.Load(); all != 2 || n != 0 {
			t.Errorf("of %d responses %d are compressed", all, n)
		}
	})
}
