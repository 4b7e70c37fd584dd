package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A poll with a version that the source had before, or that this server has sent, may be answered by an older server.
func TestCatchUpKnowsRecentVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, st := &head{}, store.New()
		put(t, st, xds.Cluster, res("a", "1"))
		s := New(st, WithCatchUp(h.newest))
		poll := func(names []string, version string) *xds.Response {
			t.Helper()
			p, err := s.Poll(t.Context(), xds.Cluster, xds.Request{Names: names, Version: version}, Caller{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Wait(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			p.Close(nil)
			return r
		}
		all, one := poll(nil, "").Version, poll([]string{"a"}, "").Version
		put(t, st, xds.Cluster, res("a", "2"))
		h.wants(t)
		for what, tt := range map[string]struct {
			names   []string
			version string
			known   bool
		}{
			"a version of the type":               {nil, all, true},
			"a version of no type":                {nil, "of another server", false},
			"a version of names":                  {[]string{"a"}, one, false},
			"a version of the type, for its name": {[]string{"a"}, all, false},
		} {
			if r := poll(tt.names, tt.version); r == nil {
				t.Errorf("%s: no answer", what)
			}
			h.wants(t, tt.known)
		}
	})
}

// While the source catches up, a poll ends with its client, and has time even if it may not be held.
func TestCatchUpTakesALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &head{says: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		w := newPollWorld(t, WithCatchUp(h.newest))
		w.set(xds.Cluster, res("a", "1"))
		ask := func(ctx context.Context, hold time.Duration) (time.Duration, error) {
			v := w.visitor(xds.Cluster)
			v.version = "of another server"
			p, err := w.Poll(t.Context(), v.typ, v.request(), v.caller())
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			r, err := p.Wait(ctx, hold)
			p.Close(err)
			if r != nil {
				t.Error("an answer of a source that may be older")
			}
			return time.Since(began), err
		}
		if took, err := ask(t.Context(), 0); took != margin || !errors.Is(err, errBehind) {
			t.Errorf("without a hold: %v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took, err := ask(ctx, MaxHold); took != time.Second || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("for a client that waits for a second: %v after %v", err, took)
		}
	})
}

// The end of a stream whose client leaves while the source catches up is the end of the client.
func TestCatchUpEndsWithItsClient(t *testing.T) {
	within(t, "the observer gets CANCELED", func(t *testing.T) {
		o := &witness{}
		asked := 0
		w := serve(t, WithObserver(o), WithCatchUp(func(ctx context.Context, _ bool) error { asked++; <-ctx.Done(); return ctx.Err() }))
		w.set(xds.Cluster, res("a", "1"))
		ctx, cancel := context.WithCancel(t.Context())
		c, err := discovery.NewAggregatedDiscoveryServiceClient(w.dial(t)).StreamAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, VersionInfo: "of another server"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if asked != 1 || len(o.closed) != 1 || status.Code(o.why) != codes.Canceled {
			t.Errorf("asked %d times, %d streams closed: %v", asked, len(o.closed), o.why)
		}
	})
}
