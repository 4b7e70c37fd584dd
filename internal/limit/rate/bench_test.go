package rate

import (
	"testing"
	"time"
)

// BenchmarkTake measures the added cost of a request.
func BenchmarkTake(b *testing.B) {
	s := NewOwners(10, 100_000).Of("a", 1)
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			s.Take(now, 1)
		}
	})
}
