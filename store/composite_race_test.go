package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// Clients may choose the names of groups, so a zero byte in a name must not make two groups of it.
func TestCompositeOfNamesWithZeroBytes(t *testing.T) {
	st := New(WithEmptyGroups(), WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) {
		return strings.Split(n.ID, "|"), nil
	}))
	update(t, st, func(tx *Tx) { tx.Group("secret").Set(of(xds.Cluster, res("s", "1"))...) })
	owner := watchtest.Open(t, st, &xds.Node{ID: "a|secret|all"})
	defer owner.Close()
	other := watchtest.Open(t, st, &xds.Node{ID: "a\x00secret|all"})
	defer other.Close()
	if got := other.Groups(); !slices.Equal(got, []string{"a\x00secret", "all"}) {
		t.Errorf("it sees the groups %q", got)
	}
	if got := seenBy(t, other, xds.Cluster); len(got) > 0 {
		t.Errorf("it sees %v", got)
	}
}

// Composites made during commits contain all earlier commits. They are made even if commits come faster than
// the merge.
func TestCompositesMadeDuringCommits(t *testing.T) {
	st := New(WithGroups(selects(map[string][]string{"both": {"edge", DefaultGroup}})))
	update(t, st, func(tx *Tx) {
		for i := range 3000 {
			tx.Set(of(xds.Cluster, res(fmt.Sprint("c", i), "1"))...)
			tx.Group("edge").Set(of(xds.Cluster, res(fmt.Sprint("e", i), "1"))...)
		}
	})
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !stop.Load(); i++ {
			st.Update(func(tx *Tx) error {
				tx.Group("edge").Set(of(xds.Cluster, res("number", fmt.Sprint(i)))...)
				return nil
			})
		}
	}()
	start := time.Now()
	for range 20 {
		w := watchtest.Open(t, st, &xds.Node{ID: "both"})
		st.mu.Lock()
		got, want := w.group.head.Load().view.Table(xds.Cluster).Lookup("number"), w.group.layers[0].head.Load().view.Table(xds.Cluster).Lookup("number")
		st.mu.Unlock()
		if got != want {
			t.Errorf("the overlay has %v, its layer %v", got, want)
		}
		w.Close()
	}
	stop.Store(true)
	<-done
	t.Log(time.Since(start))
	if n := st.groups["edge"].watches; n != 0 || len(st.composites) != 0 {
		t.Errorf("%d watches, %d composites are left", n, len(st.composites))
	}
}

// The cost of a list of many groups is linear in its length.
func TestSelectManyGroups(t *testing.T) {
	var many []string
	for i := range 100_000 {
		many = append(many, fmt.Sprint("group-", i), "group-0")
	}
	s := &selection{func(context.Context, *xds.Node) ([]string, error) { return many, nil }}
	start := time.Now()
	if got, err := s.of(context.Background(), nil); err != nil || len(got) != 100_000 {
		t.Errorf("%d groups, %v", len(got), err)
	}
	if took := time.Since(start); took > 5*time.Second { // far more if each is compared with all
		t.Errorf("it took %v", took)
	}
}

// A watch that moves to another group leaves no id and no interest in the old one. Selecting the same groups
// again does not count a second watch.
func TestMovedWatchLeavesNoTrace(t *testing.T) {
	one := func(name string) Selector {
		return func(context.Context, *xds.Node) ([]string, error) { return []string{name}, nil }
	}
	st := New(WithGroups(one("edge")))
	update(t, st, func(tx *Tx) {
		tx.Set(of(xds.Cluster, res("a", "1"))...)
		tx.Group("edge").Set(of(xds.Cluster, res("a", "2"))...)
	})
	w := watchtest.Open(t, st, nil)
	w.Interested(xds.Cluster, false, []string{"a", "b"}, nil)
	w.Next()
	edge := st.groups["edge"]
	update(t, st, func(tx *Tx) { tx.Select(one("edge")) })
	w.Next()
	if edge.watches != 1 {
		t.Errorf("edge has %d watches of one", edge.watches)
	}
	update(t, st, func(tx *Tx) { tx.Select(one("")); tx.Group("edge").Clear() })
	if got := seenBy(t, w, xds.Cluster); !slices.Equal(got, []string{"a=1"}) {
		t.Errorf("it sees %v", got)
	}
	if edge.watches != 0 || len(edge.index.wanted) != 0 || slices.ContainsFunc(edge.index.watches, func(w *Watch) bool { return w != nil }) {
		t.Errorf("of edge stay %d watches, %v", edge.watches, edge.index.watches)
	}
	if w.live != 2 {
		t.Errorf("%d live keys, want 2", w.live)
	}
	w.Close()
	if g := st.groups[DefaultGroup]; g.watches != 0 || len(g.index.wanted) != 0 {
		t.Errorf("of default stay %d watches", g.watches)
	}
}
