package revisions_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

func in(group, name, body string) *revisions.Item {
	return &revisions.Item{Group: group, Resource: xds.NewResource(xds.Cluster, name, []byte(body))}
}

// says returns the content of a snapshot.
func says(s *revisions.Snapshot) map[string]string {
	all := map[string]string{}
	for it := range s.All {
		text := string(it.Definition)
		if it.Resource != nil {
			text = string(it.Resource.Body)
		}
		all[it.Group+"/"+it.Key().Name] = text
	}
	return all
}

// A held group can be served as it was, after any sweep and commit. An older release refuses a head with
// holds.
func TestHeldGroupIsServedFromItsRevision(t *testing.T) {
	ctx := t.Context()
	e := engine(t)
	repo := revisions.Open(e, revisions.Options{})
	hold := func(n revisions.Number) func(revisions.Number, map[string]revisions.Hold) error {
		return func(_ revisions.Number, holds map[string]revisions.Hold) error {
			holds["edge"] = revisions.Hold{Number: n, Message: "why"}
			return nil
		}
	}
	if err := repo.SetHolds(ctx, hold(1)); !errors.Is(err, revisions.ErrNotFound) {
		t.Fatal(err)
	}
	commit := func(items ...*revisions.Item) {
		t.Helper()
		base, err := repo.Head(ctx)
		if err == nil {
			_, err = repo.Commit(ctx, base, base.To(items), revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	format := func(want string) {
		t.Helper()
		if b, err := e.Get(ctx, "head"); err != nil || !strings.Contains(string(b), `"format":`+want) {
			t.Fatalf("%s, %v, want format %s", b, err, want)
		}
	}
	commit(in("edge", "a", "1"), in("edge", "b", "1"), in("web", "c", "1"))
	format("1")
	if err := repo.SetHolds(ctx, hold(2)); !errors.Is(err, revisions.ErrNotFound) {
		t.Fatal(err)
	}
	if err := repo.SetHolds(ctx, hold(1)); err != nil {
		t.Fatal(err)
	}
	format("2")
	before, _ := repo.Newest(ctx)
	if err := repo.SetHolds(ctx, hold(1)); err != nil { // no change
		t.Fatal(err)
	}
	if now, _ := repo.Newest(ctx); now != before || now.Turns != 1 {
		t.Error(now, before)
	}
	wrong := errors.New("no")
	if err := repo.SetHolds(ctx, func(revisions.Number, map[string]revisions.Hold) error { return wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	commit(in("edge", "a", "2"), in("edge", "d", "2"), in("web", "c", "2"))
	commit(in("edge", "a", "3"), in("edge", "d", "2"), in("web", "c", "3"))
	if _, err := repo.Sweep(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*revisions.Repository{repo, revisions.Open(e, revisions.Options{})} {
		s, err := r.Serving(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if h := s.Holds()["edge"]; h.Number != 1 || h.Message != "why" || s.Held(1) == nil || s.State() != (revisions.State{Number: 3, Turns: 1}) {
			t.Fatalf("%+v, %v", h, s.State())
		}
		was := s.With("edge", s.Held(1), "edge")
		if got, want := says(was), map[string]string{"edge/a": "1", "edge/b": "1", "web/c": "3"}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		both := was.With("edge@next", s, "edge", &revisions.Item{Group: "edge@next", Definition: []byte("lane")})
		if got, want := says(both), map[string]string{"edge/a": "1", "edge/b": "1", "web/c": "3", "edge@next/a": "3", "edge@next/d": "2", "edge@next/": "lane"}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got, want := says(both.With("edge@next", s.Held(1), "edge")), map[string]string{"edge/a": "1", "edge/b": "1", "web/c": "3", "edge@next/a": "1", "edge@next/b": "1"}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		// A commit based on a served snapshot applies to the committed one.
		next, err := r.Commit(ctx, both, revisions.Edit{Set: []*revisions.Item{in("web", "c", "3")}}, revisions.Note{})
		if err != nil || next.Revision.Number != 3 || len(says(next)) != 3 {
			t.Errorf("%v, %v", next, err)
		}
	}
	for s, err := range repo.Watch(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if s.State().Turns == 2 {
			break
		}
		if err := repo.SetHolds(ctx, func(_ revisions.Number, holds map[string]revisions.Hold) error { clear(holds); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	format("1")
	if freed, err := repo.Released(ctx); err != nil || len(freed) != 0 { // SetHolds got no author
		t.Error(freed, err)
	}
	if got, err := repo.Sweep(ctx, 1); err != nil || got.Oldest != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	head, _ := e.Get(ctx, "head")
	lost := strings.NewReplacer(`"format":1`, `"format":2,"holds":{"edge":{"number":1,"revision":"`+strings.Repeat("ab", 32)+`"}}`).Replace(string(head))
	if err := e.CompareAndSwap(ctx, "head", head, []byte(lost)); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Head(ctx); !errors.Is(err, revisions.ErrDamaged) || !strings.Contains(err.Error(), `"edge"`) {
		t.Error(err)
	}
}
