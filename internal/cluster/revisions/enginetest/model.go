package enginetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// A content is the model of a revision: the content of each item.
type content map[revisions.Key]string

func says(it *revisions.Item) string {
	if it.Resource == nil {
		return fmt.Sprintf("%q %q %v", it.Definition, it.Version, it.Secret)
	}
	r := it.Resource
	return fmt.Sprintf("%s %s %q %s %v %v %d", r.Version, r.Sum, r.Aliases, r.TTL, r.OnDemand, it.Secret, len(r.Body))
}

// is fails unless a snapshot has the content of the model.
func (c content) is(t *testing.T, s *revisions.Snapshot) {
	t.Helper()
	if s.Len() != len(c) || s.Revision.Items != len(c) {
		t.Fatalf("%s: %d items, its record has %d, want %d", s.Revision.Number, s.Len(), s.Revision.Items, len(c))
	}
	for it := range s.All {
		if got, want := says(it), c[it.Key()]; got != want {
			t.Fatalf("%s: %s is %.200s, want %.200s", s.Revision.Number, it.Key(), got, want)
		}
		if s.Get(it.Key()) != it {
			t.Fatalf("%s: Get of %s", s.Revision.Number, it.Key())
		}
	}
}

// random returns one of about n items, often with a repeated content.
func random(rng *rand.Rand, n int) *revisions.Item {
	group := []string{"default", "edge", "teams/pay"}[rng.IntN(3)]
	it := &revisions.Item{Group: group, Place: revisions.Place{File: "a.yaml", Line: rng.IntN(100), Col: 3}, Secret: rng.IntN(20) == 0}
	switch rng.IntN(40) {
	case 0:
		it.Definition = fmt.Appendf(nil, "match: {cluster: c%d}", rng.IntN(5))
		return it
	case 1:
		it.Type, it.Version = xds.Route.URL, fmt.Sprint(rng.IntN(5))
		return it
	}
	typ := []*xds.Type{xds.Cluster, xds.Route, xds.TypeOf("type.googleapis.com/of.our.Own")}[rng.IntN(3)]
	size := rng.IntN(300)
	switch rng.IntN(30) {
	case 0:
		size = 3000 + rng.IntN(3000)
	case 1:
		size = 20_000
	}
	body := make([]byte, size)
	for i, k := 0, byte(rng.IntN(4)); i < len(body); i++ {
		body[i] = k
	}
	r := xds.NewResource(typ, fmt.Sprintf("name-%d", rng.IntN(n)), body)
	if rng.IntN(10) == 0 {
		r.TTL, r.OnDemand = time.Duration(rng.IntN(3))*time.Second, true
		r.Aliases = []string{"alias"}
		r.Seal([]string{"", "v1"}[rng.IntN(2)])
	}
	it.Resource = r
	return it
}

// histories: after any commits, restores and sweeps, each kept revision equals the model.
func histories(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	repos := []*revisions.Repository{revisions.Open(open(t), revisions.Options{}), revisions.Open(open(t), revisions.Options{})}
	model := map[revisions.Number]content{0: {}}
	oldest, newest := revisions.Number(1), revisions.Number(0)
	for range 50 {
		repo := repos[rng.IntN(2)]
		base, err := repo.Head(ctx)
		must(t, err)
		if base.Revision.Number != newest {
			t.Fatalf("the newest is %s, want %s", base.Revision.Number, newest)
		}
		next := maps.Clone(model[newest])
		var s *revisions.Snapshot
		switch op := rng.IntN(10); {
		case op == 0 && newest > 0:
			to := oldest + revisions.Number(rng.IntN(int(newest-oldest)+1))
			next = maps.Clone(model[to])
			s, err = repo.Restore(ctx, base, to, revisions.Note{Author: "a"})
		case op == 1:
			keep := 3 + rng.IntN(20)
			swept, err := repo.Sweep(ctx, keep)
			must(t, err)
			if newest > 0 {
				if want := revisions.Number(max(int64(oldest), int64(newest)-int64(keep)+1)); swept.Oldest != want {
					t.Fatalf("kept since %s, want %s", swept.Oldest, want)
				}
				oldest = swept.Oldest
			}
			all(ctx, t, repo, model, oldest, newest)
			continue
		case op == 2:
			var items []*revisions.Item
			for it := range base.All {
				if rng.IntN(3) > 0 {
					items = append(items, it)
				} else {
					delete(next, it.Key())
				}
			}
			s, err = repo.Commit(ctx, base, base.To(items), revisions.Note{})
		default:
			var edit revisions.Edit
			for range 1 << rng.IntN(9) {
				it := random(rng, 500)
				edit.Set = append(edit.Set, it)
				next[it.Key()] = says(it)
			}
			for range rng.IntN(20) {
				k := random(rng, 500).Key()
				if _, set := next[k]; set && model[newest][k] == next[k] {
					edit.Remove = append(edit.Remove, k)
				}
			}
			setting := content{}
			for _, it := range edit.Set {
				setting[it.Key()] = says(it)
			}
			for _, k := range edit.Remove {
				if _, set := setting[k]; !set {
					delete(next, k)
				}
			}
			s, err = repo.Commit(ctx, base, edit, revisions.Note{Author: "me", Message: fmt.Sprint(newest), Source: "git"})
		}
		must(t, err)
		if maps.Equal(next, model[newest]) {
			if s.Revision.Number != newest {
				t.Fatalf("%s though nothing changed", s.Revision.Number)
			}
			continue
		}
		newest++
		if s.Revision.Number != newest {
			t.Fatalf("%s, want %s", s.Revision.Number, newest)
		}
		model[newest] = next
		next.is(t, s)
		differs(t, model, base, s)
	}
	all(ctx, t, repos[0], model, oldest, newest)
	all(ctx, t, revisions.Open(open(t), revisions.Options{}), model, oldest, newest)
}

// differs checks that Since returns exactly the differences.
func differs(t *testing.T, model map[revisions.Number]content, base, s *revisions.Snapshot) {
	t.Helper()
	got := maps.Clone(model[base.Revision.Number])
	s.Since(base, func(was, is *revisions.Item) bool {
		switch {
		case is == nil:
			delete(got, was.Key())
		case was != nil && says(was) == says(is):
			t.Errorf("%s does not differ", is.Key())
		default:
			got[is.Key()] = says(is)
		}
		return true
	})
	if want := model[s.Revision.Number]; !maps.Equal(got, want) {
		t.Fatalf("%s: Since differs from the edit", s.Revision.Number)
	}
}

// all checks the whole history.
func all(ctx context.Context, t *testing.T, repo *revisions.Repository, model map[revisions.Number]content, oldest, newest revisions.Number) {
	t.Helper()
	at := newest
	must(t, repo.History(ctx, func(r revisions.Revision) bool {
		if r.Number != at {
			t.Errorf("%s in the history, want %s", r.Number, at)
		}
		at--
		return true
	}))
	if newest > 0 && at != oldest-1 {
		t.Errorf("the history goes to %s, want %s", at+1, oldest)
	}
	for n := oldest; n <= newest; n++ {
		s, err := repo.At(ctx, n)
		must(t, err)
		model[n].is(t, s)
	}
	if oldest > 1 {
		_, err := repo.At(ctx, oldest-1)
		mustBe(t, err, revisions.ErrNotFound, (oldest - 1).String())
	}
	_, err := repo.At(ctx, newest+1)
	mustBe(t, err, revisions.ErrNotFound, (newest + 1).String())
}
