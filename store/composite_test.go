package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// selects returns a selector by node id.
func selects(groups map[string][]string) Selector {
	return func(_ context.Context, n *xds.Node) ([]string, error) {
		if g := groups[n.ID]; g != nil {
			return g, nil
		}
		return nil, errors.New("nobody knows " + n.ID)
	}
}

// seenBy returns the resources of a type that a watch sees: name and body, in order.
func seenBy(t testing.TB, w *Watch, typ *xds.Type) (all []string) {
	view, _ := watchtest.Next(t, w)
	if view == nil {
		return []string{"unknown"}
	}
	for r := range view.Table(typ).All() {
		all = append(all, r.Name+"="+string(r.Body))
	}
	slices.Sort(all)
	return all
}

func TestComposite(t *testing.T) {
	groups := map[string][]string{"both": {"edge", DefaultGroup}, "other": {DefaultGroup, "edge", DefaultGroup, ""}}
	start := func(t *testing.T) *Store {
		st := New(WithGroups(selects(groups)))
		update(t, st, func(tx *Tx) {
			tx.Set(of(xds.Cluster, res("a", "default"), res("b", "default"))...)
			tx.Set(of(xds.Endpoint, res("a", "default"))...)
			tx.Version(xds.Endpoint, "said")
			tx.Group("edge").Set(of(xds.Cluster, res("b", "edge"), res("c", "edge"))...)
		})
		return st
	}
	for _, tt := range []struct {
		name string
		node string
		then func(*Tx)
		want []string
	}{
		{"SUB-4 the first group that has a name wins", "both", func(*Tx) {}, []string{"a=default", "b=edge", "c=edge"}},
		{"SUB-4 in the order of the list", "other", func(*Tx) {}, []string{"a=default", "b=default", "c=edge"}},
		{"SUB-4 the hiding resource is removed", "both", func(tx *Tx) { tx.Group("edge").Delete(xds.Cluster, "b") }, []string{"a=default", "b=default", "c=edge"}},
		{"SUB-4 the hidden resource changes", "both", func(tx *Tx) { tx.Set(of(xds.Cluster, res("b", "2"))...) }, []string{"a=default", "b=edge", "c=edge"}},
		{"SUB-4 all of a group goes", "both", func(tx *Tx) { tx.Group("edge").Clear() }, []string{"a=default", "b=default"}},
		{"SUB-4 an alias hides a name", "both", func(tx *Tx) { tx.Group("edge").Set(of(xds.Cluster, res("x", "edge", "a"))...) }, []string{"b=edge", "c=edge", "x=edge"}},
		{"SUB-4 a name hides a resource that has it as an alias", "both", func(tx *Tx) { tx.Set(of(xds.Cluster, res("d", "default", "c"))...) }, []string{"a=default", "b=edge", "c=edge"}},
		{"SUB-4 an alias hides an alias", "both", func(tx *Tx) {
			tx.Set(of(xds.Cluster, res("d", "default", "z"))...)
			tx.Group("edge").Set(of(xds.Cluster, res("e", "edge", "z"))...)
		}, []string{"a=default", "b=edge", "c=edge", "e=edge"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := start(t)
			before := watchtest.Open(t, st, &xds.Node{ID: tt.node})
			defer before.Close()
			seenBy(t, before, xds.Cluster)
			update(t, st, tt.then)
			after := watchtest.Open(t, st, &xds.Node{ID: tt.node})
			defer after.Close()
			for who, w := range map[string]*Watch{"a watch of before": before, "a watch of after": after} {
				if got := seenBy(t, w, xds.Cluster); !slices.Equal(got, tt.want) {
					t.Errorf("%s sees %v, want %v", who, got, tt.want)
				}
			}
			if a, b := before.View().Table(xds.Cluster), after.View().Table(xds.Cluster); a.Version() != b.Version() {
				t.Errorf("version %s, and %s for who comes later", a.Version(), b.Version())
			}
		})
	}

	t.Run("equal lists share one view, which ends with its last watch", func(t *testing.T) {
		st := start(t)
		a, b := watchtest.Open(t, st, &xds.Node{ID: "both"}), watchtest.Open(t, st, &xds.Node{ID: "both"})
		if a.group != b.group || len(st.composites) != 1 {
			t.Errorf("%d composites", len(st.composites))
		}
		if e := a.View().Table(xds.Endpoint); e != st.Snapshot().View(DefaultGroup)[xds.Endpoint.URL] || e.Version() != "said" {
			t.Error("a type that one group alone has is not shared with it")
		}
		if got := a.Groups(); !slices.Equal(got, []string{"edge", DefaultGroup}) || a.Group() != "edge" {
			t.Errorf("groups %v", got)
		}
		other := watchtest.Open(t, st, &xds.Node{ID: "other"})
		if got := other.Groups(); !slices.Equal(got, []string{DefaultGroup, "edge"}) {
			t.Errorf("of a list that has a group three times: %v", got)
		}
		other.Close()
		a.Close()
		b.Close()
		update(t, st, func(tx *Tx) { tx.Clear(); tx.Group("edge").Clear() })
		if len(st.composites) != 0 || st.groups["edge"].watches != 0 || len(st.groups["edge"].composites) != 0 {
			t.Errorf("%d composites are left, edge has %+v", len(st.composites), st.groups["edge"])
		}
	})

	t.Run("a view does not change after it was taken", func(t *testing.T) {
		st := start(t)
		w := watchtest.Open(t, st, &xds.Node{ID: "both"})
		defer w.Close()
		view := w.View()
		was := view.Table(xds.Cluster)
		update(t, st, func(tx *Tx) {
			tx.Set(of(xds.Cluster, res("a", "2"))...)
			tx.Group("edge").Set(of(xds.Secret, res("s", "1"))...)
		})
		if view.Table(xds.Cluster) != was || view.Table(xds.Secret).Len() != 0 {
			t.Error("a commit changes a view that is published")
		}
	})
	t.Run("recently removed resources of each group are found", func(t *testing.T) {
		st := start(t)
		w := watchtest.Open(t, st, &xds.Node{ID: "both"})
		defer w.Close()
		update(t, st, func(tx *Tx) { tx.Delete(xds.Cluster, "a"); tx.Group("edge").Delete(xds.Cluster, "c") })
		table := w.View().Table(xds.Cluster)
		for _, name := range []string{"a", "c"} {
			if table.Lookup(name) != nil || table.Departed(name) == nil {
				t.Errorf("SAFE-9 %s: %v, departed %v", name, table.Lookup(name), table.Departed(name))
			}
		}
		if len(w.Recent(xds.Cluster)) != 1 {
			t.Errorf("%d recent tables", len(w.Recent(xds.Cluster)))
		}
	})

	t.Run("nothing is known as long as one group is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := New(WithGroups(selects(groups)))
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "default"))...) })
			w := watchtest.Open(t, st, &xds.Node{ID: "both"})
			defer w.Close()
			if got := seenBy(t, w, xds.Cluster); got[0] != "unknown" {
				t.Fatal(got)
			}
			w.Interested(xds.Cluster, true, nil, nil)
			update(t, st, func(tx *Tx) { tx.Group("edge").MarkKnown() })
			if !rang(w) {
				t.Error("nothing rings when it is known")
			}
			if got := seenBy(t, w, xds.Cluster); !slices.Equal(got, []string{"a=default"}) {
				t.Error(got)
			}
			update(t, st, func(tx *Tx) { tx.Group("edge").MarkUnknown(xds.Endpoint) })
			if u, is := w.View().(xds.Undecided); !is || !u.Undecided(xds.Endpoint, "x") || u.Undecided(xds.Cluster, "x") {
				t.Error("what one group does not know is decided")
			}
		})
	})
}

