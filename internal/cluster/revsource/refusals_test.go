package revsource

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// A value is an engine with one value, in memory.
type value struct {
	revisions.Engine
	mu     sync.Mutex
	is     []byte
	denied bool
	writes int
	bells  []chan struct{}
}

func (v *value) Get(context.Context, string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.is == nil {
		return nil, revisions.ErrNotFound
	}
	return v.is, nil
}

func (v *value) CompareAndSwap(_ context.Context, _ string, old, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.denied:
		return revisions.ErrDenied
	case !bytes.Equal(old, v.is):
		return revisions.ErrConflict
	}
	v.is = value
	v.writes++
	for _, b := range v.bells {
		select {
		case b <- struct{}{}:
		default:
		}
	}
	return nil
}

func (v *value) Watch(ctx context.Context, _ string) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	b := make(chan struct{}, 1)
	v.bells = append(v.bells, b)
	context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.bells = nil
		close(b)
	})
	return b
}

// All servers learn within seconds that a client of one server refuses a resource, or accepts it
// again.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &value{}
		a, b := NewRefusals(v, nil), NewRefusals(v, nil)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, r := range []*Refusals{a, b} {
			running.Go(func() { r.Run(ctx) })
		}
		defer running.Wait()
		defer stop()
		rest := func() { time.Sleep(5 * time.Second); synctest.Wait() }
		rest()
		is := func(r *Refusals, node, url string, want bool) {
			t.Helper()
			if got := r.Has(node, url); got != want {
				t.Errorf("%s has refused %s: %t", node, url, got)
			}
		}
		a.Refused("n", "cds")
		is(a, "n", "cds", true) // at once
		rest()
		is(b, "n", "cds", true)
		is(b, "n", "lds", false)
		is(b, "m", "cds", false)
		b.Accepted("n", "cds")
		is(b, "n", "cds", false)
		a.Refused("m", "cds")
		rest()
		is(a, "n", "cds", false)
		is(b, "m", "cds", true)
		a.Refused("", "cds") // an unknown node
		is(a, "", "cds", false)
		c := NewRefusals(v, nil) // a server that starts
		if err := c.sync(ctx); err != nil {
			t.Fatal(err)
		}
		is(c, "m", "cds", true)

		writes := v.writes
		for i := range 3000 {
			a.Refused(fmt.Sprint("n", i), "cds")
		}
		a.Refused("last", "cds")
		rest()
		if n := v.writes - writes; n > 5 || len(v.is) > 200<<10 {
			t.Errorf("%d writes, %d bytes", n, len(v.is))
		}
		is(b, "last", "cds", true)
		time.Sleep(25 * time.Hour)
		a.Refused("x", "cds")
		rest()
		is(b, "last", "cds", false)
		is(b, "x", "cds", true)
	})
}

// A server without write permission keeps its refusals to itself, and logs that once.
func TestRefusalsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := NewRefusals(&value{denied: true}, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		for i := range 3 {
			r.Refused(fmt.Sprint("n", i), "cds")
			time.Sleep(time.Minute)
		}
		stop()
		running.Wait()
		if !r.Has("n0", "cds") || strings.Count(log.String(), "cannot share refusals with other servers") != 1 {
			t.Error(log.String())
		}
	})
}

// A value of a newer format stays as it is. The server keeps its own refusals, and logs that once.
func TestRefusalsOfNewerFormat(t *testing.T) {
	for _, newer := range []string{`{"format":2}`, `{"format":2,"refused":["a"]}`} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			v := &value{is: []byte(newer)}
			r := NewRefusals(v, slog.New(slog.NewTextHandler(&log, nil)))
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { r.Run(ctx) })
			r.Refused("n", "cds")
			time.Sleep(time.Minute)
			stop()
			running.Wait()
			if !r.Has("n", "cds") || string(v.is) != newer || strings.Count(log.String(), "written by a newer version") != 1 {
				t.Errorf("%s: %s\n%s", newer, v.is, log.String())
			}
		})
	}
}
