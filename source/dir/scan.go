package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// A found file is one whose name says that it holds resources.
type found struct {
	path string // under the root as it was given
	watch.Stamp
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
	seen  map[watch.ID]string
	root  string // its path without links
}

// Each link of a chain may be read again and again through another one.
const maxNesting = 64

func (s *scanner) scan(root string) {
	s.seen = map[watch.ID]string{}
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
	if id := watch.IDOf(info); id.Known() {
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
		s.fail(path, watch.NotRegular(info.Mode()))
	case wanted:
		s.files = append(s.files, found{path, watch.StampOf(info)})
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

// follow touches every link on the way to a path and where it ends, and returns that.
func (s *scanner) follow(path string) string { return watch.Follow(path, s.touch) }
