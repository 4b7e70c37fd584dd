// Package disk writes files so that they survive a loss of power, and locks a directory so that two programs
// do not write to it. A file is written whole or not at all only if the caller renames it: see [Replace].
package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Write makes a file of what write writes, and returns when it would outlast a loss of
// power, but for its name: see [SyncDir]. It refuses a file, or a
// link, that is there.
func Write(path string, mode os.FileMode, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Replace puts a file in the place of the one at path, as a whole or not at all. It goes
// by the name ".new" beside it, which two that replace at once must not share.
func Replace(path string, mode os.FileMode, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	next := filepath.Join(dir, ".new")
	// One that a killed program left goes, and what else has that name: a link to another
	// file, or a file that others may read.
	err := os.Remove(next)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = Write(next, mode, write)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
		return err
	}
	return SyncDir(dir)
}

// Append appends to a file that is as long as the caller knows, and returns when that would outlast a loss of power. It
// reports whether the file was so, and all of that is done; after an error nobody knows what was appended.
func Append(path string, size int64, b []byte) (bool, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false, err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	return err == nil, err
}

// SyncDir returns when the names in a directory would outlast a loss of power. Not all
// file systems can do that, which is no error.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
