//go:build !unix

package watch

import "io/fs"

// An ID identifies a file; this system has none.
type ID struct{}

// Known reports whether the system identifies files.
func (ID) Known() bool { return false }

// IDOf returns the ID of a file.
func IDOf(fs.FileInfo) ID { return ID{} }
