//go:build unix

package lastgood

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is kept has secrets, and is served: the folder is this user's alone, whoever has made
// it before (SAFE-11).
func TestOwn(t *testing.T) {
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
		return // who is not root gives nothing away
	}
	opens(theirs, "belongs to another user (65534)")
}
