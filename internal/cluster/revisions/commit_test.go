package revisions_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/xds"
)

func engine(t *testing.T) revisions.Engine {
	t.Helper()
	dir := t.TempDir()
	e, err := file.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // an abandoned write may be running
		for i := 0; os.RemoveAll(dir) != nil && i < 100; i++ {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return e
}

func set(name string, n int) revisions.Edit {
	return revisions.Edit{Set: []*revisions.Item{{Group: "default", Resource: xds.NewResource(xds.Cluster, name, []byte(strconv.Itoa(n)))}}}
}

// lossy is an engine whose answers to swaps get lost.
type lossy struct {
	revisions.Engine
	does bool  // it swaps
	err  error // the error that it returns
	then func()
	puts error
}

func (l *lossy) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	if l.does {
		if err := l.Engine.CompareAndSwap(ctx, key, old, value); err != nil {
			return err
		}
	}
	if l.then != nil {
		l.then()
	}
	return l.err
}

func (l *lossy) PutIfAbsent(ctx context.Context, key string, value []byte) error {
	if l.puts != nil && strings.HasPrefix(key, "pack/") {
		return l.puts
	}
	return l.Engine.PutIfAbsent(ctx, key, value)
}

// The result of a commit is correct: it was made, it was not made, or ErrUnknown.
func TestCommitWithLostAnswer(t *testing.T) {
	ctx := t.Context()
	lost := revisions.ErrUnavailable
	for _, c := range []struct {
		name string
		l    lossy
		more bool // another commit follows
		want error
		is   revisions.Number
	}{
		{name: "done, and the answer lost", l: lossy{does: true, err: lost}, is: 2},
		{name: "done, and others went on", l: lossy{does: true, err: lost}, more: true, is: 3},
		{name: "perhaps under way", l: lossy{err: lost}, want: revisions.ErrUnknown, is: 1},
		{name: "refused", l: lossy{err: revisions.ErrDenied}, want: revisions.ErrDenied, is: 1},
		{name: "no room", l: lossy{err: revisions.ErrFull}, want: revisions.ErrFull, is: 1},
		{name: "no room for packs", l: lossy{puts: revisions.ErrFull}, want: revisions.ErrFull, is: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t)
			repo := revisions.Open(e, revisions.Options{})
			s, err := repo.Head(ctx)
			if err == nil {
				s, err = repo.Commit(ctx, s, set("a", 1), revisions.Note{})
			}
			if err != nil {
				t.Fatal(err)
			}
			c.l.Engine = e
			if c.more {
				c.l.then = func() {
					s, err := repo.Head(ctx)
					if err == nil {
						_, err = repo.Commit(ctx, s, set("b", 1), revisions.Note{})
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
			_, err = revisions.Open(&c.l, revisions.Options{}).Commit(ctx, s, set("a", 2), revisions.Note{})
			if !errors.Is(err, c.want) || !errors.Is(c.want, revisions.ErrUnknown) && errors.Is(err, revisions.ErrUnknown) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if s, err = repo.Head(ctx); err != nil || s.Revision.Number != c.is {
				t.Errorf("%s, %v, want %s", s.Revision.Number, err, c.is)
			}
			if c.want == nil || errors.Is(c.want, revisions.ErrUnknown) {
				return
			}
			n := 0
			for range e.List(ctx, "pack/") {
				n++
			}
			if n != 1 && c.l.err == nil {
				t.Errorf("%d packs are left", n)
			}
		})
	}
}

// A writer keeps the unknown fields of a head. The version of a resource is the hash of its bytes, which
// no release may change: replicas of two releases serve the same clients.
func TestWriterKeepsUnknownFields(t *testing.T) {
	ctx := t.Context()
	e := engine(t)
	repo := revisions.Open(e, revisions.Options{})
	s, err := repo.Head(ctx)
	if err == nil {
		_, err = repo.Commit(ctx, s, set("a", 1), revisions.Note{})
	}
	if err != nil {
		t.Fatal(err)
	}
	head, _ := e.Get(ctx, "head")
	more := []byte(strings.Replace(string(head), "{", `{"later":{"why":"later"},`, 1))
	if err := e.CompareAndSwap(ctx, "head", head, more); err != nil {
		t.Fatal(err)
	}
	if s, err = repo.Head(ctx); err == nil {
		s, err = repo.Commit(ctx, s, set("a", 2), revisions.Note{})
	}
	if err == nil {
		_, err = repo.Sweep(ctx, 2)
	}
	head, _ = e.Get(ctx, "head")
	if err != nil || !strings.Contains(string(head), `"later":{"why":"later"}`) || !strings.Contains(string(head), `"number":2`) {
		t.Errorf("%s, %v", head, err)
	}
	for it := range s.All {
		if got := it.Resource.Version; got != "7a2d798cba5f5ef8" {
			t.Errorf("version %s", got)
		}
	}
}

// A committed resource has its references, as a resource that is read. The next revision and held groups
// share its pages.
func TestCommitPreparesResources(t *testing.T) {
	ctx := t.Context()
	to := []xds.Ref{{Type: xds.Endpoint, Name: "e"}}
	repo := revisions.Open(engine(t), revisions.Options{Prepare: func(r *xds.Resource) { r.Refs = to }})
	edit := set("a", 1)
	none, err := repo.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	one, err := repo.Commit(ctx, none, edit, revisions.Note{})
	if err != nil {
		t.Fatal(err)
	}
	two, err := repo.Commit(ctx, one, set("b", 1), revisions.Note{})
	if err != nil {
		t.Fatal(err)
	}
	head, err := repo.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mine := edit.Set[0].Resource
	for _, s := range []*revisions.Snapshot{one, two, head} {
		r := s.Get(edit.Set[0].Key()).Resource
		if len(r.Refs) != 1 || r.Refs[0] != to[0] || r.Version != mine.Version || r.Sum != mine.Sum {
			t.Errorf("%s: %+v", s.Revision.Number, *r.Stamp)
		}
	}
	if mine.Refs != nil {
		t.Error("the commit changed the caller's resource")
	}
}