// A commit publishes the selection of groups together with its content.
func TestSelectAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New(WithGroups(selects(map[string][]string{"n": {"canary", DefaultGroup}, "still": {DefaultGroup}})))
		update(t, st, func(tx *Tx) {
			tx.Set(of(xds.Cluster, res("a", "default"))...)
			tx.Group("canary").Set(of(xds.Cluster, res("new", "canary"))...)
		})
		w, still := watchtest.Open(t, st, &xds.Node{ID: "n"}), watchtest.Open(t, st, &xds.Node{ID: "still"})
		defer w.Close()
		defer still.Close()
		for _, w := range []*Watch{w, still} {
			watchtest.Next(t, w)
			w.Interested(xds.Cluster, false, []string{"a", "new"}, nil)
		}
		before := w.View().Table(xds.Cluster)
		c := update(t, st, func(tx *Tx) {
			tx.Select(selects(map[string][]string{"n": {DefaultGroup}, "still": {DefaultGroup}}))
			tx.Group("canary").Delete(xds.Cluster, "new") // a node that still sees the group would lose this resource
		})
		if c.Seq != 2 || !rang(w) || !rang(still) {
			t.Errorf("commit %d; a choice does not ring", c.Seq)
		}
		view, touched := watchtest.Next(t, w)
		if touched != nil || view.Table(xds.Cluster).Len() != 1 || w.Group() != DefaultGroup {
			t.Errorf("sees %v, touched %v", w.Groups(), touched)
		}
		if !slices.Contains(w.Recent(xds.Cluster), before) {
			t.Error("SAFE-9 what the client has from the other groups is not remembered")
		}
		if _, touched := watchtest.Next(t, still); touched == nil || len(touched) != 0 {
			t.Errorf("who sees the same as before is told that %v is touched", touched)
		}
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "2"))...) })
		if !rang(w) {
			t.Error("its interests have not moved with it")
		}
		if st.groups["canary"] != nil || len(st.composites) != 0 {
			t.Error("what nobody sees any more stays")
		}

		update(t, st, func(tx *Tx) { tx.Select(selects(map[string][]string{"still": {DefaultGroup}})) })
		if !rang(w) {
			t.Error("the stream of a node that is now refused gets no signal")
		}
		if _, _, err := w.Next(); err == nil || err.Error() != "nobody knows n" {
			t.Errorf("error %v of a node that is refused by now", err)
		}
		if _, err := st.Watch(t.Context(), &xds.Node{ID: "n"}); err == nil {
			t.Error("a refused node has a watch")
		}
		if _, err := st.Update(func(tx *Tx) error { tx.Select(nil); return nil }); err == nil {
			t.Error("a nil selector is taken")
		}
	})
}

