package revisions_test

import (
	"context"
	"errors"
	"strconv"
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
