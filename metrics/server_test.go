package metrics

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The metrics of a real server match its events.
func TestRealServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.New()
		set := func(name, body string) {
			if _, err := st.Update(func(tx *store.Tx) error {
				tx.Set(xds.NewResource(xds.Cluster, name, []byte(body)))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		set("a", "1")
		m := made(Options{Snapshot: st.Snapshot, Newest: st.Newest})
		srv := server.New[*store.Watch](st, server.WithObserver(m), server.WithLogger(slog.New(slog.DiscardHandler)))
		m.Server(srv.Stats)
		g := grpc.NewServer(server.GRPCOptions()...)
		if err := srv.Register(g); err != nil {
			t.Fatal(err)
		}
		l := bufconn.Listen(1 << 20)
		go g.Serve(l)
		defer g.Stop()
		conn, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var rpcStream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
		expect(t, m, func() {
			if rpcStream, err = discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		},
			`streams_open 1`, `streams_silent 1`)
		var nonce string
		send := func(req *discovery.DiscoveryRequest) {
			req.TypeUrl, req.ResponseNonce = xds.Cluster.URL, nonce
			if err := rpcStream.Send(req); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		recv := func() {
			r, err := rpcStream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			nonce = r.Nonce
			synctest.Wait()
		}

		expect(t, m, func() {
			send(&discovery.DiscoveryRequest{Node: &core.Node{Id: "a"}})
			recv()
			send(&discovery.DiscoveryRequest{ErrorDetail: status.New(codes.InvalidArgument, "no").Proto()})
		},
			`streams{variant="sotw"} 1`,
			`held_bytes 1`,
			`streams_silent 0`,
			`streams_opened_total{variant="sotw"} 1`,
			`requests_total{kind="initial",type="cds",variant="sotw"} 1`,
			`requests_total{kind="subscribe",type="cds",variant="sotw"} 1`,
			`requests_total{kind="nack",type="cds",variant="sotw"} 1`,
			`responses_total{type="cds",variant="sotw"} 1`,
			`resources_sent_total{type="cds"} 1`,
			`response_ack_seconds_count{type="cds"} 1`,
			`response_bytes_count{type="cds"} 1`,
			`response_bytes_sum{type="cds"} 146`,
			`nacks_total{group="default",type="cds"} 1`,
			`clients_nacked{group="default",type="cds"} 1`)
		if got := scrape(t, m)[prefix+`propagation_seconds_count{type="cds"}`]; got != "0" {
			t.Errorf("what a client is sent as it comes counts as a change: %s", got)
		}
		time.Sleep(time.Second)
		expect(t, m, func() {
			set("a", "2")
			recv()
			time.Sleep(2 * time.Second)
			send(&discovery.DiscoveryRequest{VersionInfo: "x"})
		},
			`requests_total{kind="ack",type="cds",variant="sotw"} 1`,
			`responses_total{type="cds",variant="sotw"} 2`,
			`resources_sent_total{type="cds"} 2`,
			`response_ack_seconds_count{type="cds"} 2`,
			`response_ack_seconds_sum{type="cds"} 2`,
			`response_bytes_count{type="cds"} 2`,
			`response_bytes_sum{type="cds"} 292`,
			`propagation_seconds_count{type="cds"} 1`,
			`propagation_seconds_sum{type="cds"} 2`,
			`clients_nacked{group="default",type="cds"} 0`)
		if got := scrape(t, m); got[prefix+`throttled_total{limit="first_answers"}`] != "0" || got[prefix+"first_answers_waiting"] != "0" {
			t.Error("the series of limits are not there from the start")
		}
		expect(t, m, func() {
			rpcStream.CloseSend()
			synctest.Wait()
		},
			`streams_open 0`,
			`held_bytes 0`,
			`streams{variant="sotw"} 0`,
			`streams_closed_total{reason="ended"} 1`)
		expect(t, m, func() {
			bad, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := bad.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &core.Node{Id: strings.Repeat("x", 5000)}}); err != nil {
				t.Fatal(err)
			}
			if _, err := bad.Recv(); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
			synctest.Wait() // the seat is free when both goroutines of the stream have ended
		}, `throttled_total{limit="request"} 1`)
	})
}
