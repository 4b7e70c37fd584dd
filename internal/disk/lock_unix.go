//go:build unix && !solaris && !aix

package disk

import (
	"errors"
	"os"
	"syscall"
)

// ErrBusy means that another program holds the lock.
var ErrBusy = errors.New("another program holds the lock")

// A Held is a lock of a file or directory. The lock stays with the file when it is moved or removed.
type Held struct{ f *os.File }

// Lock locks a file or directory, until Unlock or the end of the program. On a file system without
// locks it has no effect.
func Lock(path string) (*Held, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return LockFile(f)
}

// LockFile locks an open file or directory as [Lock] does, and closes it when the lock ends, or on an error.
func LockFile(f *os.File) (*Held, error) {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, ErrBusy
	}
	return &Held{f}, nil
}

// Locked reports whether another program holds the lock of a directory. It does not hold the lock longer than it
// must, but a program that asks for the lock meanwhile finds it busy.
func Locked(dir *os.Root) (bool, error) {
	f, err := dir.Open(".")
	if err != nil {
		return false, err
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK), nil
}

// Holds reports whether the file at path is the locked one. It is not if the path was removed and made
// again; then the lock does not protect it.
func (h *Held) Holds(path string) bool {
	locked, err := h.f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(locked, now)
}

// Unlock releases the lock.
func (h *Held) Unlock() { h.f.Close() }
