//go:build !unix || solaris || aix

package disk

import (
	"errors"
	"os"
)

// ErrBusy means that another program holds the lock.
var ErrBusy = errors.New("another program holds the lock")

// A Held is a lock.
type Held struct{}

// Lock does nothing, because this system has no such locks.
func Lock(string) (*Held, error) { return &Held{}, nil }

// LockFile closes the file.
func LockFile(f *os.File) (*Held, error) { return &Held{}, f.Close() }

// Locked reports false.
func Locked(*os.Root) (bool, error) { return false, nil }

// Holds reports whether the path exists.
func (*Held) Holds(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Unlock does nothing.
func (*Held) Unlock() {}
