//go:build !unix || solaris || aix

package disk

import (
	"errors"
	"os"
)

// ErrBusy says that another program has the lock.
var ErrBusy = errors.New("another program holds the lock")

// A Held is a lock.
type Held struct{}

// Lock does nothing: there are no locks here.
func Lock(string) (*Held, error) { return &Held{}, nil }

// Holds reports whether there is anything at a path.
func (*Held) Holds(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Unlock does nothing.
func (*Held) Unlock() {}
