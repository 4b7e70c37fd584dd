//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/chancery-xds/chancery/xds"
)

// stream opens an aggregated stream and sends the requests.
func (d *runningServer) stream(conn *grpc.ClientConn, reqs ...*discoveryv3.DiscoveryRequest) discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
	d.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(d.ctx)
	if err != nil {
		d.Fatal(err)
	}
	for _, r := range reqs {
		_ = s.Send(r) // Recv returns the error
	}
	return s
}

// "What a client can make the server hold or do is bounded per stream, per peer and in all" (SAFE-9), and
// operators can see it: each limit has a flag, a metric and a log line. Some limits have tests of their
// own.
func TestLimitsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	const (
		stream = "stream closed: client exceeded a limit or sent a malformed request"
		conn   = "connection closed: unfinished requests exceed a limit"
	)
	clusters := &discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL}
	named := func(n int) *discoveryv3.DiscoveryRequest {
		r := &discoveryv3.DiscoveryRequest{TypeUrl: xds.Endpoint.URL}
		for i := range n {
			r.ResourceNames = append(r.ResourceNames, fmt.Sprint(i))
		}
		return r
	}
	opens := func(n int, reqs ...*discoveryv3.DiscoveryRequest) func(*runningServer) {
		return func(d *runningServer) {
			for range n {
				d.stream(d.conn, reqs...)
			}
		}
	}
	var many []*discoveryv3.DiscoveryRequest
	for range 20 {
		many = append(many, clusters)
	}
	for _, c := range []struct {
		flags   string
		limit   string // as it is counted
		line    string
		says    string // text in the log line
		provoke func(*runningServer)
	}{
		{"--max-silent-streams 1", "silent_streams", stream, "on which no request has come", opens(3)},
		{"--max-streams 1", "streams", stream, "1 streams are open", opens(2, clusters)},
		{"--first-request-timeout 200ms", "first_request", stream, "no request came for 200ms", opens(1)},
		{"--max-types 1", "subscription", stream, "more than 1 resource types", opens(1, clusters, named(1))},
		{"--max-names 2", "request", stream, "more than 2", opens(1, named(3))},
		{"--max-request 1KiB", "request", stream, "larger than max", opens(1, named(1000))},
		{"--max-rate 1", "rate", "client sends requests too fast: they wait", "per_second:1", opens(1, many...)},
		{"--max-address-rate 1", "address_rate", "an address sends requests too fast: they wait", "per_second:1", opens(1, many...)},
		// A client that does not answer keeps its place for 100 ms.
		{"--max-first-answers 1", "first_answers", "many clients connect at once: they get their first responses in turn", "at_once:1", opens(50, clusters)},
		{"--max-other-streams 1", "other_streams", stream, "1 streams of other services", func(d *runningServer) {
			for range 2 {
				s, err := healthgrpc.NewHealthClient(d.conn).Watch(d.ctx, &healthgrpc.HealthCheckRequest{})
				if err != nil {
					d.Fatal(err)
				}
				_, _ = s.Recv()
			}
		}},
		{"--max-polls 1", "polls", "poll ended: client exceeded a limit or sent a malformed request", "1 polls are held", func(d *runningServer) {
			p := d.poller(nil, "tcp", d.logged("serving REST-JSON")["http"].(string))
			_, version, _ := p.poll("")
			for i := range 2 {
				go func() {
					ask := strings.NewReader(fmt.Sprintf(`{"node":{"id":"%d"},"version_info":%q}`, i, version))
					if r, err := p.http.Post(p.url+"/v3/discovery:clusters", "application/json", ask); err == nil {
						r.Body.Close()
					}
				}()
			}
		}},
		{"--max-request 64KiB --max-unfinished 128KiB", "unfinished", conn, "more bytes than the limit for all clients", func(d *runningServer) {
			f := flood(d.T, d.conn.Target())
			for i := range uint32(3) { // small requests, counted together
				f.open(2*i + 1)
				f.begin(2*i+1, 60_000, 60_001)
			}
		}},
		{"--read-timeout 200ms", "unfinished", conn, "too slowly", func(d *runningServer) {
			f := flood(d.T, d.conn.Target())
			f.open(1)
			f.begin(1, 1000, 2000)
		}},
		{"--max-held-total 64KiB", "subscription", stream, "peer:127.0.0.2", func(d *runningServer) {
			stranger := d.stream(from("127.0.0.2", d.conn.Target(), d.T), named(900))
			for !strings.Contains(d.metrics(), "xds_server_held_bytes 6") {
				time.Sleep(10 * time.Millisecond)
			}
			good := d.stream(d.conn, clusters, named(300))
			if _, err := stranger.Recv(); err == nil {
				d.Error("the stranger stays")
			}
			if r, err := good.Recv(); err != nil || len(r.Resources) != 1 {
				d.Error("a client from another address is not served:", r, err)
			}
		}},
	} {
		t.Run("SAFE-9 "+c.flags, func(t *testing.T) {
			t.Parallel()
			d := serve(t, append(strings.Fields(c.flags), "--metrics-listen", "127.0.0.1:0", "--rest-listen", "127.0.0.1:0"), "a.yaml", cluster("a"))
			c.provoke(d)
			words := strings.Fields(c.flags)
			raises := words[len(words)-2]
			if line := d.logged(c.line); !strings.Contains(fmt.Sprint(line), c.says) || line["flag"] != raises {
				t.Error(line)
			}
			counted := `xds_server_throttled_total{limit="` + c.limit + `"} `
			if m := d.metrics(); !strings.Contains(m, counted) || strings.Contains(m, counted+"0\n") {
				t.Errorf("%q is not counted", c.limit)
			}
		})
	}
}
