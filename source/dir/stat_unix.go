//go:build unix

package dir

import (
	"io/fs"
	"syscall"
)

const nonblock = syscall.O_NONBLOCK

// A fileID is the same for two names of one file; the zero value means not
// known.
type fileID struct{ dev, ino uint64 }

func (id fileID) known() bool { return id != fileID{} }

func idOf(info fs.FileInfo) fileID {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fileID{uint64(st.Dev), st.Ino} //nolint:unconvert // Dev is smaller elsewhere
	}
	return fileID{}
}
