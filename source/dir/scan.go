package dir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/findings"
)

// A stamp tells two states of a file apart without reading it.
type stamp struct {
	size  int64
	mode  fs.FileMode // who may read it
	mtime time.Time
	id    fileID
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{info.Size(), info.Mode(), info.ModTime(), idOf(info)}
}

// A found file is one whose name says that it holds resources.
type found struct {
	path string // under the root as it was given
	stamp
}

// A scanner finds the files under a directory. It follows symbolic links, to what is
// outside only if told to: who may write a link into the directory need not be who may
// have the server read any file. It reads each directory once and opens no file.
type scanner struct {
	// enter, if set, is called with the real path of each directory before it is
	// read, so that what appears in it later is not missed. touch is called with
	// each path whose replacement changes what a symbolic link leads to.
	enter func(dir string)
	touch func(path string)

	outside bool   // follow links that lead out of the root
	option  string // the option that has it so

	files []found
	errs  []findings.Problem
	seen  map[fileID]string
	root  string // its path without links
}

// Each link of a chain may be read again and again through another one.
const maxNesting = 64

func (s *scanner) scan(root string) {
	s.seen = map[fileID]string{}
	info, err := os.Stat(root)
	switch {
	case root == "":
		s.fail(`""`, errors.New("the path of the directory is empty"))
	case err != nil:
		s.follow(root)
		s.fail(root, err)
	case !info.IsDir():
		s.follow(root)
		s.fail(root, errors.New("not a directory"))
	default:
		s.root = s.follow(root)
		s.dir(root, s.root, info, 0)
	}
}

// still scans again, and reports whether it has found the same. If not, the scanner has
// what it has found now.
func (s *scanner) still(root string) bool {
	now := scanner{enter: s.enter, touch: s.touch, outside: s.outside, option: s.option}
	now.scan(root)
	same := slices.Equal(now.files, s.files) && slices.Equal(now.errs, s.errs)
	*s = now
	return same
}

// dir finds the files in a directory whose path without links is real.
func (s *scanner) dir(path, real string, info fs.FileInfo, nesting int) {
	if id := idOf(info); id.known() {
		if first, ok := s.seen[id]; ok {
			s.fail(path, fmt.Errorf("the same directory as %s, through a symbolic link", first))
			return
		}
		s.seen[id] = path
	}
	if nesting > maxNesting {
		s.fail(path, fmt.Errorf("more than %d directories deep", maxNesting))
		return
	}
	if s.enter != nil {
		s.enter(real)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		s.fail(path, err)
		return
	}
	for _, e := range entries {
		if name := e.Name(); name[0] != '.' && name[0] != '_' {
			s.entry(e, filepath.Join(path, name), filepath.Join(real, name), nesting)
		}
	}
}

func (s *scanner) entry(e fs.DirEntry, path, real string, nesting int) {
	wanted := form(path) != nil
	link := e.Type()&fs.ModeSymlink != 0
	if !e.IsDir() && !link && !wanted {
		return
	}
	info, err := os.Stat(path)
	if link {
		real = s.follow(path)
	}
	switch {
	case !link && errors.Is(err, fs.ErrNotExist): // deleted a moment ago
	case errors.Is(err, fs.ErrNotExist):
		s.fail(path, fmt.Errorf("a symbolic link to %s, which does not exist", real))
	case err != nil:
		s.fail(path, err)
	case link && !s.outside && (info.IsDir() || wanted) && !s.within(real):
		s.fail(path, fmt.Errorf("a symbolic link that points outside the directory, to %s: %s follows it", real, s.option))
	case info.IsDir() && isGroupFile(path): // such as a mount of a file that is not there: else its group is all nodes'
		s.fail(path, errors.New("a directory in the place of a file"))
	case info.IsDir():
		s.dir(path, real, info, nesting+1)
	case wanted && !info.Mode().IsRegular():
		s.fail(path, notRegular(info.Mode()))
	case wanted:
		s.files = append(s.files, found{path, stampOf(info)})
	}
}

// within reports whether a path without links is in the root.
func (s *scanner) within(real string) bool {
	rel, err := filepath.Rel(s.root, real)
	return err == nil && filepath.IsLocal(rel)
}

func (s *scanner) fail(path string, err error) {
	s.errs = append(s.errs, unread(path, err))
}

// follow touches every link on the way to a path and where it ends, and returns
// that.
func (s *scanner) follow(path string) string {
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
		if err != nil { // not a link
			at = next
			continue
		}
		if s.touch != nil {
			s.touch(next)
		}
		if filepath.IsAbs(target) {
			at = root
		}
		rest = append(split(target), rest...)
	}
	if s.touch != nil {
		s.touch(at)
	}
	return at
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}

func notRegular(m fs.FileMode) error {
	kind := "special file"
	switch {
	case m&fs.ModeNamedPipe != 0:
		kind = "named pipe"
	case m&fs.ModeSocket != 0:
		kind = "socket"
	case m&fs.ModeDevice != 0:
		kind = "device"
	}
	return fmt.Errorf("a %s, not a regular file", kind)
}

// errTooLarge is of files that are larger than the options allow.
var errTooLarge = errors.New("more than the limit")

// read returns the content of a file and its stamp.
func read(path string, limit int64) ([]byte, stamp, error) {
	// The file found may have become a pipe, whose opening would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	return readOpen(f, limit)
}

// readOpen returns the content of an open file and its stamp, which must be the
// same before and after: who writes in place is seen by it.
func readOpen(f fs.File, limit int64) ([]byte, stamp, error) {
	before, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	if !before.Mode().IsRegular() {
		return nil, stamp{}, notRegular(before.Mode())
	}
	if before.Size() > limit {
		return nil, stamp{}, fmt.Errorf("%d bytes, %w of %d", before.Size(), errTooLarge, limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, stamp{}, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	if stampOf(before) != stampOf(after) || int64(len(data)) != after.Size() {
		return nil, stamp{}, errors.New("is being written")
	}
	return data, stampOf(after), nil
}
