// Command crowd connects many clients to a server, each with a node ID and a stream of its own, for tests of what
// operators see. Each subscribes to clusters and accepts them, but one in a thousand refuses them. It prints "ready"
// when all have answered, and ends when its standard input ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/xds"
)

var (
	server = flag.String("server", "", "the address of the server")
	number = flag.Int("n", 1000, "number of clients")
	rate   = flag.Int("events", 0, "events that the clients cause, each second")
)

const (
	streams = 500 // of a connection
	opening = 500 // clients that wait for their first response at the same time
	changes = 4   // events of a subscription that ends and begins again: subscribe twice, send, ack
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	var ready sync.WaitGroup
	ready.Add(*number)
	failed := make(chan error, *number)
	places := make(chan struct{}, opening)
	var conn *grpc.ClientConn
	for i := range *number {
		if i%streams == 0 {
			var err error
			conn, err = grpc.NewClient(*server, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return err
			}
			defer conn.Close()
		}
		select {
		case places <- struct{}{}:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
		go func() {
			c := client{id: i, answered: func() {
				<-places
				ready.Done()
			}}
			if i == 1 && *rate > 0 {
				c.pause = time.Second * changes / time.Duration(*rate)
			}
			if err := c.run(ctx, conn); err != nil {
				failed <- fmt.Errorf("client %d: %w", i, err)
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		ready.Wait()
		close(done)
	}()
	for {
		select {
		case err := <-failed:
			return err
		case <-done:
			fmt.Println("ready")
			done = nil
		case <-ctx.Done():
			return nil
		}
	}
}

const name = "backend" // of the endpoints that a busy client subscribes to

// A client follows clusters. If it has a pause, it also subscribes to endpoints again after each pause.
type client struct {
	id       int
	answered func() // called after the first answer
	pause    time.Duration
}

func (c *client) run(ctx context.Context, conn *grpc.ClientConn) error {
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: fmt.Sprintf("web-%05d", c.id), Cluster: "web", UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.40.0"}}
	requests := make(chan *discoveryv3.DiscoveryRequest, 1)
	requests <- &discoveryv3.DiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL}
	go func() {
		for r := range requests {
			if s.Send(r) != nil {
				return
			}
		}
	}()
	for first := true; ; first = false {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		answer := func(names ...string) *discoveryv3.DiscoveryRequest {
			return &discoveryv3.DiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResourceNames: names, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}
		}
		switch ack := answer(); {
		case r.GetTypeUrl() == xds.Endpoint.URL:
			requests <- answer(name)
		case c.id%1000 == 0:
			ack.VersionInfo, ack.ErrorDetail = "", &status.Status{Message: "Didn't find a registered implementation for name: 'crowd'"}
			requests <- ack
		default:
			requests <- ack
		}
		if first {
			c.answered()
		}
		if c.pause == 0 {
			continue
		}
		select {
		case <-time.After(c.pause):
		case <-ctx.Done():
			return nil
		}
		if r.GetTypeUrl() == xds.Endpoint.URL {
			requests <- answer("none")
			requests <- answer(name)
		} else {
			requests <- &discoveryv3.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{name}}
		}
	}
}
