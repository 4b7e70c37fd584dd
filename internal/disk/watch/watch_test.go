package watch

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// If events are lost, any file may have changed. A watch that cannot be added is logged once; a closed
// watcher logs nothing.
func TestMissesChanges(t *testing.T) {
	var log bytes.Buffer
	w := NewWatcher(slog.New(slog.NewTextHandler(&log, nil)), time.Hour)
	w.fs.Errors <- fsnotify.ErrEventOverflow
	select {
	case <-w.Bell():
	case <-time.After(10 * time.Second):
		t.Error("silent when events were lost")
	}
	look := func(want int) {
		t.Helper()
		w.Begin()
		w.Enter(filepath.Join(t.TempDir(), "none"))
		w.End()
		if n := strings.Count(log.String(), "changes of files may be noticed up to 30 s late"); n != want || !w.MissesChanges() {
			t.Errorf("%d lines, want %d", n, want)
		}
	}
	look(1)
	look(1)
	w.Close()
	w.Close()
	w.logged = false
	look(1)
}

// Follow touches every link, and the place where a directory is missing.
func TestFollowTouchesEveryLink(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(path string) string { return filepath.Join(root, path) }
	if err := os.Mkdir(in("1"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"data": "1", "a": "data/a", "b": in("none/b"), "loop": "loop"} {
		if err := os.Symlink(to, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][]string{
		"c":        {"c"},
		"1/c":      {"1/c"},
		"a":        {"a", "data", "1/a"},
		"data/c":   {"data", "1/c"},
		"b":        {"b", "none"},
		"no/such":  {"no"},
		"data/x/y": {"data", "1/x"},
	} {
		var touched []string
		Follow(in(path), func(p string) { touched = append(touched, strings.TrimPrefix(p, root+"/")) })
		if !slices.Equal(touched, want) {
			t.Errorf("%s: %q, want %q", path, touched, want)
		}
	}
	Follow(in("loop"), nil) // ends
}

// A link that changes before its watch begins is read again.
func TestFollowReadsLinkAfterTouch(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("old", link); err != nil {
		t.Fatal(err)
	}
	got := Follow(link, func(p string) {
		if p != link {
			return
		}
		if err := errors.Join(os.Remove(link), os.Symlink("new", link)); err != nil {
			t.Fatal(err)
		}
	})
	if filepath.Base(got) != "new" {
		t.Errorf("the link leads to %s", got)
	}
}

// A scan may read a file in a directory of which the earlier scan used only other files. A change of the file during
// the scan causes another scan.
func TestChangeOfNewFileDuringScan(t *testing.T) {
	link, file := filepath.Join("d", "link"), filepath.Join("d", "file")
	for _, tt := range []struct {
		name string
		scan func(w *Watcher)
		want bool
	}{
		{"a further name", func(w *Watcher) { w.Touch(link); w.Touch(file) }, true},
		{"the whole directory", func(w *Watcher) { w.Enter("d") }, true},
		{"the same names", func(w *Watcher) { w.Touch(link) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := NewManual()
			w.Begin()
			w.Touch(link)
			w.End()
			w.Begin()
			tt.scan(w)
			w.Event(fsnotify.Event{Name: file, Op: fsnotify.Write})
			w.End()
			if got := len(w.Bell()) > 0; got != tt.want {
				t.Errorf("the bell rings: %v", got)
			}
			w.Begin()
			tt.scan(w)
			w.End()
			if len(w.Bell()) > 0 {
				t.Error("the bell rings without a change")
			}
		})
	}
}

// Replaced finds one file that a rename has replaced, and no other change.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	w := NewWatcher(slog.New(slog.DiscardHandler), time.Hour)
	defer w.Close()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		write(from)
		if err := os.Rename(path(from), path(to)); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(path string) bool { return filepath.Ext(path) == ".yaml" }
	for name, tt := range map[string]struct {
		do   func()
		want string
	}{
		"a rename":     {func() { rename("new", "a.yaml") }, "a.yaml"},
		"two renames":  {func() { rename("new", "a.yaml"); rename("new", "a.yaml") }, "a.yaml"},
		"of two files": {func() { rename("new", "a.yaml"); rename("new", "b.yaml") }, ""},
		"a write":      {func() { write("a.yaml") }, ""},
		"a removal":    {func() { _ = os.Remove(path("a.yaml")); rename("new", "a.yaml") }, ""},
		"of too many files": {func() {
			for i := range maxPaths {
				write(string(rune('a' + i)))
			}
			rename("new", "a.yaml")
		}, ""},
		"of another file after too many events": {func() {
			rename("new", "a.yaml")
			for i := range maxPaths {
				write(string(rune('a' + i)))
			}
			rename("new", "b.yaml")
		}, ""},
		"of another name": {func() { rename("new", "a.txt") }, ""},
	} {
		t.Run("SAFE-18 "+name, func(t *testing.T) {
			write("a.yaml")
			w.Begin()
			w.Enter(dir)
			w.End()
			time.Sleep(50 * time.Millisecond) // events of the write above
			w.Begin()
			w.Enter(dir)
			w.End()
			tt.do()
			write("end")
			for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				seen := false
				w.Replaced(func(path string) bool { seen = seen || filepath.Base(path) == "end"; return false })
				w.mu.Lock()
				seen = seen || w.lost
				w.mu.Unlock()
				if seen {
					break
				}
			}
			want := ""
			if tt.want != "" {
				want = path(tt.want)
			}
			if got, _ := w.TakeReplaced(counts); got != want {
				t.Errorf("replaced: %q, want %q", got, want)
			}
			if got, ok := w.Replaced(counts); ok && want != "" {
				t.Errorf("%q is still replaced", got)
			}
		})
	}
}
