package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/chancery-xds/chancery/xds"
)

// crowd opens streams on a connection, each with an invented node, and accepts no response.
func (w *world) crowd(t *testing.T, conn *grpc.ClientConn, n int) {
	t.Helper()
	for i := range n {
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"e"}, Node: &corev3.Node{Id: fmt.Sprint("invented-", i)}})
	}
	synctest.Wait()
}

// "What a client can make the server hold or do is bounded per stream, per peer and in all, in bytes and in time" (SAFE-9). If a
// client invents nodes, others wait only as long as for one more node.
func TestInventedNodes(t *testing.T) {
	const streams, honest = 1500, 20
	few := WithLimits(Limits{FirstAnswers: 5})
	for _, c := range []struct {
		name    string
		crowds  int
		address func(i int) string // of honest client i
	}{
		{"on one connection", 1, func(i int) string { return fmt.Sprint("192.0.2.", 100+i) }},
		{"on one connection of the same address", 1, func(int) string { return "192.0.2.1" }},
		{"on many connections of one address", 100, func(i int) string { return fmt.Sprint("192.0.2.", 100+i) }},
	} {
		within(t, "SAFE-9 a node for each stream, "+c.name, func(t *testing.T) {
			w := serve(t, few)
			w.set(xds.Endpoint, res("e", "1"))
			for range c.crowds {
				w.crowd(t, w.dialFrom(t, "192.0.2.1"), streams/c.crowds)
			}
			if n := w.Stats().Waiting; n != streams-5 {
				t.Fatalf("%d wait", n)
			}
			for i := range honest {
				conn, node := w.dialFrom(t, c.address(i)), fmt.Sprint("node-", i)
				start, c := time.Now(), w.sotw(t, conn)
				for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint, xds.Listener} { // the first request of each waits its turn
					c.send(&discovery.DiscoveryRequest{TypeUrl: typ.URL, ResourceNames: []string{"e"}, Node: &corev3.Node{Id: node}})
					c.send(ack(c.want(), "e"))
				}
				if d := time.Since(start); d > 4*placeTime {
					t.Errorf("client %d had its configuration after %v", i, d)
				}
			}
			if n := w.Stats().Waiting; n == 0 {
				t.Error("no stream waits any more, so the test shows nothing")
			}
		})
	}
}
