package client_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/protocol/internal/client"
	"github.com/chancery-xds/chancery/xds"
)

// holding returns a client that holds n clusters by a wildcard, and the clusters.
func holding(v xds.Variant, n int) (*client.Client, []*xds.Resource) {
	c := client.New(v, client.Options{Check: func(*xds.Resource) error { return nil }})
	c.Subscribe(xds.Cluster, xds.Wildcard)
	c.Connected(nil)
	drain(c)
	rs := make([]*xds.Resource, n)
	for i := range rs {
		rs[i] = xds.NewResource(xds.Cluster, fmt.Sprint("cluster-", i), []byte(strings.Repeat("x", 500)))
	}
	_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "0", Version: "0", Changes: &xds.Changes{Upserts: rs}})
	drain(c)
	return c, rs
}

func drain(c *client.Client) {
	for range c.Events() {
	}
	for range c.Requests() {
	}
}

// One of 10,000 held clusters changes. In SotW the response has all clusters, either each in its
// own memory, or the same objects from the decoder. In delta the response has only the changed
// cluster.
func BenchmarkClientOneChange(b *testing.B) {
	const n = 10_000
	for _, bb := range []struct {
		name string
		v    xds.Variant
		own  bool
	}{{"sotw", xds.SotW, true}, {"sotw, remembered", xds.SotW, false}, {"delta", xds.Delta, false}} {
		b.Run(bb.name, func(b *testing.B) {
			v := bb.v
			c, all := holding(v, n)
			var sets [2][]*xds.Resource
			for i := range sets {
				one := xds.NewResource(xds.Cluster, "cluster-7", fmt.Append(nil, i))
				if sets[i] = []*xds.Resource{one}; v == xds.SotW {
					sets[i] = nil
					for _, r := range all {
						if !bb.own {
							sets[i] = append(sets[i], r)
							continue
						}
						sets[i] = append(sets[i], &xds.Resource{Stamp: r.Stamp, Type: r.Type, Body: append([]byte(nil), r.Body...)})
					}
					sets[i][7] = one
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_ = c.Receive(&xds.Response{Type: xds.Cluster, Nonce: "1", Version: "1", Changes: &xds.Changes{Upserts: sets[i%2]}})
				drain(c)
			}
		})
	}
}

// The memory of a held resource, without the resource itself.
func BenchmarkClientHeld(b *testing.B) {
	const n = 10_000
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		b.Run(v.String(), func(b *testing.B) {
			for b.Loop() {
				c, rs := holding(v, n)
				with := heapNow()
				runtime.KeepAlive(c) // and from here on it is garbage
				b.ReportMetric(float64(with-heapNow())/n, "bytes/resource")
				runtime.KeepAlive(rs)
			}
		})
	}
}

func heapNow() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
