//go:build unix

package listen

import (
	"io/fs"
	"syscall"
)

// restrict sets the mode of a socket that has no file yet. Some systems ignore or refuse it.
func restrict(fd uintptr, mode fs.FileMode) { _ = syscall.Fchmod(int(fd), uint32(mode)) }
