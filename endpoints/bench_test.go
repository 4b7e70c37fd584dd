package endpoints

import (
	"fmt"
	"testing"
)

// BenchmarkTake is what a change of one endpoint of 100 costs until its assignment is ready to be served.
func BenchmarkTake(b *testing.B) {
	for _, zones := range []int{1, 3} {
		b.Run(fmt.Sprint(zones, " zones"), func(b *testing.B) {
			var s Set
			put := func(i, port int) {
				v := fmt.Appendf(nil, `{"address":"10.0.0.%d","port":%d,"locality":{"region":"r","zone":"z%d"}}`, i, port, i%zones)
				if _, err := s.Apply(Change{Key: Key{Cluster{"default", "c"}, fmt.Sprint(i)}, Value: v}); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 100 {
				put(i, 80)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				put(n%100, 81+n/100%2)
				s.Take()
			}
		})
	}
}
