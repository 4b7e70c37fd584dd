package revsource

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// commitAll replaces all items.
func commitAll(t *testing.T, writer *revisions.Repository, items ...*revisions.Item) {
	t.Helper()
	base, err := writer.Head(t.Context())
	if err == nil {
		_, err = writer.Commit(t.Context(), base, base.To(items), revisions.Note{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// holdEdge holds the group edge; at revision 0 it releases it.
func holdEdge(t *testing.T, writer *revisions.Repository, h revisions.Hold) {
	t.Helper()
	if err := writer.SetHolds(t.Context(), func(_ revisions.Number, holds map[string]revisions.Hold) error {
		if holds["edge"] = h; h.Number == 0 {
			delete(holds, "edge")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A held group is served as it was, after any commit, with equal versions, also by a server that starts
// later. Newest waits for holds that have come or gone.
func TestHeldGroup(t *testing.T) {
	at := t.TempDir()
	writer := revisions.Open(engine(t, at), revisions.Options{})
	edge := definition("edge", "match: {cluster: edge}\n")
	commit := func(items ...*revisions.Item) { t.Helper(); commitAll(t, writer, append(items, edge)...) }
	hold := func(n revisions.Number) { t.Helper(); holdEdge(t, writer, revisions.Hold{Number: n}) }
	commit(route(t, "edge", "a", "one"), route(t, "default", "x", "one"))
	st := store.New()
	src := New(&silent{Engine: engine(t, at)}, st, Options{Poll: time.Hour})
	if _, err := src.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { src.Run(ctx) })
	defer running.Wait()
	defer stop()
	serves := func(group string, want ...string) string {
		t.Helper()
		if err := src.Newest(ctx, true); err != nil {
			t.Fatal(err)
		}
		late := store.New()
		if _, err := New(engine(t, at), late, Options{}).Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, b := seen(st, group), seen(late, group); !slices.Equal(a, want) || !slices.Equal(b, want) {
			t.Errorf("%s: %q and %q, want %q", group, a, b, want)
		}
		a, b := st.Snapshot().View(group).Table(xds.Route).Version(), late.Snapshot().View(group).Table(xds.Route).Version()
		if a != b {
			t.Errorf("versions %s and %s", a, b)
		}
		return a
	}
	before := serves("edge", "a")
	hold(1)
	commit(route(t, "edge", "a", "two"), route(t, "edge", "b", "two"), route(t, "default", "y", "one"))
	if v := serves("edge", "a"); v != before {
		t.Errorf("version %s, was %s", v, before)
	}
	serves("default", "y")
	if h := src.Holds(); h["edge"].Number != 1 || src.Served().Number != 2 {
		t.Errorf("%v of %s", h, src.Served().Number)
	}
	hold(0)
	serves("edge", "a", "b")
	hold(1)
	if v := serves("edge", "a"); v != before {
		t.Errorf("version %s, was %s", v, before)
	}
	// The earlier revision is served with its rule.
	base, err := writer.Head(t.Context())
	if err == nil {
		_, err = writer.Commit(t.Context(), base, base.To([]*revisions.Item{route(t, "default", "x", "one")}), revisions.Note{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if v := serves("edge", "a"); v != before {
		t.Errorf("version %s, was %s", v, before)
	}
	hold(9 - 6) // r3
	if err := src.Newest(ctx, true); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen(st, "edge"), " "); got != "" {
		t.Error(got)
	}
}

// During a rollout a node gets one revision or the other, each with the same versions on all servers;
// other nodes get nothing new. The copy on disk is the same.
func TestRolloutServesTwoRevisions(t *testing.T) {
	at := t.TempDir()
	writer := revisions.Open(engine(t, at), revisions.Options{})
	edge := definition("edge", "match: {cluster: edge}\ninclude: [default]\n")
	commit := func(items ...*revisions.Item) { t.Helper(); commitAll(t, writer, append(items, edge)...) }
	commit(route(t, "edge", "a", "one"), route(t, "default", "x", "one"))
	st := store.New()
	var items []*revisions.Item
	src := New(engine(t, at), st, Options{Review: func(next *revisions.Snapshot) error {
		items = nil
		for it := range next.All {
			items = append(items, it)
		}
		return nil
	}})
	sees := func(st *store.Store, node string, want ...string) {
		t.Helper()
		w, err := st.Watch(t.Context(), &xds.Node{ID: node, Cluster: "edge"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		var got []string
		for r := range w.View().Table(xds.Route).All() {
			got = append(got, r.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", node, got, want)
		}
	}
	hold := func(pick revisions.Pick) {
		t.Helper()
		holdEdge(t, writer, revisions.Hold{Number: 1, Next: &revisions.Next{Number: 2, Rollout: "x", Pick: pick}})
		if _, err := src.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	commit(route(t, "edge", "a", "two"), route(t, "edge", "b", "two"), route(t, "default", "x", "one"))
	hold(revisions.Pick{})
	sees(st, "n1", "a", "x")
	hold(revisions.Pick{Percent: 100})
	sees(st, "n1", "a", "b", "x")
	disk := store.New()
	if err := New(engine(t, t.TempDir()), disk, Options{}).Restore(items, ""); err != nil {
		t.Fatal(err)
	}
	sees(disk, "n1", "a", "b", "x")
	if a, b := st.Snapshot().View("edge@next").Table(xds.Route).Version(), disk.Snapshot().View("edge@next").Table(xds.Route).Version(); a != b {
		t.Error(a, b)
	}
	hold(revisions.Pick{})
	sees(st, "n1", "a", "x")
}

// A rejected commit prevents neither the end of a rollout nor a freeze.
func TestRejectedCommitDoesNotPreventHolds(t *testing.T) {
	at := t.TempDir()
	writer := revisions.Open(engine(t, at), revisions.Options{})
	st := store.New()
	src := New(engine(t, at), st, Options{})
	edge := definition("edge", "match: {cluster: edge}\n")
	commit := func(items ...*revisions.Item) { t.Helper(); commitAll(t, writer, append(items, edge)...) }
	hold := func(h revisions.Hold) { t.Helper(); holdEdge(t, writer, h) }
	serves := func(rejected bool, n revisions.Number, turns int, groups ...string) {
		t.Helper()
		_, err := src.Load(t.Context())
		var r *RejectedError
		if is := errors.As(err, &r); is != rejected || err != nil && !is {
			t.Fatal(err)
		}
		if got := src.State(); got != (revisions.State{Number: n, Turns: turns}) {
			t.Errorf("%+v", got)
		}
		if got := st.Snapshot().Groups(); !slices.Equal(got, groups) {
			t.Errorf("groups %q, want %q", got, groups)
		}
	}
	commit(route(t, "edge", "a", "one"))
	commit(route(t, "edge", "a", "two"))
	hold(revisions.Hold{Number: 1, Next: &revisions.Next{Number: 2, Rollout: "x", Pick: revisions.Pick{Percent: 100}}})
	serves(false, 2, 1, "edge", "edge@next")
	commit(route(t, "edge", "a", "two"), definition("web", "mtach: {}\n")) // it is invalid
	serves(true, 2, 1, "edge", "edge@next")
	hold(revisions.Hold{Number: 1})
	serves(true, 2, 2, "edge")
	if r := st.Snapshot().View("edge").Table(xds.Route).Lookup("a"); len(r.Refs) != 1 || r.Refs[0].Name != "one" {
		t.Errorf("%v", r.Refs)
	}
	commit(route(t, "edge", "a", "three"))
	serves(false, 4, 2, "edge")
}
