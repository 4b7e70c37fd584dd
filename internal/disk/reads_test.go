package disk

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A read that hangs delays a caller by at most a second, costs one goroutine, and has one first caller.
func TestHungRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Reads
		var reads, firsts atomic.Int32
		var hangs chan struct{}
		do := func(ctx context.Context, least time.Duration, wantRunning bool, within time.Duration) {
			t.Helper()
			began := time.Now()
			running, first := r.Do(ctx, began, least, func() {
				reads.Add(1)
				if hangs != nil {
					<-hangs
				}
			})
			if running != wantRunning || time.Since(began) > within {
				t.Errorf("running: %v after %v", running, time.Since(began))
			}
			if first {
				firsts.Add(1)
			}
		}
		count := func(wantReads, wantFirsts int32) {
			t.Helper()
			if reads.Load() != wantReads || firsts.Load() != wantFirsts {
				t.Errorf("%d reads, %d first callers, want %d and %d", reads.Load(), firsts.Load(), wantReads, wantFirsts)
			}
		}
		do(t.Context(), time.Minute, false, 0)
		do(t.Context(), time.Minute, false, 0)
		count(1, 0)
		do(t.Context(), 0, false, 0)
		count(2, 0)
		for n := range int32(2) {
			hangs = make(chan struct{})
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() { do(t.Context(), 0, true, ReadTime) })
			}
			all.Wait()
			for range 100 {
				do(t.Context(), 0, true, 0)
			}
			count(3+n, 1+n)
			close(hangs)
			synctest.Wait()
		}
		hangs = make(chan struct{})
		defer close(hangs)
		ctx, cancel := context.WithTimeout(t.Context(), ReadTime/2)
		defer cancel()
		do(ctx, 0, true, ReadTime/2)
		count(5, 2)
	})
}
