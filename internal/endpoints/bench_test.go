package endpoints

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkTake measures a change of one endpoint of 100, until its assignment is ready to be served.
// With many clusters few of them are in the processor caches.
func BenchmarkTake(b *testing.B) {
	for _, clusters := range []int{1, 1000} {
		for _, zones := range []int{1, 3} {
			b.Run(fmt.Sprint(clusters, " clusters, ", zones, " zones"), func(b *testing.B) {
				var s Set
				put := func(n, port int) {
					v := fmt.Appendf(nil, `{"address":"10.%d.%d.%d","port":%d,"hostname":"host","locality":{"region":"r","zone":"z%d"}}`, n>>16, n>>8&255, n&255, port, n%zones)
					if _, err := s.Apply(Change{Key: Key{Cluster{"default", fmt.Sprint("c", n/100)}, fmt.Sprint(n)}, Value: v}); err != nil {
						b.Fatal(err)
					}
				}
				for n := range 100 * clusters {
					put(n, 80)
				}
				s.Take()
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					put(rand.IntN(100*clusters), 81+n%1000)
					s.Take()
				}
			})
		}
	}
}
