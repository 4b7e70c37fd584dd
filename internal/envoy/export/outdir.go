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
	generations   = ".generations"    // what it leads into; hidden, and not watched
	next          = "next"            // the link before it is renamed
	bootstrapLink = "bootstrap.json"  // leads to …
	bootstrapFile = "_bootstrap.json" // … a name that is no resource's
)

// An outDir is a directory of exports. All paths are below it.
type outDir struct {
	system
	root  string
	shown files // what current leads to
	seq   int   // the generation it leads to; 0: none
}

// open reads what there is.
func (d *outDir) open() error {
	if err := d.own(); err != nil {
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
	if d.seq, _ = strconv.Atoi(n); err != nil || !ours || d.seq < 1 {
		return notOurs(link)
	}
	d.shown = files{}
	root := os.DirFS(d.generation(d.seq))
	err = fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if !e.Type().IsRegular() { // to read one may wait for ever
			return notOurs(filepath.Join(d.generation(d.seq), path))
		}
		data, err := fs.ReadFile(root, path)
		d.shown[path] = &file{data: data}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // the link leads nowhere
		d.shown, err = nil, nil
	}
	return err
}

// own returns an error if the generations are not of an export. What is below them is
// removed: through a link that would be something else, and so would what else lies there.
func (d *outDir) own() error {
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

// intact reports whether the link and the files are there still; true if there never were any.
func (d *outDir) intact() bool {
	if d.shown == nil {
		return true
	}
	to, err := os.Readlink(filepath.Join(d.root, current))
	if err != nil || to != filepath.Join(generations, strconv.Itoa(d.seq)) {
		return false
	}
	for path, f := range d.shown {
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

// replace puts an export in the place of the last, all at once or, with an
// error, not at all. It returns how many files it wrote. What it leaves is for
// tidy.
func (d *outDir) replace(next files) (written int, err error) {
	if err := d.tidy(); err != nil {
		return 0, err
	}
	dir := d.generation(d.seq + 1)
	if written, err = d.fill(dir, next); err == nil {
		err = d.swap(filepath.Join(generations, strconv.Itoa(d.seq+1)))
	}
	if err != nil {
		_ = d.Remove(dir) // if that is impossible too, the next time
		return 0, err
	}
	d.seq++
	d.shown = next
	return written, nil
}

// fill writes an export into a directory that nobody reads yet. What has not
// changed is the file there was.
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
		if was := d.shown[path]; was != nil && string(was.data) == string(data) {
			// Where links are not possible, or there are too many, a copy serves.
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

// swap makes current lead to another generation. Envoy notices renames only,
// of the link in the directory it watches.
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

// tidy removes all but the current generation: older ones, and halves of newer
// ones that a killed program left.
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

// link makes the link to the bootstrap, or removes it.
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

// A system is what changes the file system.
type system interface {
	Mkdir(path string) error // with its parents; it may be there
	Write(path string, data []byte) error
	Link(from, to string) error
	Symlink(target, path string) error
	Rename(from, to string) error
	Remove(path string) error // with what is in it; it may be gone
	Sync(dir string) error
}

// A disk is the system's file system. Files and directories may be read by whom
// the directory of the exports may be read.
type disk struct{ mode fs.FileMode }

func (d disk) Mkdir(path string) error           { return os.MkdirAll(path, d.mode.Perm()|0o700) }
func (d disk) Link(from, to string) error        { return os.Link(from, to) }
func (d disk) Symlink(target, path string) error { return os.Symlink(target, path) }
func (d disk) Rename(from, to string) error      { return os.Rename(from, to) }
func (d disk) Remove(path string) error          { return os.RemoveAll(path) }

// Write returns when the file would outlast a loss of power.
func (d disk) Write(path string, data []byte) error {
	return internaldisk.Write(path, d.mode.Perm()&0o666|0o600, func(w io.Writer) error { _, err := w.Write(data); return err })
}

func (d disk) Sync(dir string) error { return internaldisk.SyncDir(dir) }
