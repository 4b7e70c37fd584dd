package file

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/disk/watch"
)

// A hung disk answers when it recovers.
type hung struct {
	disk
	back chan struct{}
}

func (h *hung) Read(path string) ([]byte, error) {
	<-h.back
	return h.disk.Read(path)
}

func (h *hung) List(dir string) ([]os.DirEntry, error) {
	<-h.back
	return h.disk.List(dir)
}

func (h *hung) Remove(path string) error {
	<-h.back
	return h.disk.Remove(path)
}

func (h *hung) Lock(path string) (func(), error) {
	<-h.back
	return h.disk.Lock(path)
}

func (h *hung) Hear(w *watch.Watcher, path string) {
	<-h.back
	h.disk.Hear(w, path)
}

// No call waits longer than its context or the limit for a disk that does not answer, however many calls
// there are. An abandoned call does not begin when the disk recovers.
func TestHungDiskDoesNotBlockCallers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(filepath.Join(dir, "store"), nil)
		if err == nil {
			err = e.CompareAndSwap(t.Context(), "head", nil, []byte("1"))
		}
		if err != nil {
			t.Fatal(err)
		}
		h := &hung{e.disk, make(chan struct{})}
		e.disk = h
		list := func() (err error) {
			for _, err = range e.List(t.Context(), "a/") {
			}
			return err
		}
		get := func() error { _, err := e.Get(t.Context(), "head"); return err }
		lease := func() error {
			_, release, err := e.Lease(t.Context(), "a")
			if err == nil {
				release()
			}
			return err
		}
		swap := func() error { return e.CompareAndSwap(t.Context(), "head", []byte("1"), []byte("2")) }
		next := func() error { return e.CompareAndSwap(t.Context(), "head", []byte("2"), []byte("3")) }
		for _, c := range []struct {
			what string
			f    func() error
			most time.Duration
		}{
			{"get", get, readTime}, {"list", list, readTime}, {"swap", swap, writeTime}, {"the next swap", next, writeTime},
			{"put", func() error { return e.PutIfAbsent(t.Context(), "b", nil) }, writeTime},
			{"lease", lease, writeTime}, {"announce", func() error { return e.Announce(t.Context(), "there/a", nil) }, writeTime},
			{"delete", func() error { return e.Delete(t.Context(), "b") }, writeTime},
		} {
			began := time.Now()
			if err := c.f(); !errors.Is(err, revisions.ErrUnavailable) || time.Since(began) != c.most {
				t.Errorf("%s: %v after %v", c.what, err, time.Since(began))
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		began := time.Now()
		if _, err := e.Get(soon, "head"); !errors.Is(err, revisions.ErrUnavailable) {
			t.Error(err)
		}
		if _, err := e.Get(gone, "head"); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		for range 2 * maxCalls {
			go func() { _ = get() }()
		}
		synctest.Wait()
		if n := len(e.calls); n != maxCalls {
			t.Errorf("%d calls", n)
		}
		if err := get(); !errors.Is(err, revisions.ErrUnavailable) {
			t.Error(err)
		}
		close(h.back)
		synctest.Wait()
		time.Sleep(time.Second)
		if n := len(e.calls) + len(e.swap); n != 0 {
			t.Errorf("%d calls after the disk is back", n)
		}
		if err := lease(); err != nil { // a lock that came too late was released
			t.Error(err)
		}
		if b, err := e.Get(t.Context(), "head"); string(b) != "2" {
			t.Errorf("%s, %v: an abandoned call was executed", b, err)
		}
	})
}

// A slow disk takes a while to lock a file, and calls a function when it is locked.
type slow struct {
	disk
	lock   time.Duration
	locked func()
}

func (s *slow) Lock(path string) (func(), error) {
	time.Sleep(s.lock)
	unlock, err := s.disk.Lock(path)
	s.locked()
	return unlock, err
}

// A lock that arrives just when its caller stops waiting is either used or released. A server whose
// lock cannot be checked is unknown, not missing. The announcement of a server that ends is removed,
// even after its time limit.
func TestLateLockIsReleased(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e, err := Open(filepath.Join(dir, "store"), nil)
		if err == nil {
			err = e.PutIfAbsent(t.Context(), "there/a", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := &slow{disk: e.disk}
		e.disk = s
		for range 1000 {
			ctx, leave := context.WithCancel(t.Context())
			s.locked = func() {
				go leave()
				runtime.Gosched()
			}
			if _, release, err := e.Lease(ctx, "a"); err == nil {
				release()
			} else if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		s.lock, s.locked = 2*readTime, func() {}
		if all, _, err := e.Announced(t.Context(), "there/", 9); !errors.Is(err, revisions.ErrUnavailable) {
			t.Error(all, err)
		}
		time.Sleep(2 * readTime)
		synctest.Wait()
		s.lock = 0
		for range 20 {
			ctx, leave := context.WithCancel(t.Context())
			values, ended := make(chan []byte), make(chan error)
			go func() { ended <- e.Announce(ctx, "there/b", values) }()
			values <- nil
			synctest.Wait()
			if _, err := e.Get(t.Context(), "there/b"); err != nil {
				t.Fatal(err)
			}
			leave()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if _, err := e.Get(t.Context(), "there/b"); !errors.Is(err, revisions.ErrNotFound) {
				t.Fatal(err)
			}
		}
	})
}

// A directory was replaced by a copy of it. The running program announces itself again, so other programs neither take it
// for dead nor change the copy.
func TestAnnouncesAgainInReplacedDirectory(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		dir := t.TempDir()
		store, older, backup := filepath.Join(dir, "store"), filepath.Join(dir, "older"), filepath.Join(dir, "backup")
		synctest.Test(t, func(t *testing.T) {
			e, err := Open(store, nil)
			if err == nil {
				err = os.CopyFS(backup, os.DirFS(store))
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(t.Context())
			values, ended := make(chan []byte), make(chan error, 1)
			go func() { ended <- e.Announce(ctx, "there/a", values) }()
			values <- []byte("1")
			is := func(want string) {
				t.Helper()
				time.Sleep(3 * e.poll / 2)
				synctest.Wait()
				other, err := Open(store, nil)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // the first look does not remove it
					all, _, err := other.Announced(t.Context(), "there/", 9)
					if err != nil || string(all["there/a"]) != want {
						t.Fatalf("%q %v, want %q", all, err, want)
					}
				}
			}
			is("1")
			if err := errors.Join(os.Rename(store, older), os.CopyFS(store, os.DirFS(backup))); err != nil {
				t.Fatal(err)
			}
			is("1")
			values <- []byte("2")
			is("2")
			leave()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			is("")
		})
	})
}

// A watch ends in time, though the disk does not answer, and leaves nothing open when the disk recovers.
// The time is real: the system reports changes.
func TestWatchOfHungDiskEnds(t *testing.T) {
	t.Parallel()
	e, err := Open(filepath.Join(t.TempDir(), "store"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := &hung{e.disk, make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	e.disk = h
	bell := e.Watch(ctx, "head")
	for len(e.calls) == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	over := time.After(2 * readTime)
	for open := true; open; {
		select {
		case _, open = <-bell:
		case <-over:
			t.Fatal("the watch has not ended")
		}
	}
	close(h.back)
}
