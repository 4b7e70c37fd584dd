package revsource

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/store"
)

// A silent engine sends no hints of changes, and may be away.
type silent struct {
	revisions.Engine
	away atomic.Bool
	gets atomic.Int64
}

var errAway = errors.New("away")

func (s *silent) Get(ctx context.Context, key string) ([]byte, error) {
	if s.gets.Add(1); s.away.Load() {
		return nil, errAway
	}
	return s.Engine.Get(ctx, key)
}

func (s *silent) Watch(ctx context.Context, _ string) <-chan struct{} {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { close(c) })
	return c
}

// Newest waits for an earlier commit although the engine sent no hint. If the newest revision is unknown,
// it returns an error.
func TestNewest(t *testing.T) {
	at := t.TempDir()
	direct := revisions.Open(engine(t, at), revisions.Options{})
	through := &silent{Engine: engine(t, at)}
	st := store.New()
	var bad atomic.Bool
	src := New(through, st, Options{Poll: time.Hour, Review: func(*revisions.Snapshot) error {
		if bad.Load() {
			return errors.New("it is bad")
		}
		return nil
	}})
	commit := func(name string) revisions.Number {
		t.Helper()
		s, err := direct.Head(t.Context())
		if err == nil {
			s, err = direct.Commit(t.Context(), s, revisions.Edit{Set: []*revisions.Item{route(t, "default", name, "c")}}, revisions.Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.Revision.Number
	}
	commit("a")
	if _, err := src.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { src.Run(ctx) })
	defer running.Wait()
	defer stop()
	fresh := func(n revisions.Number) {
		t.Helper()
		if err := src.Newest(ctx, true); err != nil || src.Served().Number < n {
			t.Fatalf("%v, %s is served, want %s", err, src.Served().Number, n)
		}
	}
	fresh(1)
	fresh(commit("b"))
	if got := seen(st, "default"); !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	n := commit("c")
	before := through.gets.Load()
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() { fresh(n) })
	}
	all.Wait()
	if gets := through.gets.Load() - before; gets > 500 {
		t.Errorf("%d reads for 1000 concurrent callers", gets)
	}

	through.away.Store(true)
	behind := func(err, want error) time.Time {
		t.Helper()
		b, ok := errors.AsType[*BehindError](err)
		if !ok || want != nil && !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
		return b.Since
	}
	since := behind(src.Newest(ctx, true), errAway)
	if again := behind(src.Newest(ctx, true), errAway); !again.Equal(since) {
		t.Errorf("since %s, and then %s", since, again)
	}
	_ = src.Newest(ctx, false) // it does not wait
	through.away.Store(false)
	fresh(commit("d"))

	bad.Store(true)
	commit("e")
	err := src.Newest(ctx, true)
	behind(err, nil)
	if rejected, ok := errors.AsType[*RejectedError](err); !ok || rejected.Number != 5 {
		t.Error(err)
	}
	bad.Store(false)
	fresh(commit("f"))
}

// With a replaced repository Newest returns an error: another server may have served more of the lost
// revisions.
func TestNewestOfReplacedRepository(t *testing.T) {
	at := t.TempDir()
	writer := revisions.Open(engine(t, at), revisions.Options{})
	head := filepath.Join(at, "head")
	src := New(engine(t, at), store.New(), Options{})
	backwards := func(want error) {
		t.Helper()
		err := src.Newest(t.Context(), true)
		if _, ok := errors.AsType[*BehindError](err); !ok || !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	backwards(ErrEmpty)
	commitAll(t, writer, route(t, "default", "a", "one"))
	first, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	commitAll(t, writer, route(t, "default", "a", "two"))
	if _, err := src.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := src.Newest(t.Context(), true); err != nil {
		t.Error(err)
	}
	second, err := writer.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(head, first, 0o600); err != nil {
		t.Fatal(err)
	}
	backwards(revisions.ErrBackwards)
	again := New(engine(t, at), store.New(), Options{}) // after a restart, with the saved configuration
	if err := again.Restore([]*revisions.Item{route(t, "default", "a", "two")}, second.Mark()); err != nil {
		t.Fatal(err)
	}
	if n, err := again.Load(t.Context()); !errors.Is(err, revisions.ErrBackwards) || n.Number != 2 {
		t.Error(n.Number, err)
	}
	if err := os.Remove(head); err != nil {
		t.Fatal(err)
	}
	backwards(revisions.ErrLostHead)
	if err := os.RemoveAll(at); err != nil {
		t.Fatal(err)
	}
	backwards(revisions.ErrUnavailable)
}

// A deaf engine answers only when it is allowed to, whatever its context.
type deaf struct {
	revisions.Engine
	let  chan struct{}
	gets atomic.Int64
}

func (d *deaf) Get(ctx context.Context, key string) ([]byte, error) {
	d.gets.Add(1)
	<-d.let
	return d.Engine.Get(ctx, key)
}

// Newest does not wait longer than promised for an engine that ignores its context. It makes no second
// call before the first ends.
func TestNewestOfADeafEngine(t *testing.T) {
	at := t.TempDir()
	commitAll(t, revisions.Open(engine(t, at), revisions.Options{}), route(t, "default", "a", "one"))
	synctest.Test(t, func(t *testing.T) {
		e := &deaf{Engine: engine(t, at), let: make(chan struct{})}
		src := New(e, store.New(), Options{})
		for range 3 {
			began := time.Now()
			err := src.Newest(t.Context(), true)
			if _, ok := errors.AsType[*BehindError](err); !ok || !errors.Is(err, revisions.ErrUnavailable) || time.Since(began) != lookTime {
				t.Error(err, time.Since(began))
			}
		}
		if n := e.gets.Load(); n != 1 {
			t.Errorf("%d reads", n)
		}
		close(e.let)
		if _, err := src.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := src.Newest(t.Context(), true); err != nil {
			t.Error(err)
		}
	})
}
