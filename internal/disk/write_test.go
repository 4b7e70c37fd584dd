package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	is := func(want string) {
		t.Helper()
		all, err := os.ReadDir(dir)
		if err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	puts := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, _ = io.WriteString(w, text)
			return err
		}
	}
	if err := Replace(path, 0o600, puts("one", nil)); err != nil {
		t.Fatal(err)
	}
	is("one")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if err := Replace(path, 0o600, puts("half", io.ErrShortWrite)); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	is("one")
	// A program was killed while it wrote.
	if err := os.WriteFile(filepath.Join(dir, ".new"), []byte("longer than two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, 0o600, puts("two", nil)); err != nil {
		t.Fatal(err)
	}
	is("two")
	if err := Write(path, 0o600, puts("three", nil)); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	is("two")
	if err := SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// Append only appends to a file of the known size.
func TestAppendChecksSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if grew, err := Append(path, 0, []byte("one")); !errors.Is(err, fs.ErrNotExist) || grew {
		t.Error(grew, err)
	}
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int64]bool{2: false, 3: true, 4: false} {
		if grew, err := Append(path, size, []byte(" two")); err != nil || grew != want {
			t.Error(size, grew, err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "one two" {
		t.Errorf("%q, %v", got, err)
	}
	link := filepath.Join(t.TempDir(), "l")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if grew, err := Append(link, 7, []byte("three")); err != nil || grew {
		t.Error("a link is followed", err)
	}
}

// Nothing else in the directory changes, also if the write fails.
func TestReplaceSharedKeepsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, ".new"), 0o700), os.WriteFile(path, []byte("one"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceShared(path, 0o600, func(io.Writer) error { return io.ErrShortWrite }); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	if err := ReplaceShared(path, 0o640, func(w io.Writer) error { _, err := io.WriteString(w, "two"); return err }); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if got, err2 := os.ReadFile(path); err != nil || err2 != nil || string(got) != "two" || len(entries) != 2 || entries[0].Name() != ".new" {
		t.Error(string(got), entries, err, err2)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Error(info, err)
	}
}

// Replace neither writes to nor shares a file of another user at the temporary path (SAFE-11).
func TestReplaceRefusesForeignFiles(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	for name, put := range map[string]func(next string) error{
		"a link to a file": func(next string) error {
			return errors.Join(os.WriteFile(victim, []byte("theirs"), 0o600), os.Symlink(victim, next))
		},
		"a file that others may read": func(next string) error { return errors.Join(os.WriteFile(next, nil, 0o600), os.Chmod(next, 0o666)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := put(filepath.Join(filepath.Dir(path), ".new")); err != nil {
				t.Fatal(err)
			}
			if err := Replace(path, 0o600, func(w io.Writer) error { _, err := io.WriteString(w, "ours"); return err }); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
				t.Error(info.Mode(), err)
			}
			if got, err := os.ReadFile(victim); err == nil && string(got) != "theirs" {
				t.Errorf("%q", got)
			}
		})
	}
}
