//go:build !unix

package dir

import "io/fs"

const nonblock = 0

// A fileID is not known on this system.
type fileID struct{}

func (fileID) known() bool { return false }

func idOf(fs.FileInfo) fileID { return fileID{} }
