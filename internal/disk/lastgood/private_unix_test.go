//go:build unix

package lastgood

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/disk"
)

// The stored files have secrets and will be served: the folder is private to this user, whoever made
// it before (SAFE-11).
func TestFolderIsPrivate(t *testing.T) {
	at := func(mode os.FileMode) string {
		dir := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	opens := func(dir, want string) {
		t.Helper()
		_, err := Open(dir)
		if want == "" && err == nil {
			return
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	dir := at(0o777)
	opens(dir, "")
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(at(0o700), link); err != nil {
		t.Fatal(err)
	}
	opens(link, "is not a directory")
	theirs := at(0o700)
	if err := os.Chown(theirs, 65534, 65534); err != nil {
		return // only root can change the owner
	}
	opens(theirs, "belongs to another user (65534)")

	// Another user may have created the file while the folder was open.
	mine := at(0o700)
	k, err := Open(mine)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Release()
	if err := k.Save(Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Load(); err != nil {
		t.Error(err)
	}
	if err := os.Chown(filepath.Join(mine, name), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Load(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Error(err)
	}
	t.Run("HEAL-3 the same for the accepted versions", func(t *testing.T) {
		if err := k.SaveAccepted([]byte("evidence")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(mine, acceptedName), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if b, err := k.LoadAccepted(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// If the folder of a running keeper is removed or replaced, the keeper goes on, and two keepers never
// write to one folder (SAFE-10).
func TestFolderRemovedAndMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := k.Save(Config{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	if _, err := k.Load(); err != nil {
		t.Error(err)
	}
	other, err := Open(dir)
	if err != nil || other.Storing() || !errors.Is(other.Save(Config{}), disk.ErrBusy) {
		t.Error("two have the folder:", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := other.Save(Config{}); err != nil {
		t.Fatal(err)
	}
	if err := k.Save(Config{}); !errors.Is(err, disk.ErrBusy) {
		t.Error("two write to the folder:", err)
	}
	other.Release()
	if err := k.Save(Config{}); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	third, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	k.Release()
	if _, err := os.Stat(dir); err != nil {
		t.Error("the folder of another program was removed:", err)
	}
	third.Release()
}
