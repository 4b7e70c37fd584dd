package revisions_test

import (
	"strconv"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// A sweep removes exactly the revisions and packs that its plan counts. Due needs only the head; a
// plan writes nothing.
func TestSweepRemovesWhatItsPlanCounts(t *testing.T) {
	ctx := t.Context()
	e := engine(t)
	repo := revisions.Open(e, revisions.Options{})
	stored := func() (keys int, size int64) {
		for key, err := range e.List(ctx, "") {
			b, e := e.Get(ctx, key)
			if err != nil || e != nil {
				t.Fatal(err, e)
			}
			if key != "head" {
				keys, size = keys+1, size+int64(len(b))
			}
		}
		return keys, size
	}
	if got, err := repo.Plan(ctx, 2); err != nil || got.Revisions != 0 {
		t.Fatal(got, err)
	}
	for i := range 8 {
		base, err := repo.Head(ctx)
		if err == nil {
			_, err = repo.Commit(ctx, base, base.To([]*revisions.Item{in("edge", "a", strconv.Itoa(i))}), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		holds["edge"] = revisions.Hold{Number: 5}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	head, _ := e.Get(ctx, "head")
	keys, size := stored()
	plan, err := repo.Plan(ctx, 2)
	if err != nil || plan.Oldest != 5 || plan.Held != 5 || plan.Revisions != 4 || plan.Bytes == 0 {
		t.Fatalf("%+v, %v", plan, err)
	}
	if due, err := repo.Due(ctx, 2); err != nil || due != 4 {
		t.Error(due, err)
	}
	if k, s := stored(); k != keys || s != size {
		t.Errorf("%d keys of %d bytes, were %d of %d", k, s, keys, size)
	}
	if now, _ := e.Get(ctx, "head"); string(now) != string(head) {
		t.Errorf("the head is %s, was %s", now, head)
	}
	swept, err := repo.Sweep(ctx, 2)
	if err != nil || swept.Oldest != plan.Oldest || swept.Held != 5 || swept.Revisions != plan.Revisions || swept.Packs != plan.Packs || swept.Bytes != plan.Bytes {
		t.Errorf("%+v, %v, want %+v", swept, err, plan)
	}
	if k, s := stored(); keys-k != swept.Revisions+swept.Packs || size-s != swept.Bytes {
		t.Errorf("%d keys of %d bytes, before %d of %d; the sweep reports %+v", k, s, keys, size, swept)
	}
	if due, err := repo.Due(ctx, 2); err != nil || due != 0 {
		t.Error(due, err)
	}
}

// A sweep removes revisions and packs only. So a build that does not know the key of another one keeps it: the
// accepted versions (HEAL-3) survive a sweep of a server of any build.
func TestSweepKeepsKeysOfOtherBuilds(t *testing.T) {
	ctx := t.Context()
	e := engine(t)
	for _, key := range []string{"accepted", "of-a-newer-build"} {
		if err := e.CompareAndSwap(ctx, key, nil, []byte("kept")); err != nil {
			t.Fatal(err)
		}
	}
	repo := revisions.Open(e, revisions.Options{})
	for i := range 4 {
		base, err := repo.Head(ctx)
		if err == nil {
			_, err = repo.Commit(ctx, base, base.To([]*revisions.Item{in("edge", "a", strconv.Itoa(i))}), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := repo.Sweep(ctx, 1); err != nil || got.Revisions != 3 || len(got.Foreign) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, key := range []string{"accepted", "of-a-newer-build"} {
		if b, err := e.Get(ctx, key); err != nil || string(b) != "kept" {
			t.Errorf("HEAL-3 %s: %q, %v", key, b, err)
		}
	}
}
