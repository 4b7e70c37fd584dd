//go:build unix

package watch

import (
	"io/fs"
	"syscall"
)

// An ID identifies a file: it is the same for two names of one file. The zero value: unknown.
type ID struct{ dev, ino uint64 }

// Known reports whether the system identifies files.
func (id ID) Known() bool { return id != ID{} }

// IDOf returns the ID of a file.
func IDOf(info fs.FileInfo) ID {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return ID{uint64(st.Dev), st.Ino} //nolint:unconvert // Dev is smaller elsewhere
	}
	return ID{}
}
