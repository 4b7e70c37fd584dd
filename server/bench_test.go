package server

import (
	"fmt"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A change, told to each of the clients and acknowledged by all.
func BenchmarkUpdate(b *testing.B) {
	for _, clients := range []int{1, 100} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			st := store.New()
			w := serveFrom(b, New(st))
			conn := w.dial(b)
			set := func(body string) {
				if _, err := st.Update(func(tx *store.Tx) error { tx.Set(xds.Cluster, res("a", body)); return nil }); err != nil {
					b.Fatal(err)
				}
			}
			set("0")
			var all []*deltaClient
			for range clients {
				c := w.delta(b, conn)
				c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL})
				all = append(all, c)
			}
			round := func() {
				for _, c := range all {
					r := c.want()
					c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.Nonce})
				}
			}
			round()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				set(fmt.Sprint(i))
				round()
			}
		})
	}
}
