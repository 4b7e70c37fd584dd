package harness

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Eventually waits until a condition holds and returns how long that took. It
// ends the test when the time is up.
func Eventually(t testing.TB, within time.Duration, what string, condition func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := condition()
		took := time.Since(start)
		switch {
		case err == nil && took <= within:
			return took
		case err == nil:
			t.Fatalf("%s: only after %v, not within %v", what, took, within)
		case took > within:
			t.Fatalf("%s: not within %v: %v", what, within, err)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

var nextPort atomic.Int64

// FreePort returns a loopback port that nobody uses, from below the range that
// connections take theirs from, so that it stays free for whom it is meant,
// also while nobody listens.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := int(20000 + (int64(os.Getpid())*131+nextPort.Add(1))%12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
