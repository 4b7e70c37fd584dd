package dircommit

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// If another writer commits between the check and the commit of a writer, the late commit overwrites
// nothing.
func TestOvertakenWriterOverwritesNothing(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	write(t, root, "a")
	e := p.engine()
	states := make(chan State, 1000)
	overtake := sync.OnceFunc(func() {
		it := &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, "b", []byte("b"))}
		if _, err := p.repo.Commit(t.Context(), &revisions.Snapshot{}, revisions.Edit{Set: []*revisions.Item{it}}, revisions.Note{Author: "new", Source: revisionapi.Mark("", "0123456789abcdef")}); err != nil {
			t.Error(err)
		}
	})
	f := New(e, revisions.Open(e, revisions.Options{}), root, Options{
		Dir: dir.Options{Log: slog.New(slog.DiscardHandler)}, Log: slog.New(slog.DiscardHandler), Retry: time.Hour,
		Note:  func() revisions.Note { overtake(); return revisions.Note{Author: "old"} },
		Noted: func(s State) { states <- s },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if s := p.until(states, func(State) bool { return true }); s.Writes || s.Err == nil || !strings.Contains(s.Err.Error(), "another server has written meanwhile: r1, by new") {
		t.Errorf("%+v", s)
	}
	p.head(1, "new", 1)
}

// doubtful is an engine that executes the first commit, but returns its result only later.
type doubtful struct {
	revisions.Engine
	silent atomic.Bool
	once   sync.Once
}

func (d *doubtful) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	err := d.Engine.CompareAndSwap(ctx, key, old, value)
	if old == nil {
		return err // the empty head before the first commit
	}
	d.once.Do(func() {
		d.silent.Store(true)
		err = revisions.ErrUnavailable
	})
	return err
}

func (d *doubtful) Get(ctx context.Context, key string) ([]byte, error) {
	if d.silent.Swap(false) {
		return nil, revisions.ErrUnavailable
	}
	return d.Engine.Get(ctx, key)
}

// A writer whose commit had an unknown result recognizes its own revision, and keeps later changes of
// others.
func TestCommitWithUnknownResult(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	write(t, root, "a")
	_, states, stop := p.feed("ana", root, &doubtful{Engine: p.engine()})
	defer stop()
	if s := p.until(states, writes); !errors.Is(s.Err, revisions.ErrUnknown) {
		t.Error(s.Err)
	}
	if s := p.until(states, func(State) bool { return true }); !s.Writes || s.Err != nil {
		t.Errorf("%+v", s)
	}
	p.head(1, "ana", 1)
	write(t, root, "a", "b")
	p.head(2, "ana", 2)
}

// ending is an engine whose leases can be ended.
type ending struct {
	revisions.Engine
	end atomic.Pointer[context.CancelFunc]
}

func (e *ending) Lease(ctx context.Context, name string) (context.Context, func(), error) {
	held, release, err := e.Engine.Lease(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	held, end := context.WithCancel(held)
	e.end.Store(&end)
	return held, func() { end(); release() }, nil
}

// A writer that lost the lease logs it, and writes again after it has acquired the lease again.
func TestWriterContinuesAfterLostLease(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	write(t, root, "a")
	e := &ending{Engine: p.engine()}
	_, states, _ := p.feed("ana", root, e)
	p.until(states, writes)
	p.head(1, "ana", 1)
	(*e.end.Load())()
	if s := p.until(states, waits); s.Err == nil || s.Err.Error() != "the lease has ended" {
		t.Error(s.Err)
	}
	p.until(states, writes)
	write(t, root, "a", "b")
	p.head(2, "ana", 2)
}

// Any difference in the served content gives another hash.
func TestContentHash(t *testing.T) {
	of := func(body, version string, change func(*revisions.Item)) string {
		r := xds.NewResource(xds.Cluster, "a", []byte(body))
		r.Seal(version)
		it := &revisions.Item{Group: "default", Resource: r}
		if change != nil {
			change(it)
		}
		return contentOf([]*revisions.Item{it})
	}
	known := map[string]string{}
	for name, is := range map[string]string{
		"it":        of("x", "1", nil),
		"body":      of("y", "1", nil),
		"version":   of("x", "2", nil),
		"on demand": of("x", "1", func(it *revisions.Item) { it.Resource.OnDemand = true }),
		"secret":    of("x", "1", func(it *revisions.Item) { it.Secret = true }),
		"group":     of("x", "1", func(it *revisions.Item) { it.Group = "edge" }),
		"rule":      contentOf([]*revisions.Item{{Group: "edge", Definition: []byte("match: {}")}}),
		"other":     contentOf([]*revisions.Item{{Group: "edge", Definition: []byte("match: {id: a}")}}),
	} {
		if same, is2 := known[is]; is2 {
			t.Errorf("%s has the same hash as %s", name, same)
		}
		known[is] = name
	}
}
