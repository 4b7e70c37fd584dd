package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/chancery-xds/chancery/xds"
)

// "Going away (drain) costs no client a request: not ready first, then GOAWAY, then streams, spread
// over time." (SAFE-12) With two replicas and 200 clients behind a list of addresses, no client is
// refused, and no client is without a stream for more than 300 ms.
func TestRollout(t *testing.T) {
	const clients, most = 200, 300 * time.Millisecond
	first := serve(t, []string{"--drain", "2s", "--drain-delay", "200ms"}, "a.yaml", cluster("a"))
	second := serve(t, nil, "a.yaml", cluster("a"))
	both := resolver.State{Addresses: []resolver.Address{{Addr: first.conn.Target()}, {Addr: second.conn.Target()}}}

	type result struct {
		at      string // the server of the last stream
		refused []error
		without time.Duration
		streams int
	}
	results := make(chan result, clients)
	var ready sync.WaitGroup
	ready.Add(clients)
	over := make(chan struct{})
	for range clients {
		list := manual.NewBuilderWithScheme("list")
		list.InitialState(both)
		conn, err := grpc.NewClient("list:///", grpc.WithResolvers(list), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		go func() {
			var r result
			var lost time.Time // when the last stream ended
			for {
				stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(first.ctx, grpc.WaitForReady(true))
				if err == nil {
					err = stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL})
				}
				if err == nil {
					_, err = stream.Recv()
				}
				if err != nil {
					r.refused = append(r.refused, err)
					lost = time.Now()
					if len(r.refused) > 100 {
						break
					}
					continue
				}
				if p, is := peer.FromContext(stream.Context()); is {
					r.at = p.Addr.String()
				}
				if r.streams++; r.streams == 1 {
					ready.Done()
				} else {
					r.without = max(r.without, time.Since(lost))
				}
				ended := make(chan error, 1)
				go func() { _, err := stream.Recv(); ended <- err }()
				select {
				case <-over:
					results <- r
					return
				case <-ended:
					lost = time.Now()
				}
			}
			results <- r
		}()
	}
	ready.Wait()
	first.signal(syscall.SIGTERM)
	first.exits(0)
	time.Sleep(most)
	close(over)
	moved, served, longest, refused := 0, 0, time.Duration(0), 0
	for range clients {
		r := <-results
		if r.streams > 1 {
			moved++
		}
		if r.at == second.conn.Target() {
			served++
		}
		longest = max(longest, r.without)
		if refused += len(r.refused); len(r.refused) > 0 {
			t.Error(fmt.Errorf("refused: %w", r.refused[0]))
		}
	}
	t.Logf("%d of %d clients have moved, refused %d times, at most %v without a stream", moved, clients, refused, longest)
	// On a busy machine a client may have started with the second address of the list.
	if moved < clients/2 || served != clients || longest > most {
		t.Errorf("%d of %d clients have moved, %d are at the other server, at most %v without a stream, want %v", moved, clients, served, longest, most)
	}
}

// "A second signal ends it at once", and connections without requests do not delay the end. A process that
// does not end in time is killed, before other clients have got their last responses. (SAFE-12)
func TestSilentPeersDoNotDelayShutdown(t *testing.T) {
	for name, signals := range map[string]int{"one signal": 1, "a second one": 2} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, []string{"--drain", map[int]string{1: "100ms", 2: "1h"}[signals]}, "a.yaml", cluster("a"))
			d.clusters().gets("a") // so that there is a stream to drain
			for _, first := range []string{"", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
				c, err := net.Dial("tcp", d.conn.Target())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = io.WriteString(c, first)
			}
			time.Sleep(100 * time.Millisecond) // both are accepted
			start := time.Now()
			d.signal(syscall.SIGTERM)
			d.logged("shutting down: closing streams")
			if signals == 2 {
				d.signal(syscall.SIGTERM)
			}
			d.exits(signals - 1)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("the server ended after %v", took)
			}
		})
	}
}

// A reader of the admin API that does not read does not delay the end longer than streams do: the server
// ends after --drain, and half a second for active requests. (SAFE-12)
func TestAdminReadersDoNotDelayShutdown(t *testing.T) {
	const drain, spare = time.Second, 3 * time.Second // to spare on a busy machine
	d := serve(t, []string{"--drain", drain.String(), "--admin-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
	address := adminOf(t, d)
	for range 100 {
		d.clusters().gets("a")
	}
	for i := range 30 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		path := []string{"/api/v1/events", "/api/v1/wait?node=x&timeout=1h", "/api/v1/clients?all=1"}[i%3]
		for range 1 + i%3/2*200 { // answers that fill what the connection holds
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := time.Now()
	d.signal(syscall.SIGTERM)
	d.exits(0)
	took := time.Since(start)
	t.Logf("the server ended after %v", took)
	if took > drain+spare {
		t.Errorf("the server ended after %v", took)
	}
}
