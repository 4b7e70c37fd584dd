package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

func TestNilClockIsTheRealOne(t *testing.T) {
	st := New(WithClock(nil))
	update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("n", "1"))...) })
	if got := st.Snapshot().View(DefaultGroup).Table(xds.Cluster).Lookup("n"); got == nil {
		t.Error("the resource is missing")
	}
}

func TestSetOfSeveralTypes(t *testing.T) {
	st := New()
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, res("c", "1"))[0], of(xds.Route, res("r", "2"))[0], of(xds.Cluster, res("d", "3"))[0])
	})
	view := st.Snapshot().View(DefaultGroup)
	for name, typ := range map[string]*xds.Type{"c": xds.Cluster, "r": xds.Route, "d": xds.Cluster} {
		if got := view.Table(typ).Lookup(name); got == nil || got.Type != typ {
			t.Errorf("%s %s: %v", typ, name, got)
		}
	}
}

func TestEffectiveWithoutOverlay(t *testing.T) {
	st := New(WithOverlays())
	update(t, st, func(tx *Tx) { tx.Group("a").Set(of(xds.Cluster, res("n", "1"))...) })
	if got := st.Snapshot().Effective("a").Table(xds.Cluster).Lookup("n"); got == nil || string(got.Body) != "1" {
		t.Errorf("the effective view has %v", got)
	}
}

// A watch wants the names that it is interested in, also after it has moved to another group.
func TestWantsAfterInterestsAndMoves(t *testing.T) {
	st := New(WithGroups(selects(map[string][]string{"n": {"a"}})))
	update(t, st, func(tx *Tx) {
		tx.Group("a").Set(of(xds.Cluster, res("x", "1"), res("y", "1"))...)
		tx.Group("b").Set(of(xds.Cluster, res("x", "2"), res("y", "2"))...)
	})
	w := watchtest.Open(t, st, &xds.Node{ID: "n"})
	defer w.Close()
	watchtest.Next(t, w)
	w.Interested(xds.Cluster, false, []string{"x", "y"}, nil)
	w.Interested(xds.Cluster, false, nil, []string{"y"})
	check := func() {
		t.Helper()
		for name, want := range map[string]bool{"x": true, "y": false, "z": false} {
			if got := w.Wants(xds.Cluster, name); got != want {
				t.Errorf("wants %s: %v", name, got)
			}
		}
	}
	check()
	update(t, st, func(tx *Tx) { tx.Select(selects(map[string][]string{"n": {"b"}})) })
	watchtest.Next(t, w)
	if w.Group() != "b" {
		t.Fatalf("the watch is in %q", w.Group())
	}
	check()
}

// A commit does not change a view that a reader of a composite has.
func TestViewsOfCompositesDoNotChange(t *testing.T) {
	st := New(WithGroups(selects(map[string][]string{"n": {"a", "b"}})))
	update(t, st, func(tx *Tx) {
		tx.Group("a").Set(of(xds.Cluster, res("x", "1"))...)
		tx.Group("b").Set(of(xds.Cluster, res("y", "1"))...)
	})
	w := watchtest.Open(t, st, &xds.Node{ID: "n"})
	defer w.Close()
	before, _ := watchtest.Next(t, w)
	table := before.Table(xds.Cluster)
	update(t, st, func(tx *Tx) { tx.Group("a").Set(of(xds.Cluster, res("x", "2"))...) })
	after, _ := watchtest.Next(t, w)
	if before.Table(xds.Cluster) != table || after.Table(xds.Cluster) == table {
		t.Error("the commit changed the old view, or not the new one")
	}
}

// After a watch moves to another group, its past has the tables of both groups, newest first.
func TestRecentAfterAMoveIsInOrder(t *testing.T) {
	t.Run("SOTW-12", func(t *testing.T) {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		st := New(WithClock(func() time.Time { return now }), WithGroups(selects(map[string][]string{"n": {"a"}, "m": {"b"}})))
		set := func(group, body string) {
			now = now.Add(time.Second)
			update(t, st, func(tx *Tx) { tx.Group(group).Set(of(xds.Cluster, res("x", body))...) })
		}
		set("a", "a1")
		set("b", "b1")
		w, other := watchtest.Open(t, st, &xds.Node{ID: "n"}), watchtest.Open(t, st, &xds.Node{ID: "m"})
		defer w.Close()
		defer other.Close()
		watchtest.Next(t, w)
		set("a", "a2")
		set("b", "b2")
		set("a", "a3")
		now = now.Add(time.Second)
		update(t, st, func(tx *Tx) { tx.Select(selects(map[string][]string{"n": {"b"}, "m": {"b"}})) })
		watchtest.Next(t, w)
		var got []string
		for _, table := range w.Recent(xds.Cluster) {
			if r := table.Lookup("x"); r != nil {
				got = append(got, string(r.Body))
			}
		}
		if want := []string{"a3", "a2", "b1", "a1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// WithLog remembers one commit at least.
func TestLogRemembersOneCommit(t *testing.T) {
	for _, keep := range []int{-1, 0, 1} {
		st := New(WithLog(keep))
		for range 3 {
			update(t, st, func(tx *Tx) { tx.Set(of(xds.Cluster, res("a", fmt.Sprint(st.Snapshot().Seq())))...) })
		}
		if log := st.Log(); len(log) != 1 || log[0].Seq != 3 {
			t.Errorf("WithLog(%d): %v", keep, log)
		}
	}
}

// Of several names that clash in a transaction, the error is always about the same one.
func TestErrorOfSeveralClashesIsTheSame(t *testing.T) {
	texts := map[string]bool{}
	for range 20 {
		_, err := New().Update(func(tx *Tx) error {
			for i := range 8 {
				tx.Set(of(xds.VirtualHost, res(fmt.Sprint("a", i), "1", fmt.Sprint("b", i)), res(fmt.Sprint("b", i), "1"))...)
			}
			return nil
		})
		if err == nil {
			t.Fatal("names that clash are taken")
		}
		texts[err.Error()] = true
	}
	if len(texts) != 1 {
		t.Errorf("%d errors: %v", len(texts), texts)
	}
}

// The index opens each watch once, and no watch that was closed.
func TestIndexOpensEachWatchOnce(t *testing.T) {
	st := New()
	var open []*Watch
	for i := range 3*batch + 7 {
		w := watchtest.Open(t, st, nil)
		if i%3 == 0 || i/batch == 1 {
			w.Close()
			continue
		}
		defer w.Close()
		open = append(open, w)
	}
	x := &st.groups[DefaultGroup].index
	got := map[*Watch]int{}
	for some := range x.open(x.all()) {
		for _, w := range some {
			got[w]++
		}
	}
	for _, w := range open {
		if got[w] != 1 {
			t.Fatalf("watch %d is opened %d times", w.id, got[w])
		}
	}
	if len(got) != len(open) {
		t.Errorf("%d watches of %d", len(got), len(open))
	}
}
