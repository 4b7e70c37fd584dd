// Package watch reads files that others may be writing, and hears of it when they have: of writes
// in place, of replaced files, and of symbolic links that lead elsewhere. It knows nothing of what
// is in them.
package watch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// A Stamp tells two states of a file apart without reading it.
type Stamp struct {
	size  int64
	mode  fs.FileMode // who may read it
	mtime time.Time
	id    ID
}

// StampOf returns the stamp of a file.
func StampOf(info fs.FileInfo) Stamp {
	return Stamp{info.Size(), info.Mode(), info.ModTime(), IDOf(info)}
}

// Modified returns when the file was last written.
func (s Stamp) Modified() time.Time { return s.mtime }

// NotRegular is the error of what is no file to read.
func NotRegular(m fs.FileMode) error {
	kind := "special file"
	switch {
	case m.IsDir():
		kind = "directory"
	case m&fs.ModeNamedPipe != 0:
		kind = "named pipe"
	case m&fs.ModeSocket != 0:
		kind = "socket"
	case m&fs.ModeDevice != 0:
		kind = "device"
	}
	return fmt.Errorf("a %s, not a regular file", kind)
}

// ErrTooLarge is of files that are larger than they may be.
var ErrTooLarge = errors.New("more than the limit")

// ErrWritten is of files that have changed while they were read.
var ErrWritten = errors.New("is being written")

// Read returns the content of a file and its stamp.
func Read(path string, limit int64) ([]byte, Stamp, error) {
	// The file found may have become a pipe, whose opening would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, Stamp{}, err
	}
	defer f.Close()
	return ReadOpen(f, limit)
}

// ReadOpen returns the content of an open file and its stamp, which must be the
// same before and after: who writes in place is seen by it.
func ReadOpen(f fs.File, limit int64) ([]byte, Stamp, error) {
	before, err := f.Stat()
	if err != nil {
		return nil, Stamp{}, err
	}
	if !before.Mode().IsRegular() {
		return nil, Stamp{}, NotRegular(before.Mode())
	}
	if before.Size() > limit {
		return nil, Stamp{}, fmt.Errorf("%d bytes, %w of %d", before.Size(), ErrTooLarge, limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, Stamp{}, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, Stamp{}, err
	}
	if StampOf(before) != StampOf(after) || int64(len(data)) != after.Size() {
		return nil, Stamp{}, ErrWritten
	}
	return data, StampOf(after), nil
}
