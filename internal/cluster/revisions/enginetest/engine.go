// Package enginetest is the acceptance test of engines of package revisions. The engines of this module
// pass [Test]; your own engine should, too.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Test tests that an engine behaves as a repository requires. The function newPlace makes an empty
// storage, and returns a function that opens an engine on it, as another program would. Each engine
// ends with its test. Run the test with the race detector, too.
func Test(t *testing.T, newPlace func(t *testing.T) (open func(t *testing.T) revisions.Engine)) {
	for name, test := range map[string]func(*testing.T, func(*testing.T) revisions.Engine){
		"Values": values, "Swaps": swaps, "Lists": lists, "Watches": watches, "Leases": leases, "Announcements": announcements, "Cancelled": cancelled,
		"Histories": histories, "Writers": writers, "Sweeps": sweeps, "Damage": damage, "Bodies": bodies, "Conflicts": conflicts,
		"SAFE-15 Lost head": lostHead, "SAFE-15 Mixed": mixed, "SAFE-15 Backup": backup, "SAFE-17 Backup of holds": backupOfHolds,
		"SAFE-15 Restored again": restoredAgain,
	} {
		t.Run(name, func(t *testing.T) { test(t, newPlace(t)) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err, want error, say string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), say) {
		t.Fatalf("%v, want %v with %q in it", err, want, say)
	}
}

// values: all programs read the first value that was put under a key, until the key is deleted.
func values(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	a, b := open(t), open(t)
	_, err := a.Get(ctx, "pack/none")
	mustBe(t, err, revisions.ErrNotFound, "pack/none")
	for i, size := range []int{0, 1, 1000, revisions.MaxValue} {
		key, value := fmt.Sprintf("pack/%d", i), bytes.Repeat([]byte{0, 255, byte(i)}, size/3+1)[:size]
		must(t, a.PutIfAbsent(ctx, key, value))
		must(t, b.PutIfAbsent(ctx, key, value))
		must(t, a.PutIfAbsent(ctx, key, []byte("another"))) // a caller must not put another value; if it does, the first value stays
		if got, err := b.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%s: %d bytes, %v, want %d", key, len(got), err, len(value))
		}
	}
	mustBe(t, a.PutIfAbsent(ctx, "pack/large", make([]byte, revisions.MaxValue+1)), revisions.ErrTooLarge, "pack/large")
	mustBe(t, a.CompareAndSwap(ctx, "pack/large", nil, make([]byte, revisions.MaxValue+1)), revisions.ErrTooLarge, "pack/large")
	_, err = b.Get(ctx, "pack/large")
	mustBe(t, err, revisions.ErrNotFound, "pack/large")
	must(t, b.Delete(ctx, "pack/1", "pack/2", "pack/none"))
	_, err = a.Get(ctx, "pack/1")
	mustBe(t, err, revisions.ErrNotFound, "pack/1")
	must(t, b.Delete(ctx))
}

