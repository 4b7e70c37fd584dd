package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// Each commit sets one number in all groups while the selection changes all the time. Every view of a stream
// has the state of one commit, and a later view never has the state of an earlier commit.
func TestConcurrentSelections(t *testing.T) {
	const commits, streams = 400, 12
	lists := [][]string{{DefaultGroup}, {"edge", DefaultGroup}, {DefaultGroup, "edge"}, {"far", "edge", DefaultGroup}, {"far"}}
	var turn atomic.Int64
	choose := func() Selector {
		n := turn.Add(1)
		return func(_ context.Context, node *xds.Node) ([]string, error) {
			return lists[(int64(len(node.ID))+n)%int64(len(lists))], nil
		}
	}
	st := New(WithLog(8), WithGroups(choose()))
	commit := func(i int) {
		update(t, st, func(tx *Tx) {
			for _, g := range []string{DefaultGroup, "edge", "far"} {
				tx.Group(g).Set(of(xds.Cluster, res("n", fmt.Sprint(i)), res(g, fmt.Sprint(i)))...)
				tx.Group(g).Set(of(xds.Route, res("n", fmt.Sprint(i)))...)
			}
			if i%3 == 0 || i == commits {
				tx.Select(choose())
			}
		})
	}
	commit(1)
	var running sync.WaitGroup
	for i := range streams {
		running.Go(func() {
			w := watchtest.Open(t, st, &xds.Node{ID: fmt.Sprint(10 * i * i * i)})
			defer func() { w.Close() }()
			w.Interested(xds.Cluster, true, nil, nil)
			last := 0
			for last < commits {
				view, _ := watchtest.Next(t, w)
				var n, m int
				fmt.Sscan(string(view.Table(xds.Cluster).Lookup("n").Body), &n)
				fmt.Sscan(string(view.Table(xds.Route).Lookup("n").Body), &m)
				if n != m || n < last {
					t.Errorf("sees CDS of commit %d and RDS of commit %d after commit %d", n, m, last)
				}
				for r := range view.Table(xds.Cluster).All() {
					if string(r.Body) != fmt.Sprint(n) {
						t.Errorf("sees %s of commit %s beside commit %d", r.Name, r.Body, n)
					}
				}
				if last = n; n%7 == 0 && n < commits { // a client that comes and goes
					w.Close()
					w = watchtest.Open(t, st, &xds.Node{ID: fmt.Sprint(n * i)})
					w.Interested(xds.Cluster, true, nil, nil)
				} else if n < commits {
					<-w.C()
				}
			}
		})
	}
	for i := 2; i <= commits; i++ {
		commit(i)
	}
	running.Wait()
	if n := len(st.composites); n != 0 {
		t.Errorf("%d overlays stay", n)
	}
}

// Each commit writes the right resource to one of two groups, the wrong resource to the other, and selects
// the first. A reader never sees the wrong resource.
func TestSelectionMatchesContent(t *testing.T) {
	const commits = 3000
	in := []string{"a", "b"}
	right := func(i int) Selector {
		return func(context.Context, *xds.Node) ([]string, error) { return []string{in[i%2]}, nil }
	}
	st := New()
	commit := func(i int) {
		update(t, st, func(tx *Tx) {
			tx.Group(in[i%2]).Set(of(xds.Cluster, res("n", fmt.Sprint(i)))...)
			tx.Group(in[(i+1)%2]).Set(of(xds.Cluster, res("n", "wrong"))...)
			tx.Select(right(i))
		})
	}
	commit(1)
	var reading sync.WaitGroup
	for range 2 {
		reading.Go(func() {
			w := watchtest.Open(t, st, nil)
			defer w.Close()
			for last := ""; last != fmt.Sprint(commits); {
				view, _ := watchtest.Next(t, w)
				if last = string(view.Table(xds.Cluster).Lookup("n").Body); last == "wrong" {
					t.Error("what is there is seen by the choice of before")
					return
				}
			}
		})
	}
	for i := 2; i <= commits; i++ {
		commit(i)
	}
	reading.Wait()
}
