package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

const (
	adsStream = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	adsDelta  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
)

func names(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprint("name-", i)
	}
	return s
}

func TestLimits(t *testing.T) {
	w := serve(t)
	w.set(xds.Endpoint, res("e", "1"))
	conn := w.dial(t)

	for _, method := range []string{adsStream, adsDelta} {
		for _, c := range []struct{ name, bytes string }{
			{"torn", "\x1a\x05abc"},
			{"no protobuf", "GET / HTTP/1.1\r\n\r\n"},
			{"no UTF-8", "\x1a\x02\xff\xfe"},
		} {
			t.Run("SAFE-1 malformed request, "+c.name+" "+method[strings.LastIndex(method, "/")+1:], func(t *testing.T) {
				s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, rawCodec)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.SendMsg(raw(c.bytes)); err != nil {
					t.Fatal(err)
				}
				if err := s.RecvMsg(&message{}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "malformed") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted || len(err.Error()) > 400 {
			t.Errorf("got %v", err)
		}
	}
	t.Run("SAFE-1 a million names", func(t *testing.T) {
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names(1_000_000)})
		refused(t, c.end())
	})
	t.Run("SAFE-1 a million names, bit by bit", func(t *testing.T) {
		c := w.delta(t, conn)
		end := make(chan error, 1)
		go func() { end <- c.end() }()
		for all := range slices.Chunk(names(1_000_000), 50_000) {
			if c.s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: all}) != nil {
				break
			}
		}
		refused(t, <-end)
	})
	t.Run("SAFE-1 a name of 1 MiB", func(t *testing.T) {
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{strings.Repeat("n", 1<<20)}})
		refused(t, c.end())
	})
	t.Run("SAFE-1 a type URL of 1 MiB", func(t *testing.T) {
		c := bidi[discovery.DiscoveryRequest, discovery.DiscoveryResponse](t, conn, "/"+xds.Route.Service+"/"+xds.Route.Stream)
		c.send(&discovery.DiscoveryRequest{TypeUrl: strings.Repeat("t", 1<<20)})
		if err := c.end(); status.Code(err) != codes.InvalidArgument || len(err.Error()) > 500 {
			t.Errorf("an error of %d bytes, %v", len(err.Error()), status.Code(err))
		}
	})
	t.Run("SAFE-1 more than 64 types", func(t *testing.T) {
		c := w.sotw(t, conn)
		for i := range 65 {
			c.send(&discovery.DiscoveryRequest{TypeUrl: fmt.Sprint("type.googleapis.com/my.Own", i)})
			if i < 64 {
				c.want()
			}
		}
		refused(t, c.end())
	})
	t.Run("SAFE-1 a message larger than the limit", func(t *testing.T) {
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, VersionInfo: strings.Repeat("v", MaxRequest)})
		refused(t, c.end())
	})
	t.Run("SAFE-4 a request of 5 MiB", func(t *testing.T) {
		c := w.delta(t, conn)
		m := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, InitialResourceVersions: map[string]string{}, ResourceNamesSubscribe: []string{"e"}}
		for i := range 50_000 {
			m.InitialResourceVersions[fmt.Sprintf("a-name-as-long-as-names-are-%060d", i)] = "0123456789abcdef"
		}
		c.send(m)
		if r := c.want(); len(r.Resources) != 1 {
			t.Errorf("%d resources", len(r.Resources))
		}
	})
	t.Run("SAFE-1 limits can be set", func(t *testing.T) {
		w := serve(t, WithLimits(protocol.Options{MaxTypes: 1, MaxNames: 2}))
		conn := w.dial(t)
		c := w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names(3)})
		refused(t, c.end())
		c = w.sotw(t, conn)
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: names(2)})
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Secret.URL, ResourceNames: names(2)})
		refused(t, c.end())
	})
}

func TestFlood(t *testing.T) {
	t.Run("SAFE-1 a flood of requests", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Endpoint, res("a", "of a"), res("b", "of b"))
		c := w.sotw(t, w.dial(t))
		// The client neither reads nor waits; all but the last is moot.
		for i := range 20_000 {
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: [][]string{{"a"}, {"b"}, {}}[i%3]})
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"a", "b"}})
		seen := map[string]bool{}
		for n := 0; len(seen) < 2; n++ {
			r := c.want()
			for _, a := range r.Resources {
				seen[string(a.Value)] = true
			}
			if n > 20_000 {
				t.Fatalf("%d responses, and only %v in them", n, seen)
			}
			c.send(ack(r, "a", "b"))
		}
	})
}

func TestManyStreams(t *testing.T) {
	t.Run("SAFE-7 2,000 streams on one connection", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Endpoint, res("e", "1"))
		conn := w.dial(t)
		var all []*sotwClient
		for range 2000 {
			c := bidi[discovery.DiscoveryRequest, discovery.DiscoveryResponse](t, conn, "/"+xds.Endpoint.Service+"/"+xds.Endpoint.Stream)
			c.send(&discovery.DiscoveryRequest{ResourceNames: []string{"e"}})
			all = append(all, c)
		}
		for _, c := range all {
			c.send(ack(c.want(), "e"))
		}
		w.set(xds.Endpoint, res("e", "2"))
		for _, c := range all {
			if r := c.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "2" {
				t.Fatal(r)
			}
		}
		if n := w.Stats().Open; n != 2000 {
			t.Errorf("%d streams open", n)
		}
	})
}
