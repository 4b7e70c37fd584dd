package certs

import (
	"io/fs"
	"os"
	"time"
)

// stampsOf returns the metadata that shows whether a file has changed: in place, by a replacement, or
// by a change of a symbolic link in its path. It is nil for a file that does not exist.
func stampsOf(paths []string) []fs.FileInfo {
	all := make([]fs.FileInfo, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			all[i] = info
		}
	}
	return all
}

// settled is how old a change must be before an equal time means equal content: file systems count
// time in steps.
const settled = 2 * time.Second

// same reports whether the files did not change since the read. The old stamps are from just before
// it.
func same(now, old []fs.FileInfo, read time.Time) bool {
	for i, a := range now {
		b := old[i]
		if a == nil || b == nil {
			return false // a read finds out why
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || read.Sub(b.ModTime()) < settled {
			return false
		}
	}
	return true
}
