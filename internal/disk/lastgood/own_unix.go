//go:build unix

package lastgood

import (
	"fmt"
	"os"
	"syscall"
)

// own makes sure that a folder is this user's alone: what is in it is served, and has
// secrets. Somebody may have made it before.
func own(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (%d), who could read and change the stored configuration", dir, s.Uid)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return os.Chmod(dir, 0o700)
}

// trusted reports whether a file is of this user, or of root: others may have put it there while
// the folder was not this user's alone.
func trusted(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0 || int(s.Uid) == os.Geteuid()
}
