package client_test

import (
	"fmt"
	"testing"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// A client watches 10,000 clusters by a wildcard, and one changes.
func BenchmarkChange(b *testing.B) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		b.Run(v.String(), func(b *testing.B) {
			const n = 10_000
			f := newFake(nil, "xds://a", v)
			c, err := client.New(client.Config{Servers: []client.Server{{Transport: f}}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			told := make(chan bool, n)
			go func() {
				for ev, err := range c.Watch(b.Context(), xds.Cluster, "*") {
					if err != nil {
						return
					}
					told <- ev.Kind == client.Complete
				}
			}()
			s := <-f.opened
			<-s.requests
			all := response(xds.Cluster, "v", "n")
			for i := range n {
				all.Upserts = append(all.Upserts, resource(xds.Cluster, fmt.Sprintf("cluster-%05d", i), fmt.Sprintf("body of %d", i)))
			}
			s.responses <- all
			for !<-told {
			}
			<-s.requests
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				r := response(xds.Cluster, fmt.Sprint(i), "n")
				one := resource(xds.Cluster, "cluster-00007", fmt.Sprint("new ", i))
				if v == xds.SotW {
					r.Upserts = append(r.Upserts, all.Upserts...)
					r.Upserts[7] = one
				} else {
					r.Upserts = append(r.Upserts, one)
				}
				s.responses <- r
				<-told
				<-s.requests
			}
		})
	}
}
