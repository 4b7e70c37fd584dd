package server

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/xds"
)

// A SotW client that announces support for both features gets TTLs in the protocol's Resource. No known client does so
// today, so this one is scripted.
func TestTTLInSotW(t *testing.T) {
	const ttl = 30 * time.Second
	node := &corev3.Node{Id: "n", ClientFeatures: []string{"xds.config.supports-resource-ttl", "xds.config.supports-resource-in-sotw"}}
	expiring := func() *xds.Resource {
		r := res("a", "1")
		r.TTL = ttl
		r.Seal("")
		return r
	}
	unwrap := func(t *testing.T, a *anypb.Any) *discovery.Resource {
		var r discovery.Resource
		if err := a.UnmarshalTo(&r); err != nil {
			t.Fatal(err)
		}
		return &r
	}
	within(t, "TTL-3 TTL-4 a heartbeat has no body", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Endpoint, expiring(), res("b", "1"))
		c := w.sotw(t, w.dial(t))
		names := []string{"a", "b"}
		c.send(&discovery.DiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL, ResourceNames: names})
		first := c.want()
		a := unwrap(t, first.Resources[0])
		if a.Name != "a" || a.Version != first.VersionInfo || a.Ttl.AsDuration() != ttl || a.Resource.GetTypeUrl() != xds.Endpoint.URL || first.Resources[1].TypeUrl != xds.Endpoint.URL {
			t.Errorf("TTL-4 wrapped as %v beside %v", a, first.Resources[1])
		}
		c.send(ack(first, names...))
		last := time.Now()
		for i := range 5 {
			r := c.want()
			if i > 0 && time.Since(last) != ttl/3 || time.Since(last) > ttl/3 {
				t.Errorf("TTL-3 a heartbeat after %v", time.Since(last))
			}
			last = time.Now()
			beat := unwrap(t, r.Resources[0])
			if len(r.Resources) != 1 || beat.Name != "a" || beat.Resource != nil || beat.Ttl.AsDuration() != ttl || beat.Version != first.VersionInfo || r.VersionInfo != first.VersionInfo {
				t.Errorf("TTL-3 heartbeat %v of %s", beat, r.VersionInfo)
			}
			c.send(ack(r, names...))
		}
		w.set(xds.Endpoint, res("a", "1"))
		if r := c.want(); len(r.Resources) != 1 || r.Resources[0].TypeUrl != xds.Endpoint.URL {
			t.Errorf("TTL-2 without TTL: %v", r)
		}
	})
	within(t, "TTL-3 streams have their heartbeats at different times", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Endpoint, expiring())
		conn := w.dial(t)
		var at []time.Time
		for range 2 {
			c := w.sotw(t, conn)
			c.send(&discovery.DiscoveryRequest{Node: node, TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"a"}})
			for range 3 {
				c.send(ack(c.want(), "a"))
			}
			at = append(at, time.Now())
		}
		if at[1].Sub(at[0])%(ttl/3) == 0 {
			t.Errorf("both after a multiple of %v", ttl/3)
		}
	})
	within(t, "TTL-4 SotW responses have all clusters", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, expiring(), res("b", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL})
		first := c.want()
		c.send(ack(first))
		if r := c.want(); len(r.Resources) != 2 || unwrap(t, r.Resources[0]).Resource == nil || r.VersionInfo != first.VersionInfo {
			t.Errorf("heartbeat %v", r)
		}
	})
}