// A name from Notify signals the nodes that see the group below another one.
func TestNotifySignalsComposite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New(WithGroups(selects(map[string][]string{"": {"edge", DefaultGroup}})))
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...); tx.Group("edge").MarkKnown() })
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		watchtest.Next(t, w)
		for _, typ := range []*xds.Type{xds.Cluster, xds.Route} { // no group has a route
			w.Interested(typ, false, []string{"new"}, nil)
			update(t, st, func(tx *Tx) { tx.Notify(typ, "new") })
			if _, touched := watchtest.Next(t, w); len(touched) != 1 || !slices.Equal(touched[0][typ.URL], []string{"new"}) {
				t.Errorf("touched %v", touched)
			}
		}
	})
}

// The version of one of several layers is not a change of the merged type.
func TestVersionOfALayerIsNotAChange(t *testing.T) {
	st := New(WithGroups(selects(map[string][]string{"": {"edge", DefaultGroup}})))
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, res("a", "1"))...)
		tx.Group("edge").Set(of(xds.Cluster, res("b", "1"))...)
	})
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	before, _ := watchtest.Next(t, w)
	update(t, st, func(tx *Tx) { tx.Version(xds.Cluster, "v") })
	if after, touched := watchtest.Next(t, w); len(touched) != 0 || after.Table(xds.Cluster) != before.Table(xds.Cluster) {
		t.Errorf("touched %v", touched)
	}
}

// If only one group has a type, its nodes share the table and the version of the group, after each commit.
func TestCompositeSharesTheTableOfOneGroup(t *testing.T) {
	st := New(WithGroups(selects(map[string][]string{"": {"edge", DefaultGroup}})))
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...); tx.Group("edge").MarkKnown() })
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	for _, body := range []string{"2", "3"} {
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", body))...); tx.Version(xds.Cluster, "v"+body) })
		if got := w.View().Table(xds.Cluster); got != st.Snapshot().View(DefaultGroup)[xds.Cluster.URL] || got.Version() != "v"+body {
			t.Errorf("version %s of a copy", got.Version())
		}
	}
}

// A composite edits its table until the edits exceed its smaller layers. Then it merges the layers again, to share
// the memory of the largest.
func TestCompositeMergesAgainAfterManyEdits(t *testing.T) {
	const small = 3
	st := New(WithGroups(selects(map[string][]string{"": {"edge", DefaultGroup}})))
	update(t, st, func(tx *Tx) {
		for i := range 10 {
			tx.Set(of(xds.Cluster, res(fmt.Sprint("c", i), "1"))...)
		}
		for i := range small {
			tx.Group("edge").Set(of(xds.Cluster, res(fmt.Sprint("e", i), "1"))...)
		}
	})
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	var got []int
	for i := range 2*small + 2 {
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("c1", fmt.Sprint("edit", i)))...) })
		got = append(got, w.group.edits[xds.Cluster.URL])
	}
	if want := []int{1, 2, 3, 0, 1, 2, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("edits after each commit: %v, want %v", got, want)
	}
}

// SOTW-12: the tables that a node may have do not include the current one, also if another group shares it.
func TestCurrentTableIsNotRecent(t *testing.T) {
	st := New(WithGroups(selects(map[string][]string{"": {DefaultGroup}})))
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...); tx.Group("edge").MarkKnown() })
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	watchtest.Next(t, w)
	update(t, st, func(tx *Tx) { tx.Select(selects(map[string][]string{"": {"edge", DefaultGroup}})) })
	if view, _ := watchtest.Next(t, w); slices.Contains(w.Recent(xds.Cluster), view.Table(xds.Cluster)) {
		t.Error("the current table is among the recent ones")
	}
}

