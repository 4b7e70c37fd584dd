package revisions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// The last 20 releases are remembered until the group is held again; a commit keeps them.
func TestReleasedGroupsAreRemembered(t *testing.T) {
	ctx := t.Context()
	repo := revisions.Open(engine(t), revisions.Options{})
	commit := func(name string) {
		t.Helper()
		base, err := repo.Head(ctx)
		if err == nil {
			_, err = repo.Commit(ctx, base, revisions.Edit{Set: []*revisions.Item{in("edge", name, "1")}}, revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(n revisions.Number, at time.Time, groups ...string) error {
		return repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
			for _, g := range groups {
				holds[g] = revisions.Hold{Number: n, Author: "ana", Message: "why " + g, Time: at}
			}
			return nil
		})
	}
	check := func(err error, want int) map[string]revisions.Hold {
		t.Helper()
		freed, e := repo.Released(ctx)
		holds, e2 := repo.Holds(ctx)
		if err != nil || e != nil || e2 != nil || len(freed) != want || len(holds) > 0 && holds["edge"].Number != 1 {
			t.Fatal(err, e, e2, freed, holds)
		}
		return freed
	}
	commit("a")
	at := time.Unix(1000, 0)
	check(set(0, at, "edge"), 0) // it is not held
	check(set(1, at, "edge"), 0)
	if f := check(set(0, at, "edge"), 1)["edge"]; f.Number != 1 || f.Author != "ana" || f.Message != "why edge" || !f.Time.Equal(at) {
		t.Error(f)
	}
	commit("b")
	check(nil, 1)
	check(set(1, at, "edge"), 0)
	check(set(0, at, "edge"), 1)
	for i := range 25 {
		g := fmt.Sprint("g", i)
		if err := set(1, at, g); err != nil {
			t.Fatal(err)
		}
		if err := set(0, at.Add(time.Duration(i)*time.Second), g); err != nil {
			t.Fatal(err)
		}
	}
	if freed := check(nil, 20); freed["g24"].Number != 1 || freed["g4"].Number != 0 {
		t.Error(freed)
	}
	if err := repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error {
		holds["edge"] = revisions.Hold{Number: 1, Author: strings.Repeat("x", 501)}
		return nil
	}); err == nil || !strings.Contains(err.Error(), "an author of 501 bytes") {
		t.Error(err)
	}
}
