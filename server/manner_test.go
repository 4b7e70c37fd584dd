package server

import (
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

// Options of the operator or the client about the form of responses.
func TestResponseOptions(t *testing.T) {
	ask := func(t *testing.T, w *world, node *corev3.Node, typ *xds.Type, name string) *deltaClient {
		c := w.delta(t, w.dial(t))
		c.send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: typ.URL, ResourceNamesSubscribe: []string{name}})
		return c
	}
	with := func(key, value string) *corev3.Node {
		return &corev3.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)}}}
	}
	within(t, "DELTA-7 a node may want a Resource without body for an absent name", func(t *testing.T) {
		w := serve(t)
		r := ask(t, w, with("xds.absent", "resource"), xds.Endpoint, "none").want()
		if len(r.Resources) != 1 || r.Resources[0].Name != "none" || r.Resources[0].Resource != nil || len(r.RemovedResources) != 0 {
			t.Error(r)
		}
		for _, node := range []*corev3.Node{nil, with("xds.absent", "removed"), with("xds", "resource")} {
			if r := ask(t, w, node, xds.Endpoint, "none").want(); len(r.Resources) != 0 || len(r.RemovedResources) != 1 {
				t.Error(r)
			}
		}
	})
	within(t, "DELTA-7 resource_errors, if the operator wants", func(t *testing.T) {
		for _, opts := range [][]Option{nil, {WithResourceErrors()}} {
			r := ask(t, serve(t, opts...), nil, xds.Endpoint, "none").want()
			if len(r.ResourceErrors) != len(opts) || len(r.RemovedResources) != 1 {
				t.Error(r)
			}
		}
	})
	within(t, "TTL-6 TTLs, if the operator wants, in delta", func(t *testing.T) {
		for _, opts := range [][]Option{nil, {WithForcedTTL()}} {
			w := serve(t, opts...)
			r := res("a", "1")
			r.TTL = time.Minute
			r.Seal("")
			w.set(xds.Cluster, r)
			var want *durationpb.Duration
			if len(opts) > 0 {
				want = durationpb.New(time.Minute)
			}
			if got := ask(t, w, &corev3.Node{Id: "n"}, xds.Cluster, "a").want(); got.Resources[0].Ttl.AsDuration() != want.AsDuration() {
				t.Error(got)
			}
			c := w.sotw(t, w.dial(t))
			c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL})
			if got := c.want(); got.Resources[0].TypeUrl != xds.Cluster.URL {
				t.Error(got)
			}
		}
	})
	within(t, "ADS-3 a referenced resource stays for a while on a stream of a single type", func(t *testing.T) {
		for want, opts := range map[time.Duration][]Option{5 * time.Second: nil, time.Minute: {WithRemovalGrace(time.Minute)}, 0: {WithRemovalGrace(0)}} {
			w := serve(t, opts...)
			w.set(xds.Cluster, res("a", "1"), res("b", "1"))
			c := bidi[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse](t, w.dial(t), "/"+xds.Cluster.Service+"/"+xds.Cluster.Delta)
			c.send(&discovery.DeltaDiscoveryRequest{})
			c.send(&discovery.DeltaDiscoveryRequest{ResponseNonce: c.want().Nonce})
			synctest.Wait()
			start := time.Now()
			w.update(xds.Cluster, nil, "a")
			if r := c.want(); len(r.RemovedResources) != 1 || time.Since(start) != want {
				t.Errorf("after %v, not %v: %v", time.Since(start), want, r)
			}
		}
	})
}
