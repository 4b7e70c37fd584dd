package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// "Shares per peer address and per node id (streams, polls, connections, requests) with
// defaults that let 100,000 well-behaved clients behind a NAT be configured."
func TestAddressRate(t *testing.T) {
	asks := func(t *testing.T, c *sotwClient, node string, n int) {
		for range n {
			c.send(&discovery.DiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: xds.Endpoint.URL})
		}
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
		c.want()
	}
	within(t, "SAFE-9 the requests of an address are limited by a rate, for any node ids", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 100}))
		start := time.Now()
		done := make(chan struct{})
		for i := range 20 {
			conn := w.dialFrom(t, "192.0.2.1")
			c := w.sotw(t, conn)
			go func() {
				asks(t, c, fmt.Sprint("node-", i), 99)
				done <- struct{}{}
			}()
		}
		neighbour := w.dialFrom(t, "192.0.2.2")
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			asks(t, w.sotw(t, neighbour), "neighbour", 10)
			if d := time.Since(before); d > 0 {
				t.Errorf("a neighbour waited %v", d)
			}
		}
		for range 20 {
			<-done
		}
		// At first the server takes a little more, because it does not know yet how many
		// connections the address has.
		if d := time.Since(start); d < 5*time.Second || d > 11*time.Second {
			t.Errorf("2,000 requests, 1,000 at once and 100 a second, were taken within %v", d)
		}
		synctest.Wait()
		n := w.Stats().Throttled // streams that had to wait; some had their answer before
		if n["address_rate"] < 10 || n["address_rate"] > 20 || n["rate"] != 0 {
			t.Errorf("%v", n)
		}
		if log := w.log.String(); strings.Count(log, "an address sends requests too fast") != 1+strings.Count(log, fmt.Sprint(" repeated=", n["address_rate"]-1)) || !strings.Contains(log, "peer=192.0.2.1:1 per_second=100") {
			t.Errorf("logged\n%s", log)
		}
	})
	within(t, "SAFE-9 polls count as requests", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 100}))
		w.set(xds.Cluster, res("a", "1"))
		port := 0
		poll := func(ip string) time.Duration {
			port++
			start := time.Now()
			b := w.Body(t.Context(), strings.NewReader("poll"), &net.TCPAddr{IP: net.ParseIP(ip), Port: port}, func() {})
			defer b.Close()
			if got, err := io.ReadAll(b); err != nil || string(got) != "poll" {
				t.Fatalf("%q, %v", got, err)
			}
			return time.Since(start)
		}
		for range 999 {
			if d := poll("192.0.2.1"); d > 0 {
				t.Fatal(d)
			}
		}
		if d := poll("192.0.2.2"); d > 0 {
			t.Error("another waits:", d)
		}
		start := time.Now()
		conn := w.dialFrom(t, "192.0.2.1")
		for range 3 {
			if err := conn.Invoke(t.Context(), "/"+xds.Cluster.Service+"/"+xds.Cluster.Fetch, &discovery.DiscoveryRequest{}, &discovery.DiscoveryResponse{}); err != nil {
				t.Fatal(err)
			}
		}
		// One request of the rate was left. Ended streams also count, when the server reads the
		// connection again.
		if d := time.Since(start); d < 20*time.Millisecond || d > 320*time.Millisecond {
			t.Errorf("three calls of Fetch took %v", d)
		}
		if d := poll("192.0.2.1"); d < 10*time.Millisecond || d > 320*time.Millisecond {
			t.Errorf("one more poll took %v", d)
		}
		if s := w.Stats(); s.Throttled["address_rate"] < 3 {
			t.Errorf("%v", s.Throttled)
		}
	})
	within(t, "SAFE-12 a waiting poll ends when the server ends", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 1}))
		from := &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}
		w.rateOf(from).Take(time.Now(), 1000)
		start := time.Now()
		read := make(chan time.Duration)
		go func() {
			b := w.Body(t.Context(), strings.NewReader("poll"), from, func() {})
			defer b.Close()
			_, _ = io.ReadAll(b)
			read <- time.Since(start)
		}()
		time.Sleep(5 * time.Second)
		go w.Drain(t.Context())
		if d := <-read; d != 5*time.Second {
			t.Errorf("after %v", d)
		}
	})
	within(t, "SAFE-9 a large poll that waits ends with its client", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 1}))
		from := &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}
		w.rateOf(from).Take(time.Now(), 1000)
		ctx, gone := context.WithTimeout(t.Context(), 5*time.Second)
		defer gone()
		start := time.Now()
		b := w.Body(ctx, strings.NewReader(strings.Repeat("x", 100<<10)), from, func() {})
		defer b.Close()
		got, err := io.ReadAll(b)
		if d := time.Since(start); d != 5*time.Second || status.Code(err) != codes.DeadlineExceeded || len(got) != 64<<10 {
			t.Errorf("%d bytes and %v after %v", len(got), err, d)
		}
	})
	within(t, "SAFE-9 a poll counts once, however its body is read", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 1}))
		start := time.Now()
		b := w.Body(t.Context(), strings.NewReader(strings.Repeat("x", 1<<20)), &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}, func() {})
		defer b.Close()
		for part := make([]byte, 1<<10); ; {
			if _, err := b.Read(part); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("it waited %v", d)
		}
	})
	within(t, "SAFE-9 any number, if the operator wants", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: -1}))
		start := time.Now()
		for range 3 {
			asks(t, w.sotw(t, w.dialFrom(t, "192.0.2.1")), "", 1000)
		}
		if d := time.Since(start); d > 0 {
			t.Error(d)
		}
	})
}

// "What a client can make the server hold or do is bounded per stream, per peer and in all, in bytes and in time" (SAFE-9). A
// flood from one address does not slow down others.
func TestFloodDelaysOnlyItsAddress(t *testing.T) {
	// flood opens streams, each on its own connection from an address, and sends requests of
	// a size on each for as long as the test goes on.
	flood := func(t *testing.T, w *world, ip string, conns, size int) {
		t.Helper()
		for range conns {
			c := w.sotw(t, w.dialFrom(t, ip))
			go func() {
				for c.s.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: strings.Repeat("n", size)}) == nil {
				}
			}()
		}
	}
	within(t, "SAFE-9 a client is served at once though others at its address have used up its rate", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 20}))
		flood(t, w, "192.0.2.1", 20, 1<<20) // each counts as 17 requests
		time.Sleep(time.Minute)
		for range 3 {
			start := time.Now()
			c := w.sotw(t, w.dialFrom(t, "192.0.2.1"))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL})
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			c.want()
			if d := time.Since(start); d > 0 {
				t.Errorf("it waited %v", d)
			}
			time.Sleep(time.Second)
		}
		if n := w.Stats().Throttled; n["first_request"] != 0 || n["address_rate"] != 20 {
			t.Error(n)
		}
	})
	within(t, "SAFE-9 requests that are whole take no room while their address waits", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 1, Unfinished: 1 << 20}))
		flood(t, w, "192.0.2.1", 20, 500<<10)
		time.Sleep(time.Minute)
		for range 3 {
			start := time.Now()
			c := w.sotw(t, w.dialFrom(t, "192.0.2.2"))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: strings.Repeat("n", 200<<10)})
			c.want()
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("a neighbour's large request waited %v", d)
			}
		}
	})
}
