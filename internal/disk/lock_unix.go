//go:build unix && !solaris && !aix

package disk

import (
	"errors"
	"os"
	"syscall"
)

// ErrBusy says that another program has the lock.
var ErrBusy = errors.New("another program holds the lock")

// A Held is a lock of a file or directory, which keeps it when it is moved or removed.
type Held struct{ f *os.File }

// Lock keeps others from locking a file or directory, until Unlock or the end of
// the program. On a file system that has no locks it keeps nobody away.
func Lock(path string) (*Held, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, ErrBusy
	}
	return &Held{f}, nil
}

// Holds reports whether what is at a path now is what is locked: who has removed it and made it
// again keeps nobody away.
func (h *Held) Holds(path string) bool {
	locked, err := h.f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(locked, now)
}

// Unlock lets others lock it.
func (h *Held) Unlock() { h.f.Close() }
