package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
)

// bootstraps reads the bootstraps of the Envoys whose resources are checked: the file of --bootstrap, or
// in each directory the file that an import has written. It returns the problems in these files.
func (k *checker) bootstraps(args []string) (wrong []findings.Problem) {
	read := func(path string, open func() (*os.File, error)) {
		f, err := open()
		if err != nil {
			wrong = append(wrong, unreadable(path, err))
			return
		}
		defer f.Close()
		file, err := importer.Read(path, f, k.opts.MaxFile)
		if err != nil {
			wrong = append(wrong, unreadable(path, err))
			return
		}
		m, problems := importer.Bootstrap(file, k.opts.Types)
		wrong = append(wrong, problems...)
		if m != nil {
			k.bootstrapFiles, k.opts.Bootstraps = append(k.bootstrapFiles, path), append(k.opts.Bootstraps, m.Interface())
		}
	}
	if k.bootstrap != "" {
		read(k.bootstrap, func() (*os.File, error) { return os.Open(k.bootstrap) })
		return wrong
	}
	var seen []string
	for _, dir := range args {
		path := filepath.Join(dir, importer.BootstrapFile)
		if _, err := os.Lstat(path); err != nil || slices.Contains(seen, path) {
			continue
		}
		seen = append(seen, path)
		read(path, func() (*os.File, error) { return k.within(dir, importer.BootstrapFile) })
	}
	return wrong
}

// within opens a file of a directory, and refuses a link to a file outside. Otherwise a user with write
// access to the directory could read any file with the permissions of this program.
func (k *checker) within(dir, name string) (*os.File, error) {
	stat, open := os.Stat, os.Open
	path := filepath.Join(dir, name)
	if !k.opts.FollowLinksOutside {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close() //nolint:errcheck // the directory was only read
		stat, open, path = root.Stat, root.Open, name
	}
	info, err := stat(path)
	if err == nil && !info.Mode().IsRegular() { // to open a pipe would wait for a writer
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return open(path)
}

// unreadable returns the problem of a file that cannot be read.
func unreadable(path string, err error) findings.Problem {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err // the problem has the path already
	}
	return findings.Problem{File: path, Code: findings.Unreadable, Message: err.Error()}
}
