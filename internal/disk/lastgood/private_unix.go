//go:build unix

package lastgood

import (
	"fmt"
	"os"
	"syscall"
)

// makePrivate makes a folder private to this user, because its files have secrets and will be served. It fails
// if the folder belongs to another user, who may have created it before.
func makePrivate(dir string) error {
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

// trusted reports whether a file belongs to this user or to root. Another user may have created it
// before the folder was private.
func trusted(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0 || int(s.Uid) == os.Geteuid()
}
