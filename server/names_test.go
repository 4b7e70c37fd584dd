package server

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The context parameters of a name "compare in any order". Files and stores have sorted parameters,
// and clients send them in any order.
func TestContextParametersInAnyOrder(t *testing.T) {
	const asked, name = "xdstp://a/t/x?b=2&a=1", "xdstp://a/t/x?a=1&b=2"
	serve := func(t *testing.T) (*world, *store.Store) {
		st := store.New()
		put(t, st, xds.Cluster, res(name, "1"), res("other", "1"))
		return serveFrom(t, New(st, new(logbook).at(0))), st
	}
	within(t, "NAME-2 SotW", func(t *testing.T) {
		w, _ := serve(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: []string{asked}})
		r := c.want()
		if len(r.Resources) != 1 || string(r.Resources[0].Value) != "1" {
			t.Fatal(r)
		}
		c.send(ack(r, name)) // which is the same name in canonical form
		c.idle("it has it")
	})
	within(t, "NAME-2 SotW: a change", func(t *testing.T) {
		w, st := serve(t)
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNames: []string{asked}})
		c.send(ack(c.want(), asked))
		put(t, st, xds.Cluster, res(name, "2"))
		if r := c.want(); len(r.Resources) != 1 || string(r.Resources[0].Value) != "2" {
			t.Error(r)
		}
	})
	within(t, "NAME-2 delta", func(t *testing.T) {
		w, st := serve(t)
		conn := w.dial(t)
		c := w.delta(t, conn)
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{asked}})
		r := c.want()
		if len(r.Resources) != 1 || r.Resources[0].Name != name || len(r.RemovedResources) > 0 {
			t.Fatal(r)
		}
		version := r.Resources[0].Version
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
		put(t, st, xds.Cluster, res(name, "2"))
		r = c.want()
		if len(r.Resources) != 1 || string(r.Resources[0].Resource.Value) != "2" {
			t.Fatal(r)
		}
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce, ResourceNamesUnsubscribe: []string{asked}})
		put(t, st, xds.Cluster, res(name, "1"))
		c.idle("it has unsubscribed")

		again := w.delta(t, conn)
		again.send(&discovery.DeltaDiscoveryRequest{
			TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{asked, "other"}, InitialResourceVersions: map[string]string{asked: version},
		})
		if r := again.want(); len(r.Resources) != 1 || r.Resources[0].Name != "other" {
			t.Errorf("the client gets a resource that it has: %v", r)
		}
	})
	within(t, "NAME-2 Fetch", func(t *testing.T) {
		w, _ := serve(t)
		var r discovery.DiscoveryResponse
		err := w.dial(t).Invoke(t.Context(), "/"+xds.Cluster.Service+"/"+xds.Cluster.Fetch, &discovery.DiscoveryRequest{ResourceNames: []string{asked}}, &r)
		if err != nil || len(r.Resources) != 1 {
			t.Error(err, &r)
		}
	})
}
