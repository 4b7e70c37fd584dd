//go:build unix && !solaris && !aix

// Package filelock keeps two programs from writing the same directory.
package filelock

import (
	"errors"
	"os"
	"syscall"
)

// ErrBusy says that another program has the lock.
var ErrBusy = errors.New("another program holds the lock")

// Lock keeps others from locking a file or directory, until unlock or the end of
// the program. On a file system that has no locks it keeps nobody away.
func Lock(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, ErrBusy
	}
	return func() { f.Close() }, nil
}
