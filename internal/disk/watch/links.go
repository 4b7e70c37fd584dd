package watch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Follow returns the path without links that a path leads to. It calls touch, unless that is
// nil, with every link on the way and with where it ends, or where it cannot go on since nothing
// is there: what has to be replaced for the path to lead elsewhere.
func Follow(path string, touch func(string)) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	volume := filepath.VolumeName(abs)
	root := volume + string(filepath.Separator)
	at, rest := root, split(abs[len(volume):])
	for steps := 0; len(rest) > 0 && steps < 1000; steps++ {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if touch != nil {
				touch(next)
			}
			return filepath.Join(append([]string{next}, rest...)...)
		case err != nil: // not a link
			at = next
			continue
		}
		if touch != nil {
			touch(next)
		}
		if filepath.IsAbs(target) {
			at = root
		}
		rest = append(split(target), rest...)
	}
	if touch != nil {
		touch(at)
	}
	return at
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}
