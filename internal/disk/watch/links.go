package watch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Follow resolves the symbolic links of a path and returns the result. If a name does not exist, it
// stops there and adds the rest. It calls touch, if not nil, for each link and for the end: a
// replacement of any of them may change the result.
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
		if touch != nil && (err == nil || errors.Is(err, fs.ErrNotExist)) {
			touch(next)
			target, err = os.Readlink(next) // it may have changed before the watch of touch began
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{next}, rest...)...)
		case err != nil: // not a link
			at = next
			continue
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
