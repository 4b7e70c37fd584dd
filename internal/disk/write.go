// Package disk writes files that survive a loss of power, and locks a directory against a second
// program. To replace a file as a whole or not at all, use [Replace].
package disk

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Write creates a file from the output of write, and flushes it to the disk. The name of the file is
// not flushed: see [SyncDir]. It fails if the path exists, also as a symbolic link.
func Write(path string, mode os.FileMode, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Replace replaces the file at path, as a whole or not at all. It uses the name ".new" in the same
// directory, which must be a directory of Chancery. Two programs must not replace files there at the same time.
func Replace(path string, mode os.FileMode, write func(io.Writer) error) error {
	next := filepath.Join(filepath.Dir(path), ".new")
	// A killed program may have left this file. It may also be a link to another file, or a file that other users
	// can read.
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return replace(path, next, mode, write)
}

// ReplaceShared replaces the file at path like [Replace], in a directory that may have files of other programs. Its
// temporary name is unique, so a killed program leaves this file.
func ReplaceShared(path string, mode os.FileMode, write func(io.Writer) error) error {
	return replace(path, filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text()), mode, write)
}

func replace(path, next string, mode os.FileMode, write func(io.Writer) error) error {
	err := Write(next, mode, write)
	if errors.Is(err, os.ErrExist) {
		return err
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Append appends to a file of the given size, and flushes it to the disk. It reports whether the file
// had that size and everything was written. After an error, any part may have been appended.
func Append(path string, size int64, b []byte) (bool, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return false, err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	return err == nil, err
}

// SyncDir flushes the names in a directory to the disk. It ignores that some file systems cannot do
// that.
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
