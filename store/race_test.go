package store

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// Writers, streams and readers run at once. Every reader sees the state of one commit and never goes back to
// an earlier commit. Every stream is signalled for the last commit.
func TestConcurrency(t *testing.T) {
	const writers, rounds, streams = 4, 250, 16
	groups := []string{DefaultGroup, "edge"}
	st := New(WithLog(20), WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.ID}, nil }))
	// A commit sets the same number everywhere.
	number := func(v xds.View, typ *xds.Type) int {
		r := v.Table(typ).Lookup("number")
		if r == nil {
			return 0
		}
		n, _ := strconv.Atoi(string(r.Body))
		return n
	}
	whole := func(v xds.View) int {
		n := number(v, xds.Cluster)
		if m := number(v, xds.Route); m != n {
			t.Errorf("a view has CDS of commit %d and RDS of commit %d", n, m)
		}
		return n
	}
	commit := func(mark string) {
		st.Update(func(tx *Tx) error {
			n := 1
			if r := tx.Lookup(xds.Cluster, "number"); r != nil {
				n, _ = strconv.Atoi(string(r.Body))
				n++
			}
			for _, g := range groups {
				tx.Group(g).Set(of(xds.Cluster, res("number", fmt.Sprint(n)), res(mark, fmt.Sprint(n)))...)
				tx.Group(g).Set(of(xds.Route, res("number", fmt.Sprint(n)))...)
			}
			return nil
		})
	}
	var writing, reading, following sync.WaitGroup
	following.Add(streams)
	for i := range writers {
		writing.Go(func() {
			following.Wait() // otherwise the writers could end before the first read
			for j := range rounds {
				commit(fmt.Sprint("mark", (i+j)%5))
			}
		})
	}
	for i := range streams {
		reading.Go(func() {
			w := watchtest.Open(t, st, &xds.Node{ID: groups[i%2]})
			defer w.Close()
			w.Next()
			last := 0
			w.Interested(xds.Cluster, i%4 == 0, []string{"end", fmt.Sprint("mark", i%5)}, nil)
			following.Done()
			for j := 0; ; j++ {
				<-w.C()
				view, _ := watchtest.Next(t, w)
				if n := whole(view); n < last {
					t.Errorf("a stream sees commit %d after commit %d", n, last)
				} else {
					last = n
				}
				if view.Table(xds.Cluster).Lookup("end") != nil {
					return
				}
				mark := fmt.Sprint("mark", j%5)
				w.Interested(xds.Cluster, i%4 == 1, []string{mark, "end"}, []string{mark, "end"})
			}
		})
		reading.Go(func() { // a client that comes and goes
			for range 50 {
				w := watchtest.Open(t, st, &xds.Node{ID: groups[i%2]})
				w.Interested(xds.Route, false, []string{"number"}, nil)
				w.Next()
				w.Close()
			}
		})
	}
	var stop atomic.Bool
	var snapshots sync.WaitGroup
	snapshots.Go(func() {
		for !stop.Load() {
			s := st.Snapshot()
			if a, b := whole(s.View(DefaultGroup)), whole(s.View("edge")); a != b {
				t.Errorf("a snapshot has one group of commit %d and the other of commit %d", a, b)
			}
			st.Log()
		}
	})
	writing.Wait()
	commit("end")
	reading.Wait()
	stop.Store(true)
	snapshots.Wait()
	if got := whole(st.Snapshot().View("edge")); got != writers*rounds+1 {
		t.Errorf("%d commits, want %d", got, writers*rounds+1)
	}
}
