package revisions_test

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// commits commits n revisions.
func commits(t *testing.T, e revisions.Engine, n int) {
	t.Helper()
	repo := revisions.Open(e, revisions.Options{})
	for i := range n {
		base, err := repo.Head(t.Context())
		if err == nil {
			_, err = repo.Commit(t.Context(), base, base.To([]*revisions.Item{in("edge", "a", strconv.Itoa(i))}), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// After the restoration of an older revision, the later ones do not count as another history.
func TestRestoreHeadOfOlderRevision(t *testing.T) {
	t.Run("SAFE-15 three revisions before the last", func(t *testing.T) {
		e := engine(t)
		commits(t, e, 5)
		if err := e.Delete(t.Context(), "head"); err != nil {
			t.Fatal(err)
		}
		if _, err := revisions.Open(e, revisions.Options{}).RestoreHead(t.Context(), "r2", nil); err != nil {
			t.Fatal(err)
		}
		s, err := revisions.Open(e, revisions.Options{}).Head(t.Context())
		if err != nil || s.Revision.Number != 2 {
			t.Errorf("%v, %v", s, err)
		}
	})
}

// keys returns the keys with a prefix.
func keys(t *testing.T, e revisions.Engine, prefix string) (all []string) {
	t.Helper()
	for key, err := range e.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key)
	}
	return all
}

// A head is lost if it is unreadable, or if there are packs. Keys of others prove nothing.
func TestLostHead(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(t *testing.T, e revisions.Engine) error
		want error
	}{
		"SAFE-15 only packs are left": {func(t *testing.T, e revisions.Engine) error {
			return e.Delete(t.Context(), append(keys(t, e, "revision/"), "head")...)
		}, revisions.ErrLostHead},
		"SAFE-15 the head is unreadable": {func(t *testing.T, e revisions.Engine) error {
			return errors.Join(e.Delete(t.Context(), "head"), e.PutIfAbsent(t.Context(), "head", []byte("?")))
		}, revisions.ErrLostHead},
		"SAFE-15 a revision is missing between the head and an unreadable one": {func(t *testing.T, e revisions.Engine) error {
			all := keys(t, e, "revision/")
			return e.PutIfAbsent(t.Context(), strings.Replace(all[len(all)-1], "2-", "4-", 1), []byte("?"))
		}, revisions.ErrLostHead},
		"SAFE-15 the next revision is unreadable": {func(t *testing.T, e revisions.Engine) error {
			all := keys(t, e, "revision/")
			return e.PutIfAbsent(t.Context(), strings.Replace(all[len(all)-1], "2-", "3-", 1), []byte("?"))
		}, nil},
		"SAFE-15 only keys of others are left": {func(t *testing.T, e revisions.Engine) error {
			return errors.Join(e.Delete(t.Context(), keys(t, e, "")...), e.PutIfAbsent(t.Context(), "revision/notes", nil), e.PutIfAbsent(t.Context(), "pack/notes", nil))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(t)
			commits(t, e, 2)
			if err := tt.harm(t, e); err != nil {
				t.Fatal(err)
			}
			if _, err := revisions.Open(e, revisions.Options{}).Head(t.Context()); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// A kept revision that is lost is damage, and not a revision that was never stored.
func TestLostRevisionIsDamage(t *testing.T) {
	for _, prefix := range []string{"revision/0000000000000002-", "pack/"} {
		t.Run("SAFE-15 "+prefix, func(t *testing.T) {
			ctx, e := t.Context(), engine(t)
			commits(t, e, 3)
			repo := revisions.Open(e, revisions.Options{})
			head, err := repo.Head(ctx)
			if err = errors.Join(err, e.Delete(ctx, keys(t, e, prefix)...)); err != nil {
				t.Fatal(err)
			}
			_, at := revisions.Open(e, revisions.Options{}).At(ctx, 2)
			_, restored := repo.Restore(ctx, head, 2, revisions.Note{})
			_, planned := revisions.Open(e, revisions.Options{}).Plan(ctx, 9)
			all := map[string]error{"At": at, "Restore": restored, "Plan": planned}
			if prefix != "pack/" {
				_, all["Revision"] = repo.Revision(ctx, 2)
				all["SetHolds"] = repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
					holds["edge"] = revisions.Hold{Number: 2}
					return nil
				})
			}
			for what, err := range all {
				if !errors.Is(err, revisions.ErrDamaged) || errors.Is(err, revisions.ErrNotFound) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// A restored head keeps the intact revisions only, so a sweep can read all of them. A running server that knows the
// holds before accepts the holds of the head.
func TestRestoredHeadIsUsable(t *testing.T) {
	t.Run("SAFE-15", func(t *testing.T) {
		ctx, e := t.Context(), engine(t)
		commits(t, e, 5)
		server := revisions.Open(e, revisions.Options{})
		if err := server.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
			holds["edge"] = revisions.Hold{Number: 4}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Serving(ctx); err != nil {
			t.Fatal(err)
		}
		lost := []string{"head"}
		for _, key := range keys(t, e, "revision/") {
			if strings.Contains(key, "0000000002-") {
				lost = append(lost, key)
			}
		}
		if err := e.Delete(ctx, lost...); err != nil || len(lost) != 2 {
			t.Fatal(lost, err)
		}
		if _, err := revisions.Open(e, revisions.Options{}).RestoreHead(ctx, "r5", map[string]revisions.Hold{"edge": {Number: 5}}); err != nil {
			t.Fatal(err)
		}
		if s, err := server.Serving(ctx); err != nil || s.Holds()["edge"].Number != 5 {
			t.Error("the server:", err)
		}
		if swept, err := server.Sweep(ctx, 9); err != nil || swept.Oldest != 3 {
			t.Errorf("%+v, %v", swept, err)
		}
	})
}

// A lateList is an engine to which others commit before it lists revisions.
type lateList struct {
	revisions.Engine
	then func()
}

func (l *lateList) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if then := l.then; then != nil && prefix == "revision/" {
		l.then = nil
		then()
	}
	return l.Engine.List(ctx, prefix)
}

// Commits between the reads of the head and of the list are not another history.
func TestCommitsBeforeListAreNoOtherHistory(t *testing.T) {
	t.Run("SAFE-15", func(t *testing.T) {
		e := engine(t)
		commits(t, e, 1)
		late := &lateList{e, func() { commits(t, e, 4) }} // the first one is equal
		if s, err := revisions.Open(late, revisions.Options{}).Head(t.Context()); err != nil || late.then != nil {
			t.Errorf("%v, %v", s, err)
		}
	})
}

// lateHead is an engine without a head for some reads, as while the first commit is stored.
type lateHead struct {
	revisions.Engine
	reads int
}

func (l *lateHead) Get(ctx context.Context, key string) ([]byte, error) {
	if key == "head" && l.reads > 0 {
		l.reads--
		return nil, revisions.ErrNotFound
	}
	return l.Engine.Get(ctx, key)
}

// A first commit during a read of the head is not damage.
func TestHeadDuringFirstCommit(t *testing.T) {
	for reads, want := range map[int]error{1: nil, 2: revisions.ErrLostHead} {
		t.Run("SAFE-15 reads without a head: "+strconv.Itoa(reads), func(t *testing.T) {
			e := engine(t)
			commits(t, e, 1)
			s, err := revisions.Open(&lateHead{e, reads}, revisions.Options{}).Head(t.Context())
			if !errors.Is(err, want) || want == nil && s.Revision.Number != 1 {
				t.Errorf("%v, %v, want %v", s, err, want)
			}
		})
	}
}

// Evidence about revisions that are no longer kept does not stop later sweeps.
func TestSweepIgnoresEvidenceOfSweptRevisions(t *testing.T) {
	t.Run("HEAL-3 a server accepted a swept revision", func(t *testing.T) {
		e := engine(t)
		commits(t, e, 8)
		repo := revisions.Open(e, revisions.Options{})
		if _, err := repo.Sweep(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		for oldest, want := range map[string]int{"2": 3, "6": 1} {
			was, _ := e.Get(t.Context(), revisions.AcceptedKey)
			if err := e.CompareAndSwap(t.Context(), revisions.AcceptedKey, was, []byte(`{"servers":{"s":{"evidence":{"oldest":`+oldest+`}}}}`)); err != nil {
				t.Fatal(err)
			}
			if due, err := repo.Due(t.Context(), 1); err != nil || due != want {
				t.Errorf("oldest %s: %d due, want %d: %v", oldest, due, want, err)
			}
		}
	})
}
