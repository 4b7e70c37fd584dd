package server

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// "What a client can make the server hold or do is bounded per stream, per peer and in all, in bytes" (SAFE-9). This
// includes held polls.
func TestPollsHeldBytes(t *testing.T) {
	// held polls from an address for a name of n bytes with its current version. It returns the duration and
	// the error.
	held := func(t *testing.T, w *world, ip string, n int) (took func() time.Duration, err error) {
		t.Helper()
		from := Caller{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1000}}
		req := xds.Request{Node: &xds.Node{ID: ip}, Names: []string{strings.Repeat("n", n)}}
		first, err := w.Poll(t.Context(), xds.Endpoint, req, from)
		if err != nil {
			t.Fatal(err)
		}
		r, err := first.Wait(t.Context(), MaxHold)
		first.Close(err)
		if err != nil {
			t.Fatal(err)
		}
		req.Version = r.Version
		start := time.Now()
		p, err := w.Poll(t.Context(), xds.Endpoint, req, from)
		if err != nil {
			return nil, err
		}
		over := make(chan time.Duration, 1)
		go func() {
			_, err := p.Wait(context.Background(), MaxHold)
			p.Close(err)
			over <- time.Since(start)
		}()
		synctest.Wait()
		return func() time.Duration { return <-over }, nil
	}
	within(t, "SAFE-9 the memory of polls is limited, and the address that uses most makes room", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{HeldInAll: 8000})) // polls have 2,000
		first, err := held(t, w, "192.0.2.1", 700)
		if err != nil {
			t.Fatal(err)
		}
		second, err := held(t, w, "192.0.2.1", 700)
		if err != nil {
			t.Fatal(err)
		}
		if n := w.Stats().Held; n < 1500 || n > 2000 {
			t.Errorf("%d bytes are held", n)
		}
		if _, err := held(t, w, "192.0.2.1", 700); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no room") {
			t.Error("one more poll of the same address:", err)
		}
		time.Sleep(time.Second)
		other, err := held(t, w, "192.0.2.2", 700)
		if err != nil {
			t.Fatal(err)
		}
		if d := second(); d != time.Second {
			t.Errorf("the newest poll of the address that uses most was held %v", d)
		}
		if d := first(); d != MaxHold {
			t.Errorf("its other poll was held %v", d)
		}
		if d := other(); d != MaxHold {
			t.Errorf("the poll of another address was held %v", d)
		}
		if n := w.Stats().Held; n != 0 {
			t.Errorf("%d bytes are held after all have ended", n)
		}
		if n := w.Stats().Throttled["subscription"]; n != 2 || !strings.Contains(w.log.String(), "most of them are of this address") {
			t.Errorf("counted %d, logged\n%s", n, w.log)
		}
	})
	within(t, "SAFE-9 without a limit polls hold any number of bytes", func(t *testing.T) {
		w := serve(t)
		over, err := held(t, w, "192.0.2.1", 4000)
		if err != nil {
			t.Fatal(err)
		}
		if n := w.Stats().Held; n < 4000 {
			t.Errorf("%d bytes are held", n)
		}
		over()
	})
	within(t, "SAFE-9 a large node counts, too", func(t *testing.T) {
		w := serve(t)
		p, err := w.Poll(t.Context(), xds.Endpoint, xds.Request{Node: &xds.Node{ID: "n", Cluster: strings.Repeat("c", 3000)}, Version: "0", Names: []string{"a"}}, Caller{})
		if err != nil {
			t.Fatal(err)
		}
		unchanged, err := p.Unchanged()
		if err != nil {
			t.Fatal(err)
		}
		version := unchanged.Version
		p.Close(nil)
		if p, err = w.Poll(t.Context(), xds.Endpoint, xds.Request{Node: &xds.Node{ID: "n", Cluster: strings.Repeat("c", 3000)}, Version: version, Names: []string{"a"}}, Caller{}); err != nil {
			t.Fatal(err)
		}
		if n := w.Stats().Held; p.Ready() || n < 3000 {
			t.Errorf("%d bytes are held, due %v", n, p.Ready())
		}
		p.Close(nil)
	})
	within(t, "SAFE-9 an address that does not use more loses no memory", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{HeldInAll: 8000}))
		small, err := held(t, w, "192.0.2.1", 900)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := held(t, w, "192.0.2.2", 1500); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		if d := small(); d != MaxHold {
			t.Errorf("the small poll was held %v", d)
		}
	})
}

// An address that used much memory before and uses little now is not displaced.
func TestPollMemoryForgetsPastUse(t *testing.T) {
	c := newPollMemory(2000)
	enter := func(host, bytes int) (*reservation, notices) {
		lost := newNotices()
		return c.enter(from(host, 1), bytes, lost), lost
	}
	gone := func(l notices) bool { return len(l) > 0 }
	large, _ := enter(1, 900)
	_, little := enter(1, 500)
	c.leave(large)
	_, much := enter(2, 1000)
	if third, _ := enter(3, 700); third == nil || gone(little) || !gone(much) {
		t.Errorf("SAFE-9 the poll of the address that uses less was displaced: %v, %v", gone(little), gone(much))
	}
	if n := c.taken(); n != 1200 {
		t.Errorf("%d bytes are taken", n)
	}
}

func TestLargeFetch(t *testing.T) {
	fetch := func(t *testing.T, w *world, n int) error {
		t.Helper()
		req := &discovery.DiscoveryRequest{ResponseNonce: strings.Repeat("n", n)}
		return w.dial(t).Invoke(t.Context(), "/"+xds.Cluster.Service+"/"+xds.Cluster.Fetch, req, &discovery.DiscoveryResponse{})
	}
	within(t, "SAFE-9 a request to a Fetch method is no larger than a poll's body", func(t *testing.T) {
		w := serve(t)
		if err := fetch(t, w, 4<<20-100); err != nil {
			t.Error(err)
		}
		if err := fetch(t, w, 4<<20); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "more than 4194304") {
			t.Error(err)
		}
		if n := w.Stats().Throttled["request"]; n != 1 || !strings.Contains(w.log.String(), "client exceeded a limit") {
			t.Errorf("counted %d, logged\n%s", n, w.log)
		}
	})
	within(t, "SAFE-9 a large request does not wait, because gRPC already keeps it in memory", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{AddressRate: 1}))
		if err := fetch(t, w, 3<<20); err != nil { // counts as 49 requests
			t.Error(err)
		}
		start := time.Now()
		if err := fetch(t, w, 100<<10); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "this address sends requests too fast") || time.Since(start) > 0 {
			t.Error(err, time.Since(start))
		}
		if err := fetch(t, w, 0); err != nil || time.Since(start) < 20*time.Second {
			t.Error(err, time.Since(start))
		}
	})
}
