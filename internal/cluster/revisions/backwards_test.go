package revisions_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/xds"
)

// While a repository is replaced by a backup or by another repository, nothing is read or written.
// This is true for an older repository, and for one with more revisions.
func TestReplacedRepositoryIsRefused(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	open := func() *revisions.Repository {
		e, err := file.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return revisions.Open(e, revisions.Options{})
	}
	commit := func(r *revisions.Repository, content string) (*revisions.Snapshot, error) {
		s, err := r.Head(ctx)
		if err != nil {
			return nil, err
		}
		it := &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, "a", []byte(content))}
		return r.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{it}}, revisions.Note{})
	}
	must := func(s *revisions.Snapshot, err error) *revisions.Snapshot {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	head := filepath.Join(dir, "head")
	read := func() map[string][]byte { return values(t, dir) }
	put := func(all map[string][]byte) { putBack(t, dir, all) }
	other := open()
	must(commit(other, "1"))
	backup := read()
	must(commit(other, "2"))
	third := must(commit(other, "3"))
	good := read()
	r := open()
	must(r.Head(ctx))
	stale := must(r.Head(ctx))
	backwards := func(what, want string) {
		t.Helper()
		for name, f := range map[string]func() error{
			"Head":   func() error { _, err := r.Head(ctx); return err },
			"Newest": func() error { _, err := r.Newest(ctx); return err },
			"At":     func() error { _, err := r.At(ctx, 1); return err },
			"Commit": func() error { _, err := commit(r, "lost"); return err },
			"of stale": func() error {
				_, err := r.Commit(ctx, stale, revisions.Edit{Set: []*revisions.Item{{Group: "default", Resource: xds.NewResource(xds.Cluster, "b", nil)}}}, revisions.Note{})
				return err
			},
			"SetHolds": func() error {
				return r.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
					holds["default"] = revisions.Hold{Number: 1}
					return nil
				})
			},
			"Sweep": func() error { _, err := r.Sweep(ctx, 1); return err },
		} {
			if err := f(); !errors.Is(err, revisions.ErrBackwards) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v, want %q", what, name, err, want)
			}
		}
	}
	put(backup)
	backwards("a backup", "from r3 to another r1, of ")
	strange := open() // this process has read nothing before
	must(commit(strange, "x2"))
	backwards("a commit to it", "from r3 to another r2")
	must(commit(strange, "x3"))
	backwards("as many", "from r3 to another r3")
	must(commit(strange, "x4"))
	backwards("one more", "to r4, of ")
	must(commit(strange, "x5"))
	backwards("two more", "whose ancestor r3 is not the one read before")
	for _, err := range r.Watch(ctx, third) {
		if !errors.Is(err, revisions.ErrBackwards) {
			t.Error(err)
		}
		break
	}
	if err := os.Remove(head); err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []*revisions.Repository{r, open()} {
		if _, err := fresh.Head(ctx); !errors.Is(err, revisions.ErrLostHead) {
			t.Error(err)
		}
	}
	put(nil)
	backwards("none", "the key head is missing, it was at r3")
	// A snapshot read before the repository was opened counts, too.
	kept, err := revisions.FromSaved(nil, third.Mark())
	if err != nil {
		t.Fatal(err)
	}
	put(backup)
	later := open()
	later.Observe(kept)
	if _, err := later.Head(ctx); !errors.Is(err, revisions.ErrBackwards) {
		t.Error(err)
	}
	put(good)
	must(r.Head(ctx))
	must(commit(other, "4"))
	must(commit(other, "5"))
	if s := must(commit(r, "6")); s.Revision.Number != 6 {
		t.Error(s.Revision.Number)
	}
	// After a sweep of the ancestors no check is possible.
	for _, content := range []string{"7", "8", "9"} {
		must(commit(other, content))
	}
	if _, err := other.Sweep(ctx, 1); err != nil {
		t.Fatal(err)
	}
	must(commit(other, "10"))
	if s := must(commit(r, "11")); s.Revision.Number != 11 {
		t.Error(s.Revision.Number)
	}
}

// values returns all values of a store in a directory, by path.
func values(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	if err := filepath.WalkDir(dir, func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() || strings.Contains(path, ".tmp") {
			return err
		}
		all[path], err = os.ReadFile(path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// putBack makes the values of a store those of a backup.
func putBack(t *testing.T, dir string, backup map[string][]byte) {
	t.Helper()
	for path := range values(t, dir) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for path, value := range backup {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, value, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A scripted engine answers with a given head, or calls a function before it answers.
type scriptedEngine struct {
	revisions.Engine
	head []byte // nil: the real one
	then func()
}

func (e *scriptedEngine) Get(ctx context.Context, key string) ([]byte, error) {
	if key != "head" {
		return e.Engine.Get(ctx, key)
	}
	b, err := e.Engine.Get(ctx, key)
	if then := e.then; then != nil {
		e.then = nil
		then()
	}
	if e.head != nil {
		return e.head, nil
	}
	return b, err
}

// Commits of others during a read neither hide a replaced repository nor look like one. A freeze is not
// forgotten, though it makes no revision.
func TestConcurrentCommitIsNotBackwards(t *testing.T) {
	ctx := t.Context()
	e := &scriptedEngine{Engine: engine(t)}
	r, other := revisions.Open(e, revisions.Options{}), revisions.Open(e.Engine, revisions.Options{})
	turn := ""
	commit := func() {
		t.Helper()
		turn += "x"
		base, err := other.Head(ctx)
		if err == nil {
			_, err = other.Commit(ctx, base, base.To([]*revisions.Item{in("edge", "a", turn)}), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(r *revisions.Repository, want error) *revisions.Snapshot {
		t.Helper()
		s, err := r.Head(ctx)
		if !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
		return s
	}
	head := func() []byte {
		t.Helper()
		b, err := e.Engine.Get(ctx, "head")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	commit()
	read(r, nil)
	older := head()
	e.then = func() { // another reader gets the newer head first, and then this reader gets the older answer
		commit()
		read(r, nil)
	}
	read(r, nil)
	e.head = older
	read(r, revisions.ErrBackwards)
	e.head = nil

	for range 3 {
		commit()
	}
	e.then = func() {
		if _, err := other.Sweep(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	read(r, nil)

	thawed := head()
	if err := other.SetHolds(ctx, func(n revisions.Number, holds map[string]revisions.Hold) error {
		holds["edge"] = revisions.Hold{Number: n}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	kept, err := revisions.FromSaved(nil, read(r, nil).Mark())
	if err != nil {
		t.Fatal(err)
	}
	e.head = thawed
	read(r, revisions.ErrBackwards)
	later := revisions.Open(e, revisions.Options{})
	later.Observe(kept)
	read(later, revisions.ErrBackwards)
}
