package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// Each flag sets its limit.
func TestLimitFlags(t *testing.T) {
	t.Parallel()
	d := serve(t, []string{
		"--max-request", "5kB", "--max-node", "1000B", "--max-types", "2", "--max-names", "3",
		"--max-name-length", "200", "--max-held", "500",
	}, "a.yaml", cluster("a"))
	open := func(t *testing.T, d *runningServer, reqs ...*discoveryv3.DiscoveryRequest) error {
		t.Helper()
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reqs {
			if s.Send(r) != nil {
				break
			}
		}
		for {
			if _, err := s.Recv(); err != nil {
				return err
			}
		}
	}
	of := func(typ *xds.Type, names ...string) *discoveryv3.DiscoveryRequest {
		return &discoveryv3.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: names}
	}
	for name, c := range map[string]struct {
		says string
		reqs []*discoveryv3.DiscoveryRequest
	}{
		"--max-request":     {"larger than max", []*discoveryv3.DiscoveryRequest{{TypeUrl: xds.Cluster.URL, VersionInfo: strings.Repeat("v", 5000)}}},
		"--max-node":        {"more than 1000", []*discoveryv3.DiscoveryRequest{{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Cluster: strings.Repeat("v", 1000)}}}},
		"--max-types":       {"more than 2 resource types", []*discoveryv3.DiscoveryRequest{of(xds.Cluster), of(xds.Listener), of(xds.Route, "r")}},
		"--max-names":       {"more than 3", []*discoveryv3.DiscoveryRequest{of(xds.Endpoint, "a", "b", "c", "d")}},
		"--max-name-length": {"more than 200", []*discoveryv3.DiscoveryRequest{of(xds.Endpoint, strings.Repeat("a", 201))}},
		"--max-held": {"more than 500", []*discoveryv3.DiscoveryRequest{
			of(xds.Endpoint, strings.Repeat("a", 150), strings.Repeat("b", 150)), of(xds.Route, strings.Repeat("r", 150)),
		}},
	} {
		t.Run("SAFE-1 "+name, func(t *testing.T) {
			if err := open(t, d, c.reqs...); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), c.says) {
				t.Errorf("told %v", err)
			}
			if line := d.logged("stream closed: client exceeded a limit or sent a malformed request"); line["flag"] != name {
				t.Errorf("the log names %v: %v", line["flag"], line)
			}
		})
	}
	t.Run("SAFE-1 --max-streams", func(t *testing.T) {
		// Another daemon: the streams above leave their seats a moment after their clients know the error.
		d := serve(t, []string{"--max-streams", "2"}, "a.yaml", cluster("a"))
		for range 2 {
			d.clusters().gets("a")
		}
		if err := open(t, d, of(xds.Cluster)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "2 streams are open") {
			t.Errorf("told %v", err)
		}
		if line := d.logged("stream closed: client exceeded a limit or sent a malformed request"); !strings.HasPrefix(fmt.Sprint(line["peer"]), "127.0.0.1:") || line["code"] != "ResourceExhausted" || line["flag"] != "--max-streams" {
			t.Error(line)
		}
	})
}

// A client that does not read loses its stream after the time of the flag, not after the default.
func TestWriteTimeoutFlag(t *testing.T) {
	t.Run("SAFE-1 --write-timeout", func(t *testing.T) {
		t.Parallel()
		large := strings.Repeat("x", 1<<20)
		d := serve(t, []string{"--write-timeout", "200ms"}, "a.yaml", cluster("a")+"alt_stat_name: "+large, "s.yaml", aSecret("s", large))
		// Windows of a fixed size do not grow while the client does not read.
		conn, err := grpc.NewClient(d.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		// The transport takes the first response whole; the second is blocked.
		for _, r := range []*discoveryv3.DiscoveryRequest{{TypeUrl: xds.Cluster.URL}, {TypeUrl: xds.Secret.URL, ResourceNames: []string{"s"}}} {
			if err := s.Send(r); err != nil {
				t.Fatal(err)
			}
		}
		if line := d.logged("stream closed: client exceeded a limit or sent a malformed request"); line["code"] != "DeadlineExceeded" || !strings.Contains(fmt.Sprint(line["error"]), "for 200ms") || line["flag"] != "--write-timeout" {
			t.Error(line)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Streams of unknown clients and of other services are limited by flags, too.
func TestFirstRequestAndOtherStreamsFlags(t *testing.T) {
	t.Run("SAFE-9 --first-request-timeout --max-other-streams", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--first-request-timeout", "200ms", "--max-other-streams", "1"}, "a.yaml", cluster("a"))
		silent, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := silent.Recv(); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "no request came for 200ms") {
			t.Errorf("told %v", err)
		}
		watch := func() error {
			h, err := healthgrpc.NewHealthClient(d.conn).Watch(d.ctx, &healthgrpc.HealthCheckRequest{})
			if err == nil {
				_, err = h.Recv()
			}
			return err
		}
		if err := watch(); err != nil {
			t.Error(err)
		}
		if err := watch(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("told %v", err)
		}
	})
}

// "MAX_CONCURRENT_STREAMS [...] indicates the maximum number of concurrent streams that the sender
// will allow": the value is in the first frame.
func TestConnectionStreamsFlag(t *testing.T) {
	t.Run("SAFE-7 --max-connection-streams", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--max-connection-streams", "7"})
		conn, err := net.Dial("tcp", d.conn.Target())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const settings, maxStreams = 4, 3
		if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil || head[3] != settings {
			t.Fatal(head, err)
		}
		body := make([]byte, int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, body); err != nil {
			t.Fatal(err)
		}
		told := map[int]int{}
		for f := range slices.Chunk(body, 6) {
			told[int(f[0])<<8|int(f[1])] = int(f[2])<<24 | int(f[3])<<16 | int(f[4])<<8 | int(f[5])
		}
		if n := told[maxStreams]; n != 7 {
			t.Errorf("a connection may have %d streams: %v", n, told)
		}
	})
}

// packed is a compression that clients use. The program registers the same name and refuses it.
const packed = packing("gzip")

type packing string

func init() { encoding.RegisterCompressor(packed) } // replaces the compressor that refuses

func (p packing) Name() string { return string(p) }

func (packing) Compress(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }

func (packing) Decompress(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// "What a client can make the server hold or do is bounded" (SAFE-9): compressed bytes could be
// counted only after decompression.
func TestCompressedRequests(t *testing.T) {
	t.Run("SAFE-9 compressed requests are refused", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--metrics-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx, grpc.UseCompressor(string(packed)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL}); err != nil && !errors.Is(err, io.EOF) { // Recv returns the reason
			t.Fatal(err)
		}
		const says = "compressed requests are not supported"
		if _, err := s.Recv(); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), says) {
			t.Error(err)
		}
		if line := d.logged("stream closed: client exceeded a limit or sent a malformed request"); !strings.Contains(fmt.Sprint(line["error"]), says) || line["peer"] == nil {
			t.Error(line)
		}
		_, err = healthgrpc.NewHealthClient(d.conn).Check(d.ctx, &healthgrpc.HealthCheckRequest{Service: "x"}, grpc.UseCompressor(string(packed)))
		if status.Code(err) != codes.Internal {
			t.Error(err)
		}
		if m := d.metrics(); !strings.Contains(m, "xds_server_malformed_requests_total 2\n") {
			t.Error("the requests are not counted")
		}
	})
}
