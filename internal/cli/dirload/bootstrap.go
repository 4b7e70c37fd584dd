package dirload

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/source/dir"
)

// Bootstrap reads the bootstrap that an import has written into a directory. It returns nil without problems if
// the directory has none. It refuses a link to a file outside, unless the options allow such links.
func Bootstrap(root string, opts dir.Options) (proto.Message, []findings.Problem) {
	path := filepath.Join(root, importer.BootstrapFile)
	if _, err := os.Lstat(path); err != nil {
		return nil, nil
	}
	return ReadBootstrap(path, opts, func() (*os.File, error) { return within(root, importer.BootstrapFile, opts.FollowLinksOutside) })
}

// ReadBootstrap reads the bootstrap in the file at path, which open opens. It returns nil if there are problems.
func ReadBootstrap(path string, opts dir.Options, open func() (*os.File, error)) (proto.Message, []findings.Problem) {
	f, err := open()
	if err != nil {
		return nil, []findings.Problem{unreadable(path, err)}
	}
	defer f.Close()
	file, err := importer.Read(path, f, opts.MaxFile)
	if err != nil {
		return nil, []findings.Problem{unreadable(path, err)}
	}
	m, problems := importer.Bootstrap(file, opts.Types)
	if m == nil {
		return nil, problems
	}
	return m.Interface(), problems
}

// within opens a file of a directory, and refuses a link to a file outside. Otherwise a user with write
// access to the directory could read any file with the permissions of this program.
func within(dir, name string, outside bool) (*os.File, error) {
	stat, open := os.Stat, os.Open
	path := filepath.Join(dir, name)
	if !outside {
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
