//go:build unix && !solaris && !aix

package export

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps other exporters away from a directory until unlock, or the end of
// the program.
func lock(root string) (unlock func(), err error) {
	d, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		d.Close()
		return nil, busy(root)
	} // else it is locked, or on a file system that has no locks
	return func() { d.Close() }, nil
}
