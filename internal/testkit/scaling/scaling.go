// Package scaling tests the cost of code by comparing two sizes of input. A limit in seconds would
// depend on the machine.
package scaling

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time of f in the calling goroutine. It does not count the time that other
// programs use the CPU. Some costs, such as walks over data, allocate nothing, so time is the only
// measure.
func CPUTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			panic(err)
		}
		return time.Duration(t.Nano())
	}
	start := now()
	f()
	return now() - start
}

// AtMost fails the test if many takes more than most times as long as few. It compares the best of ten
// tries, or of three if these take three seconds, because other programs disturb the caches. With eight
// times the input, a linear cost grows by 8 and a quadratic cost by 64. A limit between these is 25,
// which is 8 to the power of 1.5.
func AtMost(t testing.TB, most float64, few, many func() time.Duration) {
	t.Helper()
	a, b, all := time.Hour, time.Hour, time.Duration(0)
	for i := 0; i < 3 || i < 10 && all < 3*time.Second; i++ {
		less, more := few(), many()
		a, b, all = min(a, less), min(b, more), all+less+more
		if float64(b) <= most*float64(a) {
			return
		}
	}
	t.Errorf("few take %v, many take %v: %.1f times as long, want at most %v", a, b, float64(b)/float64(a), most)
}