// swaps: of concurrent swaps exactly one succeeds.
func swaps(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	a := open(t)
	mustBe(t, a.CompareAndSwap(ctx, "head", []byte("x"), []byte("y")), revisions.ErrConflict, "head")
	mustBe(t, a.CompareAndSwap(ctx, "head", []byte{}, []byte("y")), revisions.ErrConflict, "head")
	must(t, a.CompareAndSwap(ctx, "head", nil, []byte("0")))
	mustBe(t, a.CompareAndSwap(ctx, "head", nil, []byte("y")), revisions.ErrConflict, "head")
	mustBe(t, a.CompareAndSwap(ctx, "head", []byte("1"), []byte("y")), revisions.ErrConflict, "head")
	const each, programs = 20, 4
	var lost atomic.Int64
	var wait sync.WaitGroup
	for p := range programs {
		e := a
		if p%2 == 1 {
			e = open(t)
		}
		wait.Go(func() {
			for n := 0; n < each; {
				was, err := e.Get(ctx, "head")
				if err != nil {
					t.Error(err)
					return
				}
				var i int
				_, _ = fmt.Sscan(string(was), &i)
				switch err = e.CompareAndSwap(ctx, "head", was, fmt.Append(nil, i+1)); {
				case err == nil:
					n++
				case errors.Is(err, revisions.ErrConflict):
					lost.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if got, err := a.Get(ctx, "head"); err != nil || string(got) != fmt.Sprint(each*programs) {
		t.Errorf("%s, %v after %d swaps", got, err, each*programs)
	}
	t.Log(lost.Load(), "conflicts")
}

// lists: a prefix may end inside a word.
func lists(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	e := open(t)
	var all []string
	for i := range 700 {
		key := fmt.Sprintf("pack/%04d-a", i)
		all = append(all, key)
		if i%100 == 0 {
			must(t, e.PutIfAbsent(ctx, key, []byte("x")))
		} else {
			must(t, e.CompareAndSwap(ctx, key, nil, []byte("x")))
		}
	}
	must(t, e.PutIfAbsent(ctx, "packs", nil))
	must(t, e.PutIfAbsent(ctx, "a/b/c", nil))
	for prefix, want := range map[string][]string{
		"pack/": all, "pack/0005": all[5:6], "pack/000": all[:10], "pack": append(slices.Clone(all), "packs"), "a": {"a/b/c"}, "a/b": {"a/b/c"},
		"b": nil, "pack/x": nil, "x/": nil, "": append([]string{"a/b/c"}, append(slices.Clone(all), "packs")...),
	} {
		var got []string
		for key, err := range e.List(ctx, prefix) {
			must(t, err)
			got = append(got, key)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %d keys, want %d: %.200q", prefix, len(got), len(want), got)
		}
	}
	for _, err := range e.List(ctx, "") {
		must(t, err)
		break
	}
}

// watches: a watch reports the swap of another program, and ends with its context.
func watches(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, b := open(t), open(t)
	bell := a.Watch(ctx, "head")
	var was []byte
	for i := range 5 {
		value := fmt.Append(nil, i)
		must(t, b.CompareAndSwap(ctx, "head", was, value))
		was = value
		for deadline := time.After(20 * time.Second); ; {
			if got, err := a.Get(ctx, "head"); err == nil && bytes.Equal(got, value) {
				break
			}
			select {
			case <-bell:
			case <-deadline:
				t.Fatal("no hint of a change in 20 s")
			}
		}
	}
	cancel()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case _, ok := <-bell:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("it is not closed")
		}
	}
}

// leases: only one program holds a lease, until it releases the lease.
func leases(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	a, b := open(t), open(t)
	held, release, err := a.Lease(ctx, "sweep")
	must(t, err)
	for _, e := range []revisions.Engine{a, b} {
		_, _, err = e.Lease(ctx, "sweep")
		mustBe(t, err, revisions.ErrBusy, "sweep")
	}
	_, other, err := b.Lease(ctx, "another")
	must(t, err)
	other()
	if held.Err() != nil {
		t.Error("the lease is lost")
	}
	release()
	release()
	if held.Err() == nil {
		t.Error("the lease is held after its release")
	}
	for i := range 3 {
		_, release, err = []revisions.Engine{a, b}[i%2].Lease(ctx, "sweep")
		must(t, err)
		release()
	}
}

// announcements: running programs are listed, and ended programs are not.
func announcements(t *testing.T, open func(*testing.T) revisions.Engine) {
	a, ok := open(t).(revisions.Announcer)
	if !ok {
		t.Skip("the engine is not an Announcer")
	}
	b, _ := open(t).(revisions.Announcer)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, stop := context.WithCancel(ctx)
	values := []chan []byte{make(chan []byte), make(chan []byte)}
	ended := make(chan error, 2)
	go func() { ended <- a.Announce(first, "replica/a-1.x", values[0]) }()
	go func() { ended <- b.Announce(ctx, "replica/b", values[1]) }()
	sees := func(want string) {
		t.Helper()
		for deadline := time.After(20 * time.Second); ; {
			var got strings.Builder
			for _, e := range []revisions.Announcer{a, b} {
				all, more, err := e.Announced(ctx, "replica/", 10)
				must(t, err)
				if more {
					t.Error("there are no more")
				}
				for _, key := range slices.Sorted(maps.Keys(all)) {
					fmt.Fprintf(&got, "%s=%s ", key, all[key])
				}
			}
			if got.String() == want+want {
				return
			}
			select {
			case <-deadline:
				t.Fatalf("there is %s, and should be twice %s", got.String(), want)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	sees("")
	values[0] <- []byte("1")
	values[1] <- []byte("2")
	sees("replica/a-1.x=1 replica/b=2 ")
	values[0] <- []byte("3")
	sees("replica/a-1.x=3 replica/b=2 ")
	if all, more, err := a.Announced(ctx, "replica/", 1); err != nil || len(all) != 1 || !more {
		t.Error(all, more, err)
	}
	stop()
	must(t, <-ended)
	sees("replica/b=2 ")
	cancel()
	must(t, <-ended)
}

// cancelled: a call returns when its context is done.
func cancelled(t *testing.T, open func(*testing.T) revisions.Engine) {
	e := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	repo := revisions.Open(e, revisions.Options{})
	for s, err := range repo.Watch(ctx, nil) {
		t.Error(s, err)
	}
	if _, ok := <-e.Watch(ctx, "head"); ok {
		for range e.Watch(ctx, "head") {
		}
	}
}
