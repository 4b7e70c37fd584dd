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

// bootstraps reads what stays with the Envoys whose resources are checked: the file that
// was named, else what an import has left in each directory. It returns what is wrong.
func (k *checker) bootstraps(args []string) (wrong []findings.Problem) {
	read := func(path string, open func() (*os.File, error)) {
		f, err := open()
		if err != nil {
			wrong = append(wrong, noRead(path, err))
			return
		}
		defer f.Close()
		file, err := importer.Read(path, f, k.opts.MaxFile)
		if err != nil {
			wrong = append(wrong, noRead(path, err))
			return
		}
		m, problems := importer.Bootstrap(file, k.opts.Types)
		if wrong = append(wrong, problems...); m != nil {
			k.stay, k.opts.Bootstraps = append(k.stay, path), append(k.opts.Bootstraps, m.Interface())
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

// within opens a file of a directory. Who may write a link into that need not be who may
// have any file read.
func (k *checker) within(dir, name string) (*os.File, error) {
	stat, open := os.Stat, os.Open
	path := filepath.Join(dir, name)
	if !k.opts.FollowLinksOutside {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close() //nolint:errcheck // nothing is written
		stat, open, path = root.Stat, root.Open, name
	}
	info, err := stat(path)
	if err == nil && !info.Mode().IsRegular() { // it may be a pipe, whose opening would wait for a writer
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return open(path)
}

// noRead is the problem of a file that cannot be read.
func noRead(path string, err error) findings.Problem {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err // the path is told already
	}
	return findings.Problem{File: path, Code: findings.Unreadable, Message: err.Error()}
}
