package server

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The store as a source: groups by node, and signals only for interested streams.
func TestStore(t *testing.T) {
	within(t, "SUB-4 a node sees its group", func(t *testing.T) {
		st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.Cluster}, nil }))
		w := serveFrom(t, New(st))
		if _, err := st.Update(func(tx *store.Tx) error {
			tx.Set(of(xds.Cluster, res("everybody", "1"))...)
			tx.Group("edge").Set(of(xds.Cluster, res("edge", "1"))...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		conn := w.dial(t)
		for group, node := range map[string]*corev3.Node{"edge": {Cluster: "edge"}, "everybody": nil} {
			c := w.delta(t, conn)
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: node})
			if r := c.want(); len(r.Resources) != 1 || r.Resources[0].Name != group {
				t.Errorf("%s: got %v", group, r)
			}
		}
	})
	within(t, "an idle stream keeps no old body alive", func(t *testing.T) {
		st := store.New(store.WithLog(1))
		w := serveFrom(t, New(st))
		set := func(name, body string) weak.Pointer[byte] {
			b := []byte(body)
			if _, err := st.Update(func(tx *store.Tx) error { tx.Set(xds.NewResource(xds.Endpoint, name, b)); return nil }); err != nil {
				t.Fatal(err)
			}
			return weak.Make(&b[0])
		}
		old := set("other", strings.Repeat("x", 1000))
		set("mine", "1")
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNames: []string{"mine"}})
		c.send(ack(c.want(), "mine"))
		synctest.Wait()
		set("other", "new")         // the stream is not interested in this change
		time.Sleep(6 * time.Minute) // recent tables are kept for clients that reconnect
		set("other", "newer")
		synctest.Wait()
		runtime.GC()
		if old.Value() != nil {
			t.Error("the old body lives")
		}
	})
	within(t, "SAFE-2 DELTA-12 one change of many", func(t *testing.T) {
		st := store.New()
		w := serveFrom(t, New(st))
		set := func(names []string, body string) {
			var rs []*xds.Resource
			for _, n := range names {
				rs = append(rs, res(n, body))
			}
			if _, err := st.Update(func(tx *store.Tx) error { tx.Set(of(xds.Endpoint, rs...)...); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		set(names(1000), "1")
		conn := w.dial(t)
		var all []*deltaClient
		for i := range 10 {
			c := w.delta(t, conn)
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResourceNamesSubscribe: names(1000)[i*100 : i*100+100]})
			r := c.want()
			if len(r.Resources) != 100 {
				t.Fatalf("%d resources", len(r.Resources))
			}
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce})
			all = append(all, c)
		}
		for i := range 20 {
			name := fmt.Sprint("name-", i*50)
			set([]string{name}, fmt.Sprint("2 ", i))
			c := all[i/2]
			r := c.want()
			if len(r.Resources) != 1 || r.Resources[0].Name != name {
				t.Fatal(r)
			}
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Endpoint.URL, ResponseNonce: r.Nonce})
		}
		for _, c := range all {
			c.idle("everything was told")
		}
	})
}
