package revsource

import (
	"fmt"
	"testing"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// The revision is that of the change, not of the commit that is served; it is known after the version was replaced.
func TestRevisionOfVersion(t *testing.T) {
	at := t.TempDir()
	writer := revisions.Open(engine(t, at), revisions.Options{})
	edge := definition("edge", "match: {cluster: edge}\n")
	src := New(engine(t, at), store.New(), Options{})
	load := func(items ...*revisions.Item) {
		t.Helper()
		commitAll(t, writer, append(items, edge)...)
		if _, err := src.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	one, two, three := route(t, "edge", "a", "one"), route(t, "edge", "a", "two"), route(t, "edge", "a", "three")
	is := func(group string, it *revisions.Item, want revisions.Number) {
		t.Helper()
		if got := src.RevisionOf(group, xds.Route, "a", it.Resource.Sum); got != want {
			t.Errorf("HEAL-3 %s: %s, want %s", group, got, want)
		}
	}
	is("edge", one, 0) // nothing is served yet
	load(one)
	load(one, route(t, "default", "x", "one"))
	is("edge", one, 1)
	load(two)
	is("edge", one, 1)
	is("edge", two, 3)
	is("default", two, 0)
	commitAll(t, writer, three, edge)
	holdEdge(t, writer, revisions.Hold{Number: 3, Next: &revisions.Next{Number: 4, Rollout: "x", Pick: revisions.Pick{Percent: 50}}})
	if _, err := src.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("edge", two, 3)
	is("edge@next", three, 4)
	is("edge", three, 0)

	var r replaced
	for i := range maxReplaced + 1 {
		r.add(&revisions.Item{Group: fmt.Sprint(i), Resource: one.Resource, Since: 1})
	}
	r.add(edge)
	if len(r.all) != 1 {
		t.Errorf("SAFE-9 %d versions", len(r.all))
	}
}
