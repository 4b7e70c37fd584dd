package importer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/chancery-xds/chancery/internal/disk"
)

// A Write configures where and how to write an import.
type Write struct {
	Dir   string
	Force bool        // replace existing files; otherwise Dir must be new or empty
	Mode  fs.FileMode // mode of files without secrets; 0 means 0644

	// Check, if set, validates the future contents of Dir in a temporary directory. An error stops the
	// write before anything in Dir changes.
	Check func(dir string) error
}

// ErrNotEmpty reports that the directory has contents.
var ErrNotEmpty = errors.New("the directory is not empty")

// Files returns all outputs.
func (i *Import) Files() []Output {
	all := make([]Output, 0, len(i.Resources)+1)
	for _, r := range i.Resources {
		all = append(all, r.Output)
	}
	if i.Bootstrap != nil {
		all = append(all, *i.Bootstrap)
	}
	return all
}

// To writes an import. It writes to a temporary directory next to Dir and then renames the files. If a
// rename fails, it undoes the others, so after an error Dir is unchanged.
func (i *Import) To(w Write) (err error) {
	if w.Mode == 0 {
		w.Mode = 0o644
	}
	entries, err := os.ReadDir(w.Dir)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isNew {
		return err
	}
	if len(entries) > 0 && !w.Force {
		return fmt.Errorf("%s: %w", w.Dir, ErrNotEmpty)
	}
	parent, pattern := w.Dir, ".import-*"
	if isNew {
		parent = filepath.Dir(filepath.Clean(w.Dir))
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		pattern = "." + filepath.Base(filepath.Clean(w.Dir)) + ".import-*"
	}
	stage, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	fresh := filepath.Join(stage, "new")
	if err := i.write(fresh, w); err != nil {
		return err
	}
	if w.Check != nil {
		all := fresh
		if len(entries) > 0 {
			all = filepath.Join(stage, "all")
			if err := i.linkMerged(all, fresh, w.Dir); err != nil {
				return err
			}
		}
		if err := w.Check(all); err != nil {
			return err
		}
	}
	if isNew {
		return os.Rename(fresh, w.Dir)
	}
	return i.move(fresh, filepath.Join(stage, "old"), w)
}

// Shared reports whether the group of Dir may read the files, also those with secrets. This is so if Dir, or the
// directory in which it will be made, has the setgid bit: it gives new files the group of a server that reads them.
func (w Write) Shared() bool {
	info, err := os.Stat(w.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(filepath.Clean(w.Dir)))
	}
	return err == nil && info.Mode()&fs.ModeSetgid != 0
}

// sharedFolder is the mode of a directory that the group may read, and whose files get its group.
const sharedFolder = 0o750 | fs.ModeSetgid

// write writes all files into a new directory.
func (i *Import) write(dir string, w Write) error {
	shared := w.Shared()
	if err := mkdir(dir, shared); err != nil {
		return err
	}
	for _, o := range i.Files() {
		path := filepath.Join(dir, filepath.FromSlash(o.Path))
		if err := mkdir(filepath.Dir(path), shared); err != nil {
			return err
		}
		m := w.Mode
		if o.Secret {
			m = 0o600
		}
		if err := disk.Write(path, m, func(w io.Writer) error { _, err := w.Write(o.Data); return err }); err != nil {
			return err
		}
		if shared { // whatever the umask is
			if err := os.Chmod(path, m|0o640); err != nil {
				return err
			}
		}
	}
	return nil
}

// mkdir makes a directory if it does not exist.
func mkdir(path string, shared bool) error {
	err := os.Mkdir(path, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err == nil && shared: // whatever the umask is
		return os.Chmod(path, sharedFolder)
	}
	return err
}

// linkMerged makes a directory of hard links to the new files and to the existing files that stay. It
// leaves out symbolic links, because relative targets would change.
func (i *Import) linkMerged(all, fresh, dir string) error {
	replaced := map[string]bool{}
	for _, o := range i.Files() {
		replaced[filepath.FromSlash(o.Path)] = true
	}
	link := func(root string, wanted func(rel string) bool) error {
		return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			rel, relErr := filepath.Rel(root, path)
			switch {
			case err != nil || relErr != nil:
				return errors.Join(err, relErr)
			case d.IsDir() && rel != "." && d.Name()[0] == '.':
				return filepath.SkipDir
			case d.IsDir():
				return os.MkdirAll(filepath.Join(all, rel), 0o755)
			case !d.Type().IsRegular() || !wanted(rel):
				return nil
			}
			// The links are only read, and removed afterwards.
			return os.Link(path, filepath.Join(all, rel)) //nolint:gosec // see above
		})
	}
	if err := link(dir, func(rel string) bool { return !replaced[rel] }); err != nil {
		return err
	}
	return link(fresh, func(string) bool { return true })
}

// move renames the new files to their places, and the files that they replace to old.
func (i *Import) move(fresh, old string, w Write) (err error) {
	var undo []func()
	defer func() {
		for n := len(undo) - 1; err != nil && n >= 0; n-- {
			undo[n]()
		}
	}()
	for _, o := range i.Files() {
		path := filepath.FromSlash(o.Path)
		to, was := filepath.Join(w.Dir, path), filepath.Join(old, path)
		folder := filepath.Dir(to)
		if _, missing := os.Stat(folder); errors.Is(missing, fs.ErrNotExist) {
			if err := mkdir(folder, w.Shared()); err != nil {
				return err
			}
			undo = append(undo, func() { os.Remove(folder) })
		}
		if info, err := os.Lstat(to); err == nil {
			if info.IsDir() {
				return fmt.Errorf("%s is a directory", to)
			}
			if err := os.MkdirAll(filepath.Dir(was), 0o700); err != nil {
				return err
			}
			if err := os.Rename(to, was); err != nil {
				return err
			}
			undo = append(undo, func() { os.Rename(was, to) }) //nolint:errcheck // the first error is returned
		}
		if err := os.Rename(filepath.Join(fresh, path), to); err != nil {
			return err
		}
		undo = append(undo, func() { os.Remove(to) })
	}
	return nil
}

// ReadDir returns the files below a directory that may be Envoy configurations, in order. It follows
// links to files, such as those of a mounted ConfigMap.
func ReadDir(dir string, most int64) ([]File, error) {
	var all []File
	err := filepath.WalkDir(dir+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); filepath.Clean(path) != filepath.Clean(dir) && name[0] == '.' {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		switch strings.ToLower(filepath.Ext(path)) {
		case ".yaml", ".yml", ".json", ".pb", ".pb_text":
		default:
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		f, err := ReadFile(path, most)
		f.Loose = true
		all = append(all, f)
		return err
	})
	return all, err
}

// ReadFile reads a file of at most most bytes.
func ReadFile(path string, most int64) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	file, err := Read(path, f, most)
	file.Mode = info.Mode()
	return file, err
}

// ModeOf returns the mode for files made from others: a user who cannot read every input cannot read the
// result.
func ModeOf(files []File) fs.FileMode {
	mode := fs.FileMode(0o644)
	for _, f := range files {
		if f.Mode != 0 {
			mode &= 0o600 | f.Mode&0o044
		}
	}
	return mode
}

// Read reads at most most bytes, and fails if there are more.
func Read(name string, r io.Reader, most int64) (File, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes (--max-file)", name, most)
	}
	return File{Name: name, Data: data}, err
}
