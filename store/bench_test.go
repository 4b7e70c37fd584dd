package store

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// bodies returns resources of the same name with different bodies.
func bodies(name string) []*xds.Resource {
	rs := make([]*xds.Resource, 64)
	for i := range rs {
		rs[i] = res(name, fmt.Sprint(i))
	}
	return rs
}

// settled waits until all signals are sent.
func settled(st *Store) {
	for {
		st.mu.Lock()
		ringing := st.ringing
		st.mu.Unlock()
		if !ringing {
			return
		}
		runtime.Gosched()
	}
}

// BenchmarkCommit measures how long a writer waits, with a number of streams that are interested in the name
// and do not read their signal.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{0, 1, 1000, 40_000} {
		b.Run(fmt.Sprint(n, " watchers"), func(b *testing.B) {
			st, rs := New(), bodies("a")
			for range n {
				w := watchtest.Open(b, st, nil)
				w.Interested(xds.Cluster, false, []string{"a"}, nil)
				defer w.Close()
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				st.Update(func(tx *Tx) error { tx.Set(of(xds.Cluster, rs[i%len(rs)])...); return nil })
			}
			b.StopTimer()
			settled(st)
		})
	}
}

// BenchmarkRing measures a commit until all interested streams are signalled and have taken the view.
func BenchmarkRing(b *testing.B) {
	for _, n := range []int{1, 1000, 40_000} {
		b.Run(fmt.Sprint(n, " watchers"), func(b *testing.B) {
			st, rs := New(), bodies("a")
			watches := make([]*Watch, n)
			for i := range watches {
				watches[i] = watchtest.Open(b, st, nil)
				watches[i].Interested(xds.Cluster, false, []string{"a"}, nil)
				watches[i].Next()
				defer watches[i].Close()
			}
			var next time.Duration
			i := 0
			for b.Loop() {
				i++
				st.Update(func(tx *Tx) error { tx.Set(of(xds.Cluster, rs[i%len(rs)])...); return nil })
				settled(st)
				start := time.Now()
				for _, w := range watches {
					if len(w.bell) == 0 {
						b.Fatal("a doorbell did not ring")
					}
					w.Next()
				}
				next += time.Since(start)
			}
			b.ReportMetric(float64(next.Nanoseconds())/float64(i*n), "ns/Next")
			b.ReportMetric(float64(b.Elapsed()-next)/float64(i), "ns/rung")
		})
	}
}

// BenchmarkCommitTable measures a commit to one name in a table of a given size, without watches.
func BenchmarkCommitTable(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n, " names"), func(b *testing.B) {
			st := New()
			all := make([]*xds.Resource, n)
			for i := range all {
				all[i] = res(fmt.Sprint("n", i), "")
			}
			st.Update(func(tx *Tx) error { tx.Set(of(xds.Endpoint, all...)...); return nil })
			other := make([]*xds.Resource, 4096)
			for i := range other {
				other[i] = res(fmt.Sprint("n", i*97%n), "other")
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				r := other[i/2%len(other)]
				if i%2 == 0 {
					r = all[i/2%len(other)*97%n]
				}
				st.Update(func(tx *Tx) error { tx.Set(of(xds.Endpoint, r)...); return nil })
			}
		})
	}
}

// BenchmarkReplace replaces all of 100,000 resources when only one differs.
func BenchmarkReplace(b *testing.B) {
	st := New()
	all := make([]*xds.Resource, 100_000)
	for i := range all {
		all[i] = res(fmt.Sprint("n", i), "")
	}
	i := 0
	for b.Loop() {
		i++
		all[0] = res("n0", fmt.Sprint(i))
		st.Update(func(tx *Tx) error { tx.Replace(xds.Endpoint, of(xds.Endpoint, all...)...); return nil })
	}
}

// BenchmarkInterested registers 1,000 streams with 100 names each and reports the memory of a stream.
// Each name belongs to all streams, to ten streams or to one stream.
func BenchmarkInterested(b *testing.B) {
	for _, of := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint("of ", of, " names"), func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = interestBytes(b, 1000, 100, of)
			}
			b.ReportMetric(float64(n), "B/stream")
		})
	}
}

// BenchmarkConnect connects and disconnects a fleet.
func BenchmarkConnect(b *testing.B) {
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	const streams = 40_000
	for b.Loop() {
		st := New()
		watches := make([]*Watch, streams)
		for i := range watches {
			watches[i] = watchtest.Open(b, st, nil)
			watches[i].Interested(xds.Endpoint, false, names, nil)
		}
		for _, w := range watches {
			w.Close()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*streams), "ns/stream")
}
