package revisions_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// A deaf engine loses the answer to a write of the head, which was done or not.
type deaf struct {
	revisions.Engine
	on, done bool
}

func (d *deaf) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	if !d.on {
		return d.Engine.CompareAndSwap(ctx, key, old, value)
	}
	if d.done {
		if err := d.Engine.CompareAndSwap(ctx, key, old, value); err != nil {
			return err
		}
	}
	return revisions.ErrUnavailable
}

// SetHolds is atomic with concurrent changes and lost answers. It rejects holds that exceed a limit.
func TestSetHoldsIsAtomic(t *testing.T) {
	ctx := t.Context()
	e := &deaf{Engine: engine(t)}
	repo := revisions.Open(e, revisions.Options{})
	for _, body := range []string{"1", "2", "3"} {
		base, err := repo.Head(ctx)
		if err == nil {
			_, err = repo.Commit(ctx, base, base.To([]*revisions.Item{in("edge", "a", body)}), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(group string, h revisions.Hold) error {
		return repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error { holds[group] = h; return nil })
	}
	tries := 0
	if err := repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		if tries++; tries == 1 {
			if err := set("web", revisions.Hold{Number: 1}); err != nil {
				t.Fatal(err)
			}
		}
		holds["edge"] = revisions.Hold{Number: 1, Next: &revisions.Next{Number: 2, Rollout: "x"}}
		return nil
	}); err != nil || tries != 2 {
		t.Error(tries, err)
	}
	// Another number is another revision.
	if err := repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		h := holds["edge"]
		next := *h.Next
		next.Number, h.Next = 3, &next
		holds["edge"] = h
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s, err := repo.Serving(ctx)
	if err != nil || len(s.Holds()) != 2 || says(s.Held(1))["edge/a"] != "1" || s.Held(3) == nil || says(s.Held(3))["edge/a"] != "3" {
		t.Fatal(s.Holds(), err)
	}
	e.on = true
	before, _ := e.Get(ctx, "head")
	if err := set("a", revisions.Hold{Number: 1}); !errors.Is(err, revisions.ErrUnknown) {
		t.Error(err)
	}
	if now, _ := e.Get(ctx, "head"); !bytes.Equal(now, before) {
		t.Error("the head has changed")
	}
	e.done = true
	if err := set("a", revisions.Hold{Number: 1}); err != nil {
		t.Error(err)
	}
	e.on = false
	if err := set("b", revisions.Hold{Number: 1, Message: strings.Repeat("x", 501)}); err == nil || !strings.Contains(err.Error(), "at most 500") {
		t.Error(err)
	}
	if err := repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		for i := range 501 {
			holds[fmt.Sprint(i)] = revisions.Hold{Number: 1}
		}
		return nil
	}); err == nil || !strings.Contains(err.Error(), "at most 500") {
		t.Error(err)
	}
	if holds, err := repo.Holds(ctx); err != nil || len(holds) != 3 {
		t.Error(len(holds), err)
	}
}
