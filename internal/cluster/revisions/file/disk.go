package file

import (
	"bytes"
	"io"
	"os"

	internaldisk "github.com/chancery-xds/chancery/internal/disk"

	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// A disk is what the engine asks of the system. Tests have one that loses what was not synced.
type disk interface {
	Read(path string) ([]byte, error)
	List(dir string) ([]os.DirEntry, error)
	Mkdir(path string) error
	// Write makes a new file, whose content outlasts a loss of power.
	Write(path string, data []byte) error
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir returns when the names in a directory outlast a loss of power.
	SyncDir(dir string) error
	// Lock locks a file, which it makes, and which stays: who removes it while another waits for it would have two hold it.
	Lock(path string) (unlock func(), err error)
	// Hear has a watcher hear of a file.
	Hear(w *watch.Watcher, path string)
}

type system struct{}

// maxFile is how large a file of the store may be, in bytes. Of what this version writes none is larger than
// [revisions.MaxValue]; earlier ones wrote larger heads.
const maxFile = 64 << 20

// Read reads no pipe or device, which might never end.
func (system) Read(path string) ([]byte, error) {
	b, _, err := watch.Read(path, maxFile)
	return b, err
}

func (system) List(dir string) ([]os.DirEntry, error) { return os.ReadDir(dir) }
func (system) Mkdir(path string) error                { return os.Mkdir(path, 0o700) }
func (system) Rename(from, to string) error           { return os.Rename(from, to) }
func (system) Remove(path string) error               { return os.Remove(path) }
func (system) SyncDir(dir string) error               { return internaldisk.SyncDir(dir) }

func (system) Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f.Close()
	held, err := internaldisk.Lock(path)
	if err != nil {
		return nil, err
	}
	if !held.Holds(path) { // somebody has removed it meanwhile, and others may have made and locked it again
		held.Unlock()
		return nil, internaldisk.ErrBusy
	}
	return held.Unlock, nil
}

func (system) Hear(w *watch.Watcher, path string) {
	w.Begin()
	w.Touch(path)
	w.End()
}

func (system) Write(path string, data []byte) error {
	return internaldisk.Write(path, 0o600, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	})
}
