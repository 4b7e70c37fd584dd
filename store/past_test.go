package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

func TestRecent(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := New(WithClock(func() time.Time { return now }), WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.ID}, nil }))
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	// has compares the bodies of n, newest first.
	has := func(t *testing.T, w *Watch, want ...string) {
		t.Helper()
		var got []string
		for _, table := range w.Recent(xds.Cluster) {
			if r := table.Lookup("n"); r != nil {
				got = append(got, string(r.Body))
			} else {
				got = append(got, "")
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	set := func(body string) {
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("n", body))...) })
	}
	t.Run("SOTW-12 earlier tables, newest first", func(t *testing.T) {
		has(t, w)
		set("1")
		has(t, w, "")
		set("2")
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Route, res("n", "route"))...) }) // another type
		update(t, st, func(tx *Tx) { tx.Group("edge").Set(of(xds.Cluster, res("n", "edge"))...) })
		has(t, w, "1", "")
		set("2") // no change
		has(t, w, "1", "")
		edge := watchtest.Open(t, st, &xds.Node{ID: "edge"})
		has(t, edge, "")
		edge.Close()
	})
	t.Run("SOTW-12 five minutes back, from when it was replaced", func(t *testing.T) {
		now = now.Add(5 * time.Minute)
		has(t, w, "1", "")
		set("3") // 2 was served for five minutes
		has(t, w, "2", "1", "")
		now = now.Add(1)
		has(t, w, "2")
		now = now.Add(5*time.Minute - 1)
		has(t, w, "2")
		now = now.Add(1)
		has(t, w)
		if len(w.group.past) > 0 {
			t.Error("the last Recent kept what is too old")
		}
		set("4")
		now = now.Add(6 * time.Minute)
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Route, res("n", "new"))...) })
		if p := w.group.past[xds.Cluster.URL]; p != nil {
			t.Error("a commit of another type kept what is too old")
		}
	})
	t.Run("SAFE-1 64 commits at most", func(t *testing.T) {
		var want []string
		for i := range 200 {
			set(fmt.Sprint("body ", i))
			want = append(want, fmt.Sprint("body ", i))
		}
		slices.Reverse(want)
		has(t, w, want[1:65]...)
	})
	t.Run("SAFE-1 16,384 names at most, but always the last table", func(t *testing.T) {
		many := func(body string, n int) []*xds.Resource {
			rs := []*xds.Resource{res("n", body)}
			for i := range n - 1 {
				rs = append(rs, res(fmt.Sprint("x", i), body))
			}
			return rs
		}
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, many("a", maxNames/2)...)...) })
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, many("b", maxNames/2)...)...) })
		has(t, w, "a", "body 199")
		set("c")
		has(t, w, "b", "a")
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, many("d", maxNames+1)...)...) })
		has(t, w, "c")
	})
	t.Run("SOTW-12 it outlives the streams of its group", func(t *testing.T) {
		w.Close()
		set("e")
		again := watchtest.Open(t, st, nil)
		defer again.Close()
		has(t, again, "d")
	})
}

func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", "1"))...) })
		version := st.Snapshot().View(DefaultGroup).Table(xds.Cluster).Version()
		watch := func(wildcard bool, names ...string) *Watch {
			w := watchtest.Open(t, st, nil)
			w.Next()
			w.Interested(xds.Cluster, wildcard, names, nil)
			return w
		}
		named, other, all := watch(false, "b"), watch(false, "a"), watch(true)
		before := named.Recent(xds.Cluster)
		c := update(t, st, func(tx *Tx) { tx.Notify(xds.Cluster, "b", "c", "b") })
		if c.Seq != 2 || len(c.Changes) != 0 || c.Time.IsZero() {
			t.Errorf("commit %+v", c)
		}
		for w, want := range map[*Watch]bool{named: true, other: false, all: true} {
			if got := rang(w); got != want {
				t.Errorf("rang: %v, want %v", got, want)
			}
			view, touched := watchtest.Next(t, w)
			if len(touched) != 1 || !slices.Equal(touched[0][xds.Cluster.URL], []string{"b", "c"}) {
				t.Errorf("touched %v", touched)
			}
			if got := view.Table(xds.Cluster).Version(); got != version {
				t.Errorf("version %s, was %s", got, version)
			}
			defer w.Close()
		}
		if after := named.Recent(xds.Cluster); len(after) != len(before) {
			t.Errorf("%d tables before it, %d after", len(before), len(after))
		}
		// Together with a change, and in a group without content.
		update(t, st, func(tx *Tx) {
			tx.Notify(xds.Cluster, "b")
			tx.Set(of(xds.Cluster, res("d", "1"))...)
			tx.Group("edge").Notify(xds.Cluster, "x")
		})
		if _, touched := watchtest.Next(t, named); len(touched) != 1 || !slices.Equal(touched[0][xds.Cluster.URL], []string{"b", "d"}) {
			t.Errorf("touched %v", touched)
		}
		if len(st.groups) != 1 {
			t.Errorf("%d groups", len(st.groups))
		}
		for _, name := range []string{"", "*"} {
			if _, err := st.Update(func(tx *Tx) error { tx.Notify(xds.Cluster, name); return nil }); err == nil {
				t.Errorf("touched %q", name)
			}
		}
	})
}
