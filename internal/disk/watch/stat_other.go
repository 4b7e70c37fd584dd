//go:build !unix

package watch

import "io/fs"

const nonblock = 0

// An ID is not known on this system.
type ID struct{}

// Known reports whether the system tells files apart.
func (ID) Known() bool { return false }

// IDOf returns the ID of a file.
func IDOf(fs.FileInfo) ID { return ID{} }
