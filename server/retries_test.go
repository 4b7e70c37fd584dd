package server

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := func(bytes int) (n int) {
			var b retryBudget
			for range 10 * 1000 { // for 10 s
				if b.take(nil, bytes) {
					n++
				}
				time.Sleep(time.Millisecond)
			}
			return n
		}
		for name, c := range map[string]struct{ bytes, min, max int }{
			"HEAL-2 at most 100 in a second":         {100, 1000, 1101},
			"HEAL-2 at most 8 MiB in a second":       {1 << 20, 80, 89},
			"HEAL-2 one that is larger than a limit": {80 << 20, 1, 2},
		} {
			if n := take(c.bytes); n < c.min || n > c.max {
				t.Errorf("%s: %d retries in 10 s, want %d to %d", name, n, c.min, c.max)
			}
		}
	})
}
