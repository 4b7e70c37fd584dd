package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// How long an update takes in real time until all clients have it: without a bad client, with a client that never
// reads, and with a client that sends as fast as it can.
func TestNeighbours(t *testing.T) {
	const clients, updates = 10, 100
	big := strings.Repeat("x", 1<<20)
	measure := func(t *testing.T, bad func(context.Context, discovery.AggregatedDiscoveryServiceClient) error) time.Duration {
		st := store.New()
		w := serveFrom(t, New(st, new(logbook).at(0)))
		put(t, st, xds.Listener, res("large", big))
		put(t, st, xds.Runtime, res("large", big))
		conn := w.dial(t)
		var all []*sotwClient
		for range clients {
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}})
			all = append(all, c)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		if bad != nil {
			ads := discovery.NewAggregatedDiscoveryServiceClient(w.dial(t))
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := bad(ctx, ads); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		var took []time.Duration
		for i := range updates {
			at := time.Now()
			put(t, st, xds.Endpoint, res("e", fmt.Sprint(i)))
			put(t, st, xds.Runtime, res("large", big+fmt.Sprint(i)))
			for _, c := range all {
				r := c.want()
				took = append(took, time.Since(at))
				if string(r.Resources[0].Value) != fmt.Sprint(i) {
					t.Fatalf("update %d: %v", i, r)
				}
				c.send(ack(r, "e"))
			}
			time.Sleep(2 * time.Millisecond)
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	alone := measure(t, nil)
	t.Logf("p99 alone: %v", alone)
	for name, bad := range map[string]func(context.Context, discovery.AggregatedDiscoveryServiceClient) error{
		"SAFE-2 a client that never reads": func(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient) error {
			c, err := ads.StreamAggregatedResources(ctx)
			if err != nil {
				return err
			}
			for _, typ := range []*xds.Type{xds.Listener, xds.Runtime, xds.Endpoint} {
				if err := c.Send(&discovery.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: []string{"large", "e"}}); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return nil
		},
		"SAFE-1 a client that floods": func(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient) error {
			c, err := ads.StreamAggregatedResources(ctx)
			for i := 0; err == nil; i++ {
				err = c.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: [][]string{{"e"}, {"f"}}[i%2]})
			}
			return err
		},
		"SAFE-1 a client that comes back again and again": func(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient) error {
			c, err := ads.StreamAggregatedResources(ctx)
			if err != nil {
				return err
			}
			if err := c.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Listener.URL}); err != nil {
				return err
			}
			if _, err := c.Recv(); err != nil {
				return err
			}
			return c.CloseSend()
		},
	} {
		t.Run(name, func(t *testing.T) {
			// A busy machine may delay one round, but not all three. A server that waits for the bad
			// client would do so in each round, for seconds.
			for range 3 {
				beside := measure(t, bad)
				t.Logf("p99: %v, alone %v", beside, alone)
				if beside < 10*alone+500*time.Millisecond {
					return
				}
			}
			t.Error("the neighbours wait")
		})
	}
}
