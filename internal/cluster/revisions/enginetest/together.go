package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

func counter(name string, n int) *revisions.Item {
	return &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, name, []byte(strconv.Itoa(n)))}
}

func count(s *revisions.Snapshot, name string) int {
	it := s.Get(counter(name, 0).Key())
	if it == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(it.Resource.Body))
	return n
}

// increment adds one to a shared counter and to a counter of the writer. It tries again on conflicts.
func increment(ctx context.Context, repo *revisions.Repository, writer string, conflicts *atomic.Int64) (revisions.Number, error) {
	for {
		s, err := repo.Head(ctx)
		if err != nil {
			return 0, err
		}
		edit := revisions.Edit{Set: []*revisions.Item{counter("shared", count(s, "shared")+1), counter("twin", count(s, "shared")+1), counter(writer, count(s, writer)+1)}}
		s, err = repo.Commit(ctx, s, edit, revisions.Note{Author: writer})
		if err == nil {
			return s.Revision.Number, nil
		}
		if !errors.Is(err, revisions.ErrConflict) {
			return 0, err
		}
		conflicts.Add(1)
	}
}

// writers: many commits run concurrently. No commit is lost or made twice, and each builds on the one
// before.
func writers(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	const n, each = 4, 10
	var conflicts atomic.Int64
	var wait sync.WaitGroup
	var mu sync.Mutex
	made := map[revisions.Number]string{}
	for w := range n {
		repo := revisions.Open(open(t), revisions.Options{})
		wait.Go(func() {
			for i := range each {
				name := fmt.Sprint("writer-", w)
				at, err := increment(ctx, repo, name, &conflicts)
				if err == nil {
					// This item is changed by no other writer, so its changes never conflict.
					var s *revisions.Snapshot
					s, err = repo.Head(ctx)
					if err == nil {
						s, err = repo.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{counter(name+"-own", i+1)}}, revisions.Note{Author: name})
					}
					if err == nil {
						mu.Lock()
						if made[at] != "" || made[s.Revision.Number] != "" {
							t.Errorf("%s or %s twice", at, s.Revision.Number)
						}
						made[at], made[s.Revision.Number] = name, name
						mu.Unlock()
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	repo := revisions.Open(open(t), revisions.Options{})
	s, err := repo.Head(ctx)
	must(t, err)
	if s.Revision.Number != 2*n*each || count(s, "shared") != n*each || count(s, "twin") != n*each {
		t.Errorf("%s, %d, %d, want %d and %d", s.Revision.Number, count(s, "shared"), count(s, "twin"), 2*n*each, n*each)
	}
	for w := range n {
		if name := fmt.Sprint("writer-", w); count(s, name) != each || count(s, name+"-own") != each {
			t.Errorf("%s: %d, %d, want %d", name, count(s, name), count(s, name+"-own"), each)
		}
	}
	must(t, repo.History(ctx, func(r revisions.Revision) bool {
		if made[r.Number] != r.Author {
			t.Errorf("%s is of %q, want %q", r.Number, r.Author, made[r.Number])
		}
		return true
	}))
	t.Log(conflicts.Load(), "conflicts")
}

// conflicts: a commit does not overwrite the changes of others; changes of other items are not a
// conflict.
func conflicts(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	a, b := revisions.Open(open(t), revisions.Options{}), revisions.Open(open(t), revisions.Options{})
	set := func(name string, n int) revisions.Edit {
		return revisions.Edit{Set: []*revisions.Item{counter(name, n)}}
	}
	zero, err := a.Head(ctx)
	must(t, err)
	one, err := a.Commit(ctx, zero, set("x", 1), revisions.Note{})
	must(t, err)
	two, err := b.Commit(ctx, zero, set("y", 1), revisions.Note{}) // based on the empty snapshot, which has no y, either
	must(t, err)
	if two.Revision.Number != 2 || count(two, "x") != 1 {
		t.Errorf("%s: x is %d", two.Revision.Number, count(two, "x"))
	}
	_, err = a.CommitIf(ctx, one, set("z", 1), revisions.Note{})
	mustBe(t, err, revisions.ErrConflict, "r1 is no longer the newest: r2 is")
	_, err = a.Commit(ctx, one, set("y", 2), revisions.Note{})
	mustBe(t, err, revisions.ErrConflict, `r2 is; both changed CDS "y" in group "default"`)
	_, err = a.Commit(ctx, one, revisions.Edit{Remove: []revisions.Key{counter("y", 0).Key()}}, revisions.Note{})
	mustBe(t, err, revisions.ErrConflict, `"y"`)
	_, err = a.Restore(ctx, one, 1, revisions.Note{})
	mustBe(t, err, revisions.ErrConflict, "r2")
	old, err := a.At(ctx, 1)
	must(t, err)
	three, err := a.Commit(ctx, old, set("z", 1), revisions.Note{})
	must(t, err)
	if three.Revision.Number != 3 || count(three, "y") != 1 {
		t.Errorf("%s: y is %d", three.Revision.Number, count(three, "y"))
	}
	same, err := b.Commit(ctx, two, set("x", 1), revisions.Note{})
	must(t, err)
	if same.Revision.Number > 3 {
		t.Errorf("%s though nothing changed", same.Revision.Number)
	}
}

// sweeps: a sweep during commits and reads removes only unused data.
func sweeps(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n, each = 3, 12
	var conflicts atomic.Int64
	var writing, rest sync.WaitGroup
	done := make(chan struct{})
	for w := range n {
		repo := revisions.Open(open(t), revisions.Options{})
		writing.Go(func() {
			for range each {
				if _, err := increment(ctx, repo, fmt.Sprint("writer-", w), &conflicts); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() { writing.Wait(); close(done) }()
	var swept, saw atomic.Int64
	rest.Go(func() {
		repo := revisions.Open(open(t), revisions.Options{})
		for {
			s, err := repo.Sweep(ctx, 2)
			if err != nil {
				t.Error(err)
				return
			}
			swept.Add(int64(s.Packs))
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	for range 2 {
		repo := revisions.Open(open(t), revisions.Options{Poll: 50 * time.Millisecond})
		rest.Go(func() {
			last := revisions.Number(0)
			for s, err := range repo.Watch(ctx, nil) {
				if err != nil {
					t.Error(err)
					return
				}
				if s.Revision.Number <= last || count(s, "shared") != int(s.Revision.Number) || count(s, "twin") != int(s.Revision.Number) {
					t.Errorf("%s after %s: %d, %d", s.Revision.Number, last, count(s, "shared"), count(s, "twin"))
				}
				saw.Add(1)
				last = s.Revision.Number
				if last == n*each {
					return
				}
			}
			t.Error("the watch has ended at", last)
		})
	}
	rest.Wait()
	repo := revisions.Open(open(t), revisions.Options{})
	_, err := repo.Sweep(ctx, 2)
	must(t, err)
	s, err := repo.At(ctx, n*each-1)
	must(t, err)
	if count(s, "shared") != n*each-1 {
		t.Errorf("%s: %d", s.Revision.Number, count(s, "shared"))
	}
	packs, revs := 0, 0
	e := open(t)
	for _, err := range e.List(ctx, "pack/") {
		must(t, err)
		packs++
	}
	for _, err := range e.List(ctx, "revision/") {
		must(t, err)
		revs++
	}
	if packs > 2 || revs > 2 { // discarded packs are removed, too
		t.Errorf("%d packs and %d revisions of 2 are left", packs, revs)
	}
	t.Log(conflicts.Load(), "conflicts,", swept.Load(), "packs removed meanwhile,", saw.Load(), "revisions seen")
}
