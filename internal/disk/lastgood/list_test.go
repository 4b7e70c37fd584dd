//go:build unix

package lastgood

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// saved returns a state directory with the folder of a directory, in which a configuration is stored. No program
// uses the folder.
func saved(t *testing.T, root, served, description string) (folder string) {
	t.Helper()
	folder, err := Folder(root, served)
	if err != nil {
		t.Fatal(err)
	}
	k, err := Open(folder)
	if err == nil {
		err = errors.Join(k.Save(some(t, 2)), Label(folder, served, description))
	}
	if err != nil {
		t.Fatal(err)
	}
	k.Release()
	return folder
}

// listed returns the entries of a state directory as text, without hashes and sizes.
func listed(t *testing.T, root string) (all []string) {
	t.Helper()
	entries, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, strings.Join(strings.Fields(fmt.Sprintf("%s %s%s %s", e.Status, e.Directory, e.Description, e.Problem)), " "))
	}
	slices.Sort(all)
	return all
}

func TestListShowsTheStateOfEachFolder(t *testing.T) {
	root, served := filepath.Join(t.TempDir(), "state"), t.TempDir()
	if got := listed(t, root); len(got) != 0 {
		t.Error("a state directory that does not exist:", got)
	}
	saved(t, root, served, "")
	saved(t, root, "/gone/web", "")
	registered := filepath.Join(saved(t, root, "/registered", ""), EndpointsName)
	if err := errors.Join(os.Mkdir(registered, 0o700), os.WriteFile(filepath.Join(registered, "journal"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	saved(t, root, "/10.0.0.1:18000", "relay of 10.0.0.1:18000")
	if err := os.Remove(filepath.Join(saved(t, root, "/of/an/older/version", ""), labelName)); err != nil {
		t.Fatal(err)
	}
	k, err := Open(saved(t, root, "/used", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Release()
	want := []string{"GONE /gone/web", "GONE /registered", "IDLE", "IDLE " + served, "IDLE relay of 10.0.0.1:18000", "IN_USE /used"}
	if got := listed(t, root); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestListAndRemoveTrustNoEntry(t *testing.T) {
	outside := saved(t, t.TempDir(), "/outside", "")
	const base = "x-0123456789ab"
	for _, tt := range []struct {
		name  string
		harm  func(root string) error
		entry string // "": base
		want  string
		stays bool // Remove refuses the entry
	}{
		{"a link to a folder", func(root string) error { return os.Symlink(outside, filepath.Join(root, base)) }, "", "FOREIGN a symbolic link", true},
		{"a file", func(root string) error { return os.WriteFile(filepath.Join(root, base), nil, 0o600) }, "", "FOREIGN not a directory", true},
		{"a pipe", func(root string) error { return syscall.Mkfifo(filepath.Join(root, base), 0o600) }, "", "FOREIGN not a directory", true},
		{"a store of revisions", func(root string) error { return os.MkdirAll(filepath.Join(root, "store", "packs"), 0o700) }, "store", "FOREIGN not a name that Chancery gives", true},
		{"a hostile name", func(root string) error { return os.Mkdir(filepath.Join(root, "\x1b[2J-0123456789ab"), 0o700) }, "\x1b[2J-0123456789ab", "FOREIGN not a name that Chancery gives", true},
		{"a file of a user inside", func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, base), 0o700), os.WriteFile(filepath.Join(root, base, "last-good.bak"), nil, 0o600))
		}, "", `FOREIGN it contains "last-good.bak", which Chancery did not write`, true},
		{"a link inside", func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, base), 0o700), os.Symlink(filepath.Join(outside, name), filepath.Join(root, base, name)))
		}, "", `FOREIGN "last-good" in it is a symbolic link, not a regular file`, true},
		{"a pipe inside", func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, base), 0o700), syscall.Mkfifo(filepath.Join(root, base, labelName), 0o600))
		}, "", `FOREIGN "of" in it is a named pipe, not a regular file`, true},
		{"a directory with endpoints and more", func(root string) error {
			return os.MkdirAll(filepath.Join(root, base, EndpointsName, "mine"), 0o700)
		}, "", `FOREIGN "mine" in it is a directory, not a regular file`, true},
		{"a damaged file", func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, base), 0o700), os.WriteFile(filepath.Join(root, base, name), []byte("?"), 0o600))
		}, "", "DAMAGED last-good: the file has a format that this version of Chancery cannot read", false},
		{"the label of another folder", func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, base), 0o700), os.WriteFile(filepath.Join(root, base, labelName), []byte("/etc/chancery\x00"), 0o600))
		}, "", "IDLE", false},
		{"a label of a gigabyte", func(root string) error {
			return errors.Join(os.Mkdir(filepath.Join(root, base), 0o700), os.WriteFile(filepath.Join(root, base, labelName), nil, 0o600), os.Truncate(filepath.Join(root, base, labelName), 1<<30))
		}, "", "IDLE", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, entry := t.TempDir(), base
			if tt.entry != "" {
				entry = tt.entry
			}
			if err := tt.harm(root); err != nil {
				t.Fatal(err)
			}
			if got := listed(t, root); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			_, err := Remove(root, entry)
			_, missing := os.Lstat(filepath.Join(root, entry))
			if (err != nil) != tt.stays || (missing == nil) != tt.stays {
				t.Errorf("it is removed: %v, %v", err, missing)
			}
			if _, err := os.Stat(filepath.Join(outside, name)); err != nil {
				t.Error(err)
			}
		})
	}
	for _, entry := range []string{"..", ".", "", "../" + filepath.Base(outside), outside, base, "a\x00b"} {
		if _, err := Remove(t.TempDir(), entry); err == nil {
			t.Errorf("%q was removed", entry)
		}
	}
	if _, err := Remove(filepath.Dir(outside), filepath.Join(filepath.Base(outside), name)); err == nil {
		t.Error("a file of a folder was removed")
	}
}

