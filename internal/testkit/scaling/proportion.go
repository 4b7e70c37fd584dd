// Package scaling judges, in tests, what code costs by comparing it with itself: a limit in
// seconds says more of the machine than of the code.
package scaling

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Computing is how long f computes, in the goroutine that calls it. A busy machine makes it take
// longer, and that does not count. No allocation shows a walk, so it has to be time.
func Computing(f func()) time.Duration {
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

// Grows fails the test if many compute more than most times as long as few, each at its best of
// ten tries, or of three if these take three seconds: the machine does other things meanwhile, which cost
// caches, too. Eight times as many
// take 8 times as long if the cost is linear, and 64 times if it is quadratic: between these
// lies 25, which is 8 to the power of 1.5.
func Grows(t testing.TB, most float64, few, many func() time.Duration) {
	t.Helper()
	a, b, all := time.Hour, time.Hour, time.Duration(0)
	for i := 0; i < 3 || i < 10 && all < 3*time.Second; i++ {
		less, more := few(), many()
		if a, b, all = min(a, less), min(b, more), all+less+more; float64(b) <= most*float64(a) {
			return
		}
	}
	t.Errorf("few take %v, many take %v: %.1f times as long, and not %v at most", a, b, float64(b)/float64(a), most)
}
