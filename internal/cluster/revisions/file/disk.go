package file

import (
	"bytes"
	"io"
	"os"

	internaldisk "github.com/chancery-xds/chancery/internal/disk"

	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// A disk is the part of the system that the engine uses. Tests replace it by a disk that loses
// unsynced data.
type disk interface {
	Read(path string) ([]byte, error)
	List(dir string) ([]os.DirEntry, error)
	Mkdir(path string) error
	// Write creates a new file. Its content survives a loss of power.
	Write(path string, data []byte) error
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir returns when the names in a directory will survive a loss of power.
	SyncDir(dir string) error
	// Lock locks a file, and creates it if necessary. Unlocking does not remove the file. Otherwise a
	// program that waits for the removed file and a program that creates a new file could both hold
	// the lock.
	Lock(path string) (unlock func(), err error)
	// Hear makes a watcher watch a file.
	Hear(w *watch.Watcher, path string)
}

type system struct{}

// maxFile is the maximum size of a file that the engine reads, in bytes. This version writes at most
// [revisions.MaxValue]; earlier versions wrote larger heads.
const maxFile = 64 << 20

// Read refuses pipes and devices, because a read of them may never end.
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
	if !held.Holds(path) { // another program has removed this file since, and a third may hold a new one
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
