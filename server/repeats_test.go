package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Reasons are texts of clients: what is remembered of them is bounded, and what
// comes beyond it is counted together.
func TestRepeats(t *testing.T) {
	within(t, "SAFE-1 reasons are bounded", func(t *testing.T) {
		var r repeats
		remembered := func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.open) }
		lines, counted := 0, 0
		for i := range 3 * maxReasons {
			if r.first(reason{text: fmt.Sprint("reason ", i)}, func(n int) { counted += n }) {
				lines++
			}
		}
		if n := remembered(); lines != maxReasons+1 || n != maxReasons+1 {
			t.Errorf("%d lines, %d reasons are remembered", lines, n)
		}
		time.Sleep(repeatsWithin + time.Second)
		synctest.Wait()
		if counted != 2*maxReasons-1 {
			t.Errorf("%d are counted", counted)
		}
		time.Sleep(repeatsWithin)
		synctest.Wait()
		if n := remembered(); n != 0 {
			t.Errorf("%d reasons are remembered for ever", n)
		}
	})
}
