package certs

import (
	"io/fs"
	"os"
	"time"
)

// stampsOf returns what tells whether a file has changed: in place, by another
// in its place, or by a symbolic link on the way to it that leads elsewhere. It
// is nil for a file that is not there.
func stampsOf(paths []string) []fs.FileInfo {
	all := make([]fs.FileInfo, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			all[i] = info
		}
	}
	return all
}

// settled is how old a change must be when a file is read for the same time to
// mean the same content afterwards: file systems count time in steps.
const settled = 2 * time.Second

// same reports whether nothing has changed since the files were read, at a time
// and just after they had the old stamps.
func same(now, old []fs.FileInfo, read time.Time) bool {
	for i, a := range now {
		b := old[i]
		if a == nil || b == nil {
			return false // reading it says why
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || read.Sub(b.ModTime()) < settled {
			return false
		}
	}
	return true
}
