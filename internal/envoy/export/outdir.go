package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	internaldisk "github.com/chancery-xds/chancery/internal/disk"
)

const (
	current       = "current"         // the link that Envoy reads through
	generations   = ".generations"    // the directory that current leads into; hidden, and not watched
	next          = "next"            // the new link before its rename
	bootstrapLink = "bootstrap.json"  // a link to bootstrapFile
	bootstrapFile = "_bootstrap.json" // a name that no resource has
)

// An outDir is an export directory. All paths are relative to it.
type outDir struct {
	system
	root string
	live files // the export that current leads to
	seq  int   // its generation; 0: none
}

// open reads the existing export.
func (d *outDir) open() error {
	if err := d.checkOwned(); err != nil {
		return err
	}
	link := filepath.Join(d.root, bootstrapLink)
	if to, err := os.Readlink(link); !errors.Is(err, fs.ErrNotExist) && to != filepath.Join(current, bootstrapFile) {
		return notOurs(link)
	}
	link = filepath.Join(d.root, current)
	to, err := os.Readlink(link)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	n, ours := strings.CutPrefix(filepath.ToSlash(to), generations+"/")
	d.seq, _ = strconv.Atoi(n)
	if err != nil || !ours || d.seq < 1 {
		return notOurs(link)
	}
	d.live = files{}
	root := os.DirFS(d.generation(d.seq))
	err = fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !e.Type().IsRegular() { // reading it may block
			return notOurs(filepath.Join(d.generation(d.seq), path))
		}
		data, err := fs.ReadFile(root, path)
		d.live[path] = &file{data: data}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // dangling link
		d.live, err = nil, nil
	}
	return err
}

// checkOwned returns an error if the generations directory has entries that no export made. Old
// generations are removed, so other files must not be there, and a link must not lead elsewhere.
func (d *outDir) checkOwned() error {
	hidden := filepath.Join(d.root, generations)
	if info, err := os.Lstat(hidden); err == nil && !info.IsDir() {
		return notOurs(hidden)
	}
	entries, err := os.ReadDir(hidden)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		made := e.IsDir() && err == nil && n > 0 || e.Name() == next && e.Type() == fs.ModeSymlink
		if !made {
			return notOurs(filepath.Join(hidden, e.Name()))
		}
	}
	return nil
}

func notOurs(path string) error { return fmt.Errorf("%s exists, and is not part of an export", path) }

// intact reports whether the link and the files still exist; true if there was no export.
func (d *outDir) intact() bool {
	if d.live == nil {
		return true
	}
	to, err := os.Readlink(filepath.Join(d.root, current))
	if err != nil || to != filepath.Join(generations, strconv.Itoa(d.seq)) {
		return false
	}
	for path, f := range d.live {
		info, err := os.Lstat(filepath.Join(d.generation(d.seq), path))
		if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(f.data)) {
			return false
		}
	}
	return true
}

func (d *outDir) generation(n int) string {
	return filepath.Join(d.root, generations, strconv.Itoa(n))
}

// replace replaces the last export completely, or not at all if it returns an error. It returns the
// number of files written. The tidy method removes the replaced export.
func (d *outDir) replace(next files) (written int, err error) {
	if err := d.tidy(); err != nil {
		return 0, err
	}
	dir := d.generation(d.seq + 1)
	written, err = d.fill(dir, next)
	if err == nil {
		err = d.swap(filepath.Join(generations, strconv.Itoa(d.seq+1)))
	}
	if err != nil {
		_ = d.Remove(dir) // else the next call tries again
		return 0, err
	}
	d.seq++
	d.live = next
	return written, nil
}

// fill writes an export into a directory that no reader uses yet. It links unchanged files instead of
// writing them.
func (d *outDir) fill(dir string, next files) (written int, err error) {
	dirs := map[string]bool{dir: true}
	for path := range next {
		dirs[filepath.Dir(filepath.Join(dir, path))] = true
	}
	order := slices.Sorted(maps.Keys(dirs))
	for _, dir := range order {
		if err := d.Mkdir(dir); err != nil {
			return 0, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(next)) {
		to, data := filepath.Join(dir, path), next[path].data
		if was := d.live[path]; was != nil && string(was.data) == string(data) {
			// If a link is impossible, for example because there are too many, write a copy.
			if d.Link(filepath.Join(d.generation(d.seq), path), to) == nil {
				continue
			}
		}
		if err := d.Write(to, data); err != nil {
			return 0, err
		}
		written++
	}
	for _, dir := range order {
		if err := d.Sync(dir); err != nil {
			return 0, err
		}
	}
	return written, nil
}

// swap makes current lead to another generation. Envoy notices only renames in the watched directory,
// so swap renames the link.
func (d *outDir) swap(generation string) error {
	link := filepath.Join(d.root, generations, next)
	if err := d.Symlink(generation, link); err != nil {
		return err
	}
	if err := d.Rename(link, filepath.Join(d.root, current)); err != nil {
		_ = d.Remove(link)
		return err
	}
	return nil
}

// tidy removes all generations except the current one. A killed program may have left incomplete newer
// ones.
func (d *outDir) tidy() error {
	dir := filepath.Join(d.root, generations)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == strconv.Itoa(d.seq) {
			continue
		}
		if err := d.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// link creates or removes the link to the bootstrap.
func (d *outDir) link(wanted bool) error {
	link := filepath.Join(d.root, bootstrapLink)
	_, err := os.Lstat(link)
	switch {
	case wanted && errors.Is(err, fs.ErrNotExist):
		return d.Symlink(filepath.Join(current, bootstrapFile), link)
	case !wanted && err == nil:
		return d.Remove(link)
	}
	return nil
}

// A system changes the file system. Tests replace it.
type system interface {
	Mkdir(path string) error // with its parents; no error if it exists
	Write(path string, data []byte) error
	Link(from, to string) error
	Symlink(target, path string) error
	Rename(from, to string) error
	Remove(path string) error // with its contents; no error if it does not exist
	Sync(dir string) error
}

// A disk is the real file system. Files and directories get the read permissions of the export
// directory.
type disk struct{ mode fs.FileMode }

func (d disk) Mkdir(path string) error           { return os.MkdirAll(path, d.mode.Perm()|0o700) }
func (d disk) Link(from, to string) error        { return os.Link(from, to) }
func (d disk) Symlink(target, path string) error { return os.Symlink(target, path) }
func (d disk) Rename(from, to string) error      { return os.Rename(from, to) }
func (d disk) Remove(path string) error          { return os.RemoveAll(path) }

// Write returns when the file would survive a loss of power.
func (d disk) Write(path string, data []byte) error {
	return internaldisk.Write(path, d.mode.Perm()&0o666|0o600, func(w io.Writer) error { _, err := w.Write(data); return err })
}

func (d disk) Sync(dir string) error { return internaldisk.SyncDir(dir) }
