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
		lines, counted := 0, 0
		for i := range 3 * maxReasons {
			if r.first(reason{text: fmt.Sprint("reason ", i)}, func(n int) { counted += n }) {
				lines++
			}
		}
		if lines != maxReasons+1 || len(r.open) != maxReasons+1 {
			t.Errorf("%d lines, %d reasons are remembered", lines, len(r.open))
		}
		time.Sleep(repeatsWithin + time.Second)
		synctest.Wait()
		if counted != 2*maxReasons-1 {
			t.Errorf("%d are counted", counted)
		}
		time.Sleep(repeatsWithin)
		synctest.Wait()
		if len(r.open) != 0 {
			t.Errorf("%d reasons are remembered for ever", len(r.open))
		}
	})
}
