package store

import (
	"context"
	"sync"
	"testing"

	"github.com/chancery-xds/chancery/internal/watchtest"
	"github.com/chancery-xds/chancery/xds"
)

// A commit writes to the group that no node sees from then on, too: nobody sees that by the old choice.
func TestNewContentIsNotSeenByTheOldChoice(t *testing.T) {
	names := [2]string{"a", "b"}
	st := New()
	next := func(i int) {
		update(t, st, func(tx *Tx) {
			tx.Group(names[i%2]).Set(of(xds.Cluster, res("mark", "good"))...)
			tx.Group(names[1-i%2]).Set(of(xds.Cluster, res("mark", "bad"))...)
			tx.Select(func(context.Context, *xds.Node) ([]string, error) { return []string{names[i%2]}, nil })
		})
	}
	next(0)
	var reading sync.WaitGroup
	done := make(chan struct{})
	w := watchtest.Open(t, st, nil)
	defer w.Close()
	reading.Go(func() {
		for bad := 0; bad == 0; {
			select {
			case <-done:
				return
			default:
			}
			if v, _ := watchtest.Next(t, w); string(v.Table(xds.Cluster).Lookup("mark").Body) == "bad" {
				t.Error("new content is seen by the old choice")
				bad++
			}
		}
	})
	for i := range 20_000 {
		next(i + 1)
	}
	close(done)
	reading.Wait()
}
