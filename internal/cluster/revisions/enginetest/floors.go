package enginetest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

// counting counts the writes to an engine.
type counting struct {
	revisions.Engine
	writes, bytes atomic.Int64
}

func (c *counting) count(value []byte) {
	c.writes.Add(1)
	c.bytes.Add(int64(len(value)))
}

func (c *counting) PutIfAbsent(ctx context.Context, key string, value []byte) error {
	c.count(value)
	return c.Engine.PutIfAbsent(ctx, key, value)
}

func (c *counting) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	c.count(value)
	return c.Engine.CompareAndSwap(ctx, key, old, value)
}

// resources returns n different resources of size bytes.
func resources(n, size int) []*revisions.Item {
	items := make([]*revisions.Item, n)
	for i := range items {
		body := fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", size))
		items[i] = &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, fmt.Sprintf("outbound|80||service-%d.namespace.svc", i), body[:size]), Place: revisions.Place{File: "clusters.yaml", Line: i + 1, Col: 1}}
	}
	return items
}

// Floors commits n resources of 1 KB, changes a few of them one by one, and reads all as a starting
// program does. It logs the times, and fails if a change of one resource writes 64 KB or more.
func Floors(t *testing.T, n int, open func(t *testing.T) revisions.Engine) {
	ctx := t.Context()
	e := &counting{Engine: open(t)}
	repo := revisions.Open(e, revisions.Options{})
	items := resources(n, 1024)
	s, err := repo.Head(ctx)
	must(t, err)
	start := time.Now()
	s, err = repo.Commit(ctx, s, s.To(items), revisions.Note{})
	must(t, err)
	t.Logf("%d resources of 1 KB: committed in %s: %d writes, %.1f MB", n, time.Since(start).Round(time.Millisecond), e.writes.Load(), float64(e.bytes.Load())/1e6)

	const changes = 50
	var most int64
	var took time.Duration
	for i := range changes {
		e.writes.Store(0)
		e.bytes.Store(0)
		r := items[i*n/changes].Resource
		changed := &revisions.Item{Group: "default", Resource: xds.NewResource(r.Type, r.Name, fmt.Appendf(nil, "another %s", r.Body))}
		start = time.Now()
		s, err = repo.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{changed}}, revisions.Note{})
		must(t, err)
		took += time.Since(start)
		most = max(most, e.bytes.Load())
	}
	t.Logf("of these, one changed: %s, %d writes of %d bytes at most", (took / changes).Round(10*time.Microsecond), e.writes.Load(), most)
	if most >= 64<<10 {
		t.Errorf("a change of one item writes %d bytes", most)
	}

	other := revisions.Open(open(t), revisions.Options{})
	start = time.Now()
	s, err = other.Head(ctx)
	must(t, err)
	t.Logf("all read in %s", time.Since(start).Round(time.Millisecond))
	if s.Len() != n {
		t.Errorf("%d of %d", s.Len(), n)
	}
	start = time.Now()
	swept, err := other.Sweep(ctx, 10)
	must(t, err)
	t.Logf("a sweep in %s: %d packs and %d revisions", time.Since(start).Round(time.Millisecond), swept.Packs, swept.Revisions)
}
