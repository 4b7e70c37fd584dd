package harness

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Eventually waits until a condition holds and returns the time that it took. It
// fails the test at the timeout.
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
		time.Sleep(5 * time.Millisecond) // between two checks
	}
}

var nextPort atomic.Int64

// FreePort returns an unused loopback port. It is below the range of ephemeral ports, so that no connection
// takes it before the caller listens.
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
