package server

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestNodesHeld(t *testing.T) {
	node := func(n int) *core.Node {
		return &core.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("x", n))}}}
	}
	within(t, "SAFE-9 nodes count as held bytes", func(t *testing.T) {
		w := serve(t, WithLimits(Limits{HeldInAll: 10_000}))
		var all []*sotwClient
		for range 4 {
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{Node: node(3000), TypeUrl: xds.Endpoint.URL})
			all = append(all, c)
			synctest.Wait()
		}
		if err := all[3].end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		synctest.Wait()
		if n := w.Stats().Held; n < 9000 || n > 10_000 {
			t.Errorf("%d bytes are held", n)
		}
		for _, c := range all[:3] {
			_ = c.s.CloseSend()
			_ = c.end()
		}
		synctest.Wait()
		if n := w.Stats().Held; n != 0 {
			t.Errorf("%d bytes are held after all have ended", n)
		}
	})
	within(t, "SAFE-9 a request that waits for the content of its node counts", func(t *testing.T) {
		st := store.New()
		w := serveFrom(t, New(st, WithLimits(Limits{HeldInAll: 10_000})))
		var all []*sotwClient
		for i := range 4 {
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{strings.Repeat("n", 3000) + strconv.Itoa(i)}})
			all = append(all, c)
			synctest.Wait()
		}
		if err := all[3].end(); status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		synctest.Wait()
		if n := w.Stats().Held; n < 9000 || n > 10_000 {
			t.Errorf("%d bytes are held", n)
		}
		if _, err := st.Update(func(tx *store.Tx) error { tx.MarkKnown(); return nil }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.Stats().Held; n < 9000 || n > 10_000 {
			t.Errorf("%d bytes are held after the content became known", n)
		}
	})
}
