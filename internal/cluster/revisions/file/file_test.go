package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) func(*testing.T) revisions.Engine {
		dir := t.TempDir()
		return func(t *testing.T) revisions.Engine {
			e, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	})
}

func TestFloors(t *testing.T) {
	dir := t.TempDir()
	enginetest.Floors(t, 10_000, func(t *testing.T) revisions.Engine {
		e, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

// If the directory of a store is missing, or is a mount point without its volume, reads do not return
// "not found", and writes fail. The store works again when it is back.
func TestMissingDirectoryIsNotAnEmptyStore(t *testing.T) {
	at := filepath.Join(t.TempDir(), "store")
	e, err := Open(at, nil)
	if err == nil {
		err = e.PutIfAbsent(t.Context(), "a/b", []byte("x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Get(t.Context(), "a/c"); !errors.Is(err, revisions.ErrNotFound) {
		t.Fatal(err)
	}
	list := func(prefix string) (err error) {
		for _, err = range e.List(t.Context(), prefix) {
		}
		return err
	}
	away := at + ".away"
	if err := os.Rename(at, away); err != nil {
		t.Fatal(err)
	}
	for _, empty := range []bool{false, true} {
		if empty {
			if err := os.Mkdir(at, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		_, got := e.Get(t.Context(), "a/b")
		_, _, leased := e.Lease(t.Context(), "l")
		_, _, announced := e.Announced(t.Context(), "a/", 9)
		for what, err := range map[string]error{
			"get": got, "lease": leased, "announced": announced, "list": list("a/"), "list all": list(""), "delete": e.Delete(t.Context(), "a/b"),
			"put": e.PutIfAbsent(t.Context(), "c/d", nil), "swap": e.CompareAndSwap(t.Context(), "head", nil, []byte("x")),
		} {
			if !errors.Is(err, revisions.ErrUnavailable) || errors.Is(err, revisions.ErrNotFound) {
				t.Errorf("%s, empty %t: %v", what, empty, err)
			}
		}
	}
	if err := os.Remove(at); err != nil { // the engine created nothing in it
		t.Fatal(err)
	}
	if err := os.Rename(away, at); err != nil {
		t.Fatal(err)
	}
	if b, err := e.Get(t.Context(), "a/b"); string(b) != "x" || list("a/") != nil {
		t.Error(string(b), err)
	}
}

// A pipe, a device or an oversized file in the place of a value is not read.
func TestPipesAndOversizedFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	e, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"device":    {func(path string) error { return os.Symlink("/dev/zero", path) }, "a device, not a regular file"},
		"pipe":      {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "a named pipe, not a regular file"},
		"directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "a directory, not a regular file"},
		"large": {func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, maxFile+1)
		}, "more than the limit"},
	} {
		if err := c.make(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if b, err := e.Get(t.Context(), name); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %d bytes, %v, want %s", name, len(b), err, c.want)
		}
		if err := e.PutIfAbsent(t.Context(), name, []byte("x")); err == nil {
			t.Errorf("%s is read as a value", name)
		}
	}
}