// The age and the size of a folder are those of all its files.
func TestListShowsTheLastChangeAndTheSize(t *testing.T) {
	root := t.TempDir()
	folder := saved(t, root, "/served", "")
	registered := filepath.Join(folder, EndpointsName)
	if err := errors.Join(os.Mkdir(registered, 0o700), os.WriteFile(filepath.Join(registered, "journal"), []byte("12345"), 0o600)); err != nil {
		t.Fatal(err)
	}
	paths := []string{folder, registered, filepath.Join(folder, name), filepath.Join(folder, labelName), filepath.Join(registered, "journal")}
	old := time.Now().Add(-1000 * time.Hour).Truncate(time.Second)
	var size int64
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil {
			t.Fatal(err)
		} else if !info.IsDir() {
			size += info.Size()
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range append([]string{""}, paths[2:]...) {
		changed := old.Add(time.Duration(i) * time.Hour)
		if path != "" {
			if err := os.Chtimes(path, changed, changed); err != nil {
				t.Fatal(err)
			}
		}
		if all, err := List(root); err != nil || len(all) != 1 || !all[0].Used.Equal(changed) || all[0].Bytes != size {
			t.Errorf("%s was changed at %v, and all have %d bytes: %+v, %v", path, changed, size, all, err)
		}
	}
}

// A label is written only if it differs: of a folder that no server uses, the age counts.
func TestLabelIsReplacedIfItDiffers(t *testing.T) {
	root := t.TempDir()
	folder := saved(t, root, "/served", "")
	old := time.Now().Add(-1000 * time.Hour).Truncate(time.Second)
	path := filepath.Join(folder, labelName)
	if err := errors.Join(os.Chtimes(path, old, old), Label(folder, "/served", "")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(old) {
		t.Error("an equal label was written:", info.ModTime(), err)
	}
	if err := Label(folder, "/served", "relay of a"); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, root); !slices.Equal(got, []string{"IDLE relay of a"}) {
		t.Error(got)
	}
}

func TestRemoveRefusesAFolderInUse(t *testing.T) {
	root := t.TempDir()
	folder := saved(t, root, "/used", "")
	k, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Remove(root, filepath.Base(folder)); !errors.Is(err, disk.ErrBusy) {
		t.Error(err)
	}
	if _, err := k.Load(); err != nil {
		t.Error(err)
	}
	k.Release()
	e, err := Remove(root, filepath.Base(folder))
	if _, missing := os.Lstat(folder); err != nil || e.Directory != "/used" || !errors.Is(missing, fs.ErrNotExist) {
		t.Error(e, err, missing)
	}
	if _, err := Remove(root, filepath.Base(folder)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A directory that was served by mistake leaves no folder.
func TestReleaseRemovesAFolderWithItsLabelOnly(t *testing.T) {
	root := t.TempDir()
	folder, err := Folder(root, "/mistyped")
	if err != nil {
		t.Fatal(err)
	}
	k, err := Open(folder)
	if err == nil {
		err = errors.Join(Label(folder, "/mistyped", ""), Label(folder, "/mistyped", ""))
	}
	if err != nil {
		t.Fatal(err)
	}
	k.Release()
	if got := listed(t, root); len(got) != 0 {
		t.Error(got)
	}
}
