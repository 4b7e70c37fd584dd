package revisions_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// An earlier version stored xdstp names that are not canonical. Their items are found by the canonical name, and
// the next commit stores that one.
func TestStoredNamesBecomeCanonical(t *testing.T) {
	ctx := t.Context()
	e := engine(t)
	open := func() *revisions.Repository { return revisions.Open(e, revisions.Options{}) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	item := func(since revisions.Number, name, body string, aliases ...string) *revisions.Item {
		r := xds.NewResource(xds.Cluster, name, []byte(body))
		r.Aliases = aliases
		r.Seal("")
		return &revisions.Item{Group: "g", Resource: r, Since: since}
	}
	large := strings.Repeat("large ", 2000)
	items := []*revisions.Item{
		item(1, "xdstp://a/t/v1~x", "tilde", "xdstp://a/t/alias~"),
		item(1, "xdstp://a/t/q%3Ar", "colon"),
		item(1, "xdstp://a/t/é[1]", large),
		item(1, "xdstp://a/t/ctx?b=1&a=%7e", "context"),
		// Pairs of equal names.
		item(1, "xdstp://a/t/new~", "old"), item(2, "xdstp://a/t/new%7E", "new"),
		item(2, "xdstp://a/t/newer%7e", "new"), item(1, "xdstp://a/t/newer%7E", "old"),
		item(1, "xdstp://a/t/same~", "other"), item(1, "xdstp://a/t/same%7E", "canonical"),
		item(1, "xdstp://a/t/three~", "1"), item(3, "xdstp://a/t/three%7e", "3"), item(2, "xdstp://a/t/t%68ree~", "2"),
	}
	want := map[string]string{
		"xdstp://a/t/v1%7Ex": "tilde", "xdstp://a/t/q:r": "colon", "xdstp://a/t/%C3%A9%5B1%5D": large, "xdstp://a/t/ctx?a=%7E&b=1": "context",
		"xdstp://a/t/new%7E": "new", "xdstp://a/t/newer%7E": "new", "xdstp://a/t/same%7E": "canonical", "xdstp://a/t/three%7E": "3",
	}
	for i := range 300 { // several pages
		name := fmt.Sprint("plain", i)
		items, want[name] = append(items, item(1, name, name)), name
	}
	check := func(s *revisions.Snapshot) {
		t.Helper()
		n := 0
		for it := range s.All {
			n++
			if got := string(it.Resource.Body); got != want[it.Resource.Name] {
				t.Errorf("%s is %.20q, want %.20q", it.Resource.Name, got, want[it.Resource.Name])
			}
			if err := it.Resource.Check(); err != nil {
				t.Error(err)
			}
		}
		if n != len(want) || s.Len() != n {
			t.Errorf("%d items, Len %d, want %d", n, s.Len(), len(want))
		}
		for name := range want {
			if s.Get(revisions.Key{Group: "g", Type: xds.Cluster.URL, Name: name}) == nil {
				t.Errorf("%s is not found", name)
			}
		}
	}

	repo := open()
	base, err := repo.Head(ctx)
	must(err)
	must(revisions.CommitAsStored(ctx, repo, base, items...))
	repo = open()
	one, err := repo.Head(ctx)
	must(err)
	t.Run("NAME-2 read", func(*testing.T) { check(one) })
	t.Run("NAME-2 equal content is not a change", func(t *testing.T) {
		s, err := repo.Commit(ctx, one, revisions.Edit{Set: []*revisions.Item{item(0, "xdstp://a/t/q:r", "colon")}}, revisions.Note{})
		if err != nil || s.Revision.Number != 1 {
			t.Fatal(s, err)
		}
	})
	two, err := repo.Commit(ctx, one, revisions.Edit{Set: []*revisions.Item{item(0, "xdstp://a/t/v1%7Ex", "changed")}}, revisions.Note{})
	must(err)
	before := want["xdstp://a/t/v1%7Ex"]
	want["xdstp://a/t/v1%7Ex"] = "changed"
	t.Run("NAME-2 changed by the canonical name", func(*testing.T) { check(two) })
	t.Run("NAME-2 read again", func(*testing.T) {
		s, err := open().Head(ctx)
		must(err)
		check(s)
	})
	t.Run("NAME-2 one change between the revisions", func(t *testing.T) {
		var changed []string
		two.Since(one, func(_, is *revisions.Item) bool { changed = append(changed, is.Resource.Name); return true })
		if !slices.Equal(changed, []string{"xdstp://a/t/v1%7Ex"}) {
			t.Error(changed)
		}
	})
	_, err = repo.Restore(ctx, two, 1, revisions.Note{})
	must(err)
	want["xdstp://a/t/v1%7Ex"] = before
	t.Run("NAME-2 restored, and the later revision is swept", func(*testing.T) {
		_, err := open().Sweep(ctx, 1)
		must(err)
		s, err := open().Head(ctx)
		must(err)
		check(s)
	})
}
