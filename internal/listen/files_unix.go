//go:build unix

package listen

import (
	"fmt"
	"math"
	"syscall"
)

// RaiseFiles raises the soft limit of open files to the hard one, and returns
// what is in force afterwards, also if that could not be done.
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
		if l.Cur = old; uint64(l.Max) >= math.MaxInt64 { //nolint:unconvert // signed elsewhere
			return now(), nil // infinity is not to be had, and the Go runtime has raised what could be
		}
		return now(), fmt.Errorf("raise the limit of open files from %d to %d: %w", old, l.Max, err)
	}
	return now(), nil
}
