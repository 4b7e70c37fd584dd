package lastgood

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// labelName is the file with the path for which a folder was made, and a description. The name of the folder
// has only a hash of the path.
const labelName = "of"

// maxLabel is the maximum size of a label: a path of the system, and a description.
const maxLabel = 16 << 10

// Label stores the path for which a folder of [Folder] was made. The description replaces a path that is not a
// directory; "": it is a directory. After an error, only [List] lacks the path.
func Label(folder, of, description string) error {
	abs, err := filepath.Abs(of)
	if err != nil {
		return err
	}
	content, path := abs+"\x00"+description, filepath.Join(folder, labelName)
	if b, _, err := readIn(folder, labelName, maxLabel); err == nil && string(b) == content {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.Write(path, 0o600, func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
}

// A Status describes an entry of the state directory.
type Status string

// The values of Status.
const (
	InUse   Status = "IN_USE"  // a running server or agent has the lock
	Idle    Status = "IDLE"    // no program uses it
	Gone    Status = "GONE"    // the same, and the served directory does not exist
	Damaged Status = "DAMAGED" // a folder of Chancery that no server can use as it is
	Denied  Status = "DENIED"  // this user may not read the folder
	Foreign Status = "FOREIGN" // not a folder of Chancery
)

// An Entry is an entry of the state directory.
type Entry struct {
	Name        string
	Directory   string // the served directory; "": unknown, or the entry has a description
	Description string // of a folder that does not belong to a directory
	Status      Status
	Problem     string // why the status is Damaged, Denied or Foreign
	Bytes       int64
	Used        time.Time // the last change of a file in it
}

var (
	folderName  = regexp.MustCompile(`^[A-Za-z0-9._-]+-[0-9a-f]{12}$`)
	filesInside = []string{name, acceptedName, serverName, labelName, EndpointsName, "control", ".new"}
)

// EndpointsName is the directory with registered endpoints in a folder. The server writes it.
const EndpointsName = "endpoints"

// List returns the entries of a state directory, by name. It follows no symbolic link in it. A state directory
// that does not exist has none.
func List(dir string) ([]Entry, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was only read
	items, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, item := range items {
		if e, err := inspect(root, item.Name()); err == nil {
			all = append(all, e)
		}
	}
	return all, nil
}

// inspect returns an entry of the state directory. The error is [os.ErrNotExist] if there is none.
func inspect(root *os.Root, entry string) (Entry, error) {
	info, err := root.Lstat(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, err
	}
	if err != nil {
		return Entry{Name: entry, Status: Denied, Problem: reason(err)}, nil
	}
	e := Entry{Name: entry, Status: Foreign, Used: info.ModTime()}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		e.Problem = "a symbolic link"
	case !info.IsDir():
		e.Problem = "not a directory"
	case !folderName.MatchString(entry):
		e.Problem = "not a name that Chancery gives"
	default:
		inside, err := root.OpenRoot(entry)
		if err != nil {
			e.Status, e.Problem = Denied, reason(err)
			break
		}
		defer inside.Close() //nolint:errcheck // it was only read
		e.Status, e.Problem = e.contents(root.Name(), inside)
	}
	return e, nil
}

// contents inspects the files of a folder.
func (e *Entry) contents(root string, inside *os.Root) (Status, string) {
	items, err := fs.ReadDir(inside.FS(), ".")
	if err != nil {
		return Denied, reason(err)
	}
	for _, item := range items {
		info, err := inside.Lstat(item.Name())
		if err != nil {
			continue // a server has just removed it
		}
		if info.ModTime().After(e.Used) {
			e.Used = info.ModTime()
		}
		switch m := info.Mode(); {
		case !slices.Contains(filesInside, item.Name()):
			return Foreign, fmt.Sprintf("it contains %q, which Chancery did not write", item.Name())
		case item.Name() == "control" && m.Type() == fs.ModeSocket:
		case item.Name() == EndpointsName && m.IsDir():
			if status, problem := e.endpoints(inside); status != "" {
				return status, problem
			}
		case !m.IsRegular():
			return Foreign, fmt.Sprintf("%q in it is %s", item.Name(), disk.NotRegular(m))
		default:
			e.Bytes += info.Size()
		}
	}
	e.label(root, inside)
	held, err := disk.Locked(inside)
	switch {
	case err != nil:
		return Denied, reason(err)
	case held:
		return InUse, ""
	}
	if err := readable(inside); err != nil {
		return Damaged, reason(err)
	}
	if e.Directory != "" {
		if _, err := os.Stat(e.Directory); errors.Is(err, fs.ErrNotExist) {
			return Gone, ""
		}
	}
	return Idle, ""
}

// endpoints inspects the directory with registered endpoints. The status is "" if it has only files.
func (e *Entry) endpoints(inside *os.Root) (Status, string) {
	items, err := fs.ReadDir(inside.FS(), EndpointsName)
	if err != nil {
		return Denied, reason(err)
	}
	for _, item := range items {
		info, err := inside.Lstat(filepath.Join(EndpointsName, item.Name()))
		if err != nil {
			continue // a server has just removed it
		}
		if m := info.Mode(); !m.IsRegular() {
			return Foreign, fmt.Sprintf("%q in it is %s", item.Name(), disk.NotRegular(m))
		}
		e.Bytes += info.Size()
		if info.ModTime().After(e.Used) {
			e.Used = info.ModTime()
		}
	}
	return "", ""
}

// label reads the label of a folder, if it is of this folder.
func (e *Entry) label(root string, inside *os.Root) {
	b, _, err := readFile(inside, labelName, maxLabel)
	of, description, is := strings.Cut(string(b), "\x00")
	if err != nil || !is || !filepath.IsAbs(of) {
		return
	}
	if folder, err := Folder(root, of); err != nil || filepath.Base(folder) != e.Name {
		return
	}
	e.Description = description
	if description == "" {
		e.Directory = of
	}
}

// readable returns an error if the stored configuration of a folder is damaged.
func readable(inside *os.Root) error {
	data, _, err := readFile(inside, name, MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := parse(data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// reason returns an error without its path.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return err.Error()
}

// Remove removes a folder of a state directory, also a damaged one. It returns the removed entry. The error is
// [os.ErrNotExist] if there is no such entry, and [disk.ErrBusy] if a program uses it. A foreign entry is an error.
func Remove(dir, entry string) (Entry, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Entry{}, err
	}
	defer root.Close() //nolint:errcheck // its files are removed, not written
	e, err := inspect(root, entry)
	if err != nil {
		return e, err
	}
	switch e.Status {
	case Foreign, Denied:
		return e, errors.New(e.Problem)
	case InUse:
		return e, disk.ErrBusy
	}
	folder, err := disk.OpenNowIn(root, entry)
	if err != nil {
		return e, err
	}
	// With the lock, a server that starts now waits, and then makes the folder again.
	lock, err := disk.LockFile(folder)
	if err != nil {
		return e, err
	}
	defer lock.Unlock()
	return e, root.RemoveAll(entry)
}
