// Package watch reads files that other programs may be writing, and reports when files may have
// changed: by a write in place, by a replacement of a file, or by a change of a symbolic link. It does
// not interpret the files.
package watch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// A Stamp distinguishes two states of a file without a read of its content.
type Stamp struct {
	size  int64
	mode  fs.FileMode // includes who may read it
	mtime time.Time
	id    ID
}

// StampOf returns the stamp of a file.
func StampOf(info fs.FileInfo) Stamp {
	return Stamp{info.Size(), info.Mode(), info.ModTime(), IDOf(info)}
}

// Modified returns when the file was last written.
func (s Stamp) Modified() time.Time { return s.mtime }

// ID returns the ID of the file.
func (s Stamp) ID() ID { return s.id }

// ErrTooLarge means that a file is larger than the limit.
var ErrTooLarge = errors.New("more than the limit")

// ErrWritten means that a file changed during the read.
var ErrWritten = errors.New("is being written")

// Read returns the content of a file and its stamp.
func Read(path string, limit int64) ([]byte, Stamp, error) {
	f, err := disk.OpenNow(path) // the path may have become a pipe since
	if err != nil {
		return nil, Stamp{}, err
	}
	defer f.Close()
	return ReadOpen(f, limit)
}

// ReadOpen returns the content of an open file and its stamp. It fails if the stamp changed during the
// read, because another program then writes the file in place.
func ReadOpen(f fs.File, limit int64) ([]byte, Stamp, error) {
	before, err := f.Stat()
	if err != nil {
		return nil, Stamp{}, err
	}
	if !before.Mode().IsRegular() {
		return nil, Stamp{}, disk.NotRegular(before.Mode())
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
