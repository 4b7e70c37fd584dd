package main

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A client of each variant gets the cluster, its endpoints, and the new endpoints after a change.
func TestUpdate(t *testing.T) {
	st := store.New()
	if err := update(st, []string{"127.0.0.1:8080"}); err != nil {
		t.Fatal(err)
	}
	conn := xdstest.Serve(t, server.New(st))
	for _, c := range []*xdstest.Client{xdstest.Delta(t, conn), xdstest.SotW(t, conn)} {
		c.Subscribe(xds.Cluster, "*")
		c.ACK(c.Expect(xds.Cluster, "backend"))
		c.Subscribe(xds.Endpoint, "backend")
		c.ACK(c.Expect(xds.Endpoint, "backend"))

		if err := update(st, []string{"127.0.0.1:8080", "127.0.0.1:8081"}); err != nil {
			t.Fatal(err)
		}
		r := c.Expect(xds.Endpoint, "backend")
		var got endpointv3.ClusterLoadAssignment
		if err := r.Unmarshal("backend", &got); err != nil {
			t.Fatal(err)
		}
		if n := len(got.Endpoints[0].LbEndpoints); n != 2 {
			t.Errorf("%d endpoints", n)
		}
		c.ACK(r)
		c.ExpectNothing() // the cluster has not changed

		// An invalid address changes nothing.
		if err := update(st, []string{"nowhere"}); err == nil {
			t.Error("no error")
		}
		c.ExpectNothing()
		if err := update(st, []string{"127.0.0.1:8080"}); err != nil {
			t.Fatal(err)
		}
		c.ACK(c.Expect(xds.Endpoint, "backend"))
	}
}