// Nodes that come at the same time and see the same groups share one composite.
func TestNodesAtTheSameTimeShareComposite(t *testing.T) {
	const nodes, rounds = 8, 5
	st := New(WithGroups(selects(map[string][]string{"": {"edge", DefaultGroup}})))
	update(t, st, func(tx *Tx) {
		for i := range 3000 {
			tx.Set(of(xds.Cluster, res(fmt.Sprint("c", i), "1"))...)
			tx.Group("edge").Set(of(xds.Cluster, res(fmt.Sprint("e", i), "1"))...)
		}
	})
	for range rounds {
		all := make([]*Watch, nodes)
		var opening sync.WaitGroup
		begin := make(chan struct{})
		for i := range all {
			opening.Go(func() {
				<-begin
				all[i], _ = st.Watch(t.Context(), &xds.Node{})
			})
		}
		close(begin)
		opening.Wait()
		for _, w := range all {
			if w.group != all[0].group || w.group.watches != nodes || len(st.composites) != 1 {
				t.Fatalf("%d of %d nodes share a composite of %d", w.group.watches, nodes, len(st.composites))
			}
		}
		for _, w := range all {
			w.Close()
		}
		if n := st.groups["edge"].watches; n != 0 || len(st.composites) != 0 {
			t.Fatalf("%d watches, %d composites are left", n, len(st.composites))
		}
	}
}

// A node that moves to an unknown group keeps its resources, and gets the group when its content is known.
func TestSelectUnknownGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
		w := watchtest.Open(t, st, nil)
		defer w.Close()
		watchtest.Next(t, w)
		w.Interested(xds.Cluster, true, nil, nil)
		update(t, st, func(tx *Tx) { tx.Select(selects(map[string][]string{"": {"later"}})) })
		if view, _ := watchtest.Next(t, w); view != nil {
			t.Error("it is known what is in a group that nobody wrote to")
		}
		update(t, st, func(tx *Tx) { tx.Group("later").Set(of(xds.Cluster, res("b", "1"))...) })
		if view, touched := watchtest.Next(t, w); view == nil || view.Table(xds.Cluster).Lookup("b") == nil || touched != nil {
			t.Errorf("view %v, touched %v", view, touched)
		}
	})
}

// A composite with a large group shares its memory after any number of changes: memory does not grow by a
// copy for each list of groups.
func TestCompositesShareMemory(t *testing.T) {
	const composites, size, commits = 100, 2000, 1000
	st, all := New(WithLog(1), WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) {
		return []string{n.ID, DefaultGroup}, nil
	})), make([]*xds.Resource, size)
	for i := range all {
		all[i] = res(fmt.Sprint("n", i), "")
	}
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, all...)...)
		for i := range composites {
			tx.Group(fmt.Sprint("g", i)).Set(of(xds.Cluster, res(fmt.Sprint("own", i), ""))...)
		}
	})
	for i := range composites {
		defer watchtest.Open(t, st, &xds.Node{ID: fmt.Sprint("g", i)}).Close()
	}
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	for i := range commits {
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res(fmt.Sprint("n", i%size), fmt.Sprint(i)))...) })
	}
	if grown := (int64(memory()) - int64(before)) / composites; grown > 50_000 {
		t.Errorf("%d bytes more for each list of groups; a copy of all has some %d", grown, size*200)
	}
	runtime.KeepAlive(st)
}

// BenchmarkComposite measures 10,000 lists of groups, each of a small group and a large group that all share.
func BenchmarkComposite(b *testing.B) {
	const lists, size = 10_000, 10_000
	st, all := New(WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) {
		return []string{n.ID, DefaultGroup}, nil
	})), make([]*xds.Resource, size)
	for i := range all {
		all[i] = res(fmt.Sprint("n", i), "")
	}
	update(b, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, all...)...)
		for i := range lists {
			tx.Group(fmt.Sprint("g", i)).Set(of(xds.Cluster, res(fmt.Sprint("own", i), ""), res(fmt.Sprint("own too ", i), ""), res("n1", "own"))...)
		}
	})
	b.Run("open", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			watchtest.Open(b, st, &xds.Node{ID: fmt.Sprint("g", i%lists)}).Close()
		}
	})
	for i := range lists {
		defer watchtest.Open(b, st, &xds.Node{ID: fmt.Sprint("g", i)}).Close()
	}
	b.Run("commit to one small group", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			update(b, st, func(tx *Tx) { tx.Group("g1").Set(of(xds.Cluster, res("own1", fmt.Sprint(i)))...) })
		}
	})
	b.Run("commit to the group that all have", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			update(b, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res(fmt.Sprint("n", i%size), fmt.Sprint(i)))...) })
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lists), "ns/list")
	})
}
