package certs

import (
	"io/fs"
	"os"
	"time"
)

// stampsOf returns the metadata that shows whether a file has changed: in place, by a replacement, or
// by a change of a symbolic link in its path. The stamp of a file that does not exist is nil.
func stampsOf(paths []string) []fs.FileInfo {
	all := make([]fs.FileInfo, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			all[i] = info
		}
	}
	return all
}

// settled is the age that a file's last change must have at the read. Only then does an equal time
// mean equal content, because file systems count time in steps.
const settled = 2 * time.Second

// same reports whether the files have not changed since the read. The old stamps were taken just
// before the read.
func same(now, old []fs.FileInfo, read time.Time) bool {
	for i, a := range now {
		b := old[i]
		if a == nil || b == nil {
			return false // reading the file again finds the reason
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || read.Sub(b.ModTime()) < settled {
			return false
		}
	}
	return true
}
