package revisions_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/revisions"
	"github.com/chancery-xds/chancery/revisions/file"
	"github.com/chancery-xds/chancery/xds"
)

// Of a repository in whose place somebody has put a backup, or another one, nothing is read and nothing written before it is back: not as
// long as that is older, and not when it has more revisions.
func TestBackwards(t *testing.T) {
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
	read := func() []byte {
		b, err := os.ReadFile(head)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	put := func(b []byte) {
		if err := os.WriteFile(head, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
	strange := open() // which knows nothing better
	must(commit(strange, "x2"))
	backwards("a commit to it", "from r3 to another r2")
	must(commit(strange, "x3"))
	backwards("as many", "from r3 to another r3")
	must(commit(strange, "x4"))
	backwards("one more", "to r4, of ")
	must(commit(strange, "x5"))
	backwards("two more", "after another r3 than that which was read")
	for _, err := range r.Watch(ctx, third) {
		if !errors.Is(err, revisions.ErrBackwards) {
			t.Error(err)
		}
		break
	}
	if err := os.Remove(head); err != nil {
		t.Fatal(err)
	}
	backwards("none", "there is no head any more, which was r3")
	// What was read before a repository was opened counts, too.
	kept, err := revisions.Kept(nil, third.Mark())
	if err != nil {
		t.Fatal(err)
	}
	put(backup)
	later := open()
	later.Saw(kept)
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
	// What was swept nobody can judge.
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
