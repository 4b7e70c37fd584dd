package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// A found is a file whose name has one of the known endings.
type found struct {
	path string // as given, with the root in front
	real string // without symbolic links
	watch.Stamp
}

// A scanner finds the files below a directory. It follows symbolic links out of the directory only if
// the option allows it: a user who may write a link into the directory may not be allowed to make the
// server read any file. It reads each directory once and opens no file.
type scanner struct {
	// enter, if set, is called with the real path of each directory before it is read, so that files
	// that appear later are not missed. touch is called with each path whose replacement changes the
	// target of a symbolic link.
	enter func(dir string)
	touch func(path string)

	outside bool   // follow links that lead out of the root
	option  string // name of the option that allows it

	readsBootstraps bool // find the bootstraps of the root and of groups

	files []found
	errs  []findings.Problem

	bootstraps    []found
	bootstrapErrs []findings.Problem

	seen map[watch.ID]string
	root string // without symbolic links
}

// maxNesting limits the depth of directories. A symbolic link to a parent would otherwise repeat them
// without end.
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

// still scans again, and reports whether the result is the same. The scanner then has the new result.
func (s *scanner) still(root string) bool {
	now := scanner{enter: s.enter, touch: s.touch, outside: s.outside, option: s.option, readsBootstraps: s.readsBootstraps}
	now.scan(root)
	same := slices.Equal(now.files, s.files) && slices.Equal(now.errs, s.errs) &&
		slices.Equal(now.bootstraps, s.bootstraps) && slices.Equal(now.bootstrapErrs, s.bootstrapErrs)
	*s = now
	return same
}

// dir finds the files in a directory; real is its path without symbolic links.
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
	group := nesting == 0 || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == GroupFile })
	for _, e := range entries {
		switch name := e.Name(); {
		case name == BootstrapFile && group && s.readsBootstraps:
			s.bootstrap(e, filepath.Join(path, name), filepath.Join(real, name))
		case name[0] != '.' && name[0] != '_':
			s.entry(e, filepath.Join(path, name), filepath.Join(real, name), nesting)
		}
	}
}

// bootstrap finds a bootstrap by the rules of other files.
func (s *scanner) bootstrap(e fs.DirEntry, path, real string) {
	b := scanner{touch: s.touch, outside: s.outside, option: s.option, root: s.root}
	b.entry(e, path, real, 0)
	s.bootstraps, s.bootstrapErrs = append(s.bootstraps, b.files...), append(s.bootstrapErrs, b.errs...)
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
	case !link && errors.Is(err, fs.ErrNotExist): // deleted since the directory was read
	case errors.Is(err, fs.ErrNotExist):
		s.fail(path, fmt.Errorf("a symbolic link to %s, which does not exist", real))
	case err != nil:
		s.fail(path, err)
	case link && !s.outside && (info.IsDir() || wanted) && !s.within(real):
		s.fail(path, fmt.Errorf("a symbolic link that points outside the directory, to %s: %s follows it", real, s.option))
	case info.IsDir() && (isGroupFile(path) || isBootstrapFile(path)): // for example a failed mount of the file; without its rule, all nodes would get the group
		s.fail(path, errors.New("a directory in the place of a file"))
	case info.IsDir():
		s.dir(path, real, info, nesting+1)
	case wanted && !info.Mode().IsRegular():
		s.fail(path, disk.NotRegular(info.Mode()))
	case wanted:
		s.files = append(s.files, found{path, real, watch.StampOf(info)})
	}
}

// within reports whether a path without symbolic links is in the root.
func (s *scanner) within(real string) bool {
	rel, err := filepath.Rel(s.root, real)
	return err == nil && filepath.IsLocal(rel)
}

func (s *scanner) fail(path string, err error) {
	s.errs = append(s.errs, unread(path, err))
}

// follow resolves the symbolic links of a path and returns the result. It calls touch for each link
// and for the result.
func (s *scanner) follow(path string) string { return watch.Follow(path, s.touch) }
