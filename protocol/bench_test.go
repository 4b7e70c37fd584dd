package protocol

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// One resource of 10,000 changes; the client ACKs.
func BenchmarkOneChange(b *testing.B) {
	for _, typ := range []*xds.Type{xds.Endpoint, xds.Cluster} {
		for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
			b.Run(fmt.Sprintf("%s/%v", typ, v), func(b *testing.B) {
				var set []*xds.Resource
				var names []string
				for i := range 10_000 {
					names = append(names, fmt.Sprintf("cluster-%05d", i))
					set = append(set, xds.NewResource(nil, names[i], []byte{1}))
				}
				base := with((&xds.Table{}), set)
				next := with(base, []*xds.Resource{xds.NewResource(nil, "cluster-00042", []byte{2})})
				views := []xds.View{xds.Tables{typ.URL: next}, xds.Tables{typ.URL: base}}
				s := NewSession(v, nil, views[1], Options{})
				req := xds.Request{Type: typ}
				if !typ.Implicit {
					req.Names, req.Subscribe = names[:100], names[:100]
				}
				if err := s.Receive(req); err != nil {
					b.Fatal(err)
				}
				req.Subscribe = nil
				drain := func() {
					n := 0
					for r := range s.Responses() {
						req.Nonce = r.Nonce
						n++
					}
					if n != 1 {
						b.Fatalf("%d responses", n)
					}
					if err := s.Receive(req); err != nil {
						b.Fatal(err)
					}
					for range s.Events() {
					}
				}
				drain()
				i := 0
				touched := []xds.Names{{typ.URL: {"cluster-00042"}}}
				b.ReportAllocs()
				for b.Loop() {
					s.Change(views[i&1], touched)
					drain()
					i++
				}
			})
		}
	}
}

// 1,000 commits, each of one of 100 assignments, are reported together to a client that subscribes
// to these assignments. The client ACKs.
func BenchmarkManyCommits(b *testing.B) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		b.Run(v.String(), func(b *testing.B) {
			names := numbered(10_000)
			base := tableOf(xds.Endpoint, names...)
			next := with(base, resources(2, names[:100]...))
			views := []xds.View{xds.Tables{xds.Endpoint.URL: next}, xds.Tables{xds.Endpoint.URL: base}}
			s := NewSession(v, nil, views[1], Options{})
			req := xds.Request{Type: xds.Endpoint, Names: names[:100], Subscribe: names[:100]}
			answer := func() {
				if err := s.Receive(req); err != nil {
					b.Fatal(err)
				}
				for range s.Events() {
				}
			}
			answer()
			req.Subscribe = nil
			var touched []xds.Names
			for i := range 1_000 {
				touched = append(touched, xds.Names{xds.Endpoint.URL: {names[i%100]}})
			}
			tell := func() {
				for r := range s.Responses() {
					req.Nonce = r.Nonce
				}
				answer()
			}
			tell()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Change(views[i&1], touched)
				tell()
			}
		})
	}
}

// A commit adds or removes 10,000 clusters. One of many streams sends the change and gets the ACK.
func BenchmarkMassChange(b *testing.B) {
	names := numbered(10_000)
	base := tableOf(xds.Cluster, names...)
	for what, next := range map[string]*xds.Table{"set": with(base, resources(2, names...)), "remove": with(base, nil, names...)} {
		b.Run(what, func(b *testing.B) {
			s := NewSession(xds.Delta, nil, xds.Tables{xds.Cluster.URL: base}, Options{})
			shared := []*xds.Changes{next.Since(base.Versions()), base.Since(next.Versions())} // other streams keep these changes
			tell := func() {
				for r := range s.Responses() {
					if err := s.Receive(xds.Request{Type: xds.Cluster, Nonce: r.Nonce}); err != nil {
						b.Fatal(err)
					}
				}
				for range s.Events() {
				}
			}
			if err := s.Receive(xds.Request{Type: xds.Cluster}); err != nil {
				b.Fatal(err)
			}
			tell()
			b.ReportAllocs()
			for b.Loop() {
				s.Change(xds.Tables{xds.Cluster.URL: next}, []xds.Names{{xds.Cluster.URL: names}})
				tell()
				b.StopTimer()
				s.Change(xds.Tables{xds.Cluster.URL: base}, []xds.Names{{xds.Cluster.URL: names}})
				tell()
				b.StartTimer()
			}
			runtime.KeepAlive(shared)
		})
	}
}

// A client reconnects and states 1,000 versions, all current.
func BenchmarkResume(b *testing.B) {
	names := numbered(1_000)
	t := tableOf(xds.Cluster, names...)
	view := xds.Tables{xds.Cluster.URL: t}
	req := xds.Request{Type: xds.Cluster}
	for _, n := range names {
		req.Initial = append(req.Initial, xds.Version{Name: n, Version: t.Lookup(n).Version})
	}
	b.ReportAllocs()
	for b.Loop() {
		s := NewSession(xds.Delta, nil, view, Options{})
		if err := s.Receive(req); err != nil {
			b.Fatal(err)
		}
		for r := range s.Responses() {
			b.Fatal(r)
		}
	}
}
