//go:build unix

package listen

import (
	"fmt"
	"math"
	"syscall"
)

// RaiseFiles raises the soft limit of open files to the hard limit. It returns the limits afterwards,
// also if it fails.
func RaiseFiles() (Files, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return Files{}, fmt.Errorf("limit of open files: %w", err)
	}
	now := func() Files { return Files{Soft: uint64(l.Cur), Hard: uint64(l.Max)} } //nolint:unconvert // signed elsewhere
	if l.Cur == l.Max {
		return now(), nil
	}
	old := l.Cur
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		l.Cur = old
		if uint64(l.Max) >= math.MaxInt64 { //nolint:unconvert // signed elsewhere
			return now(), nil // the limit cannot be infinite here, and the Go runtime has raised it already
		}
		return now(), fmt.Errorf("raise the limit of open files from %d to %d: %w", old, l.Max, err)
	}
	return now(), nil
}
