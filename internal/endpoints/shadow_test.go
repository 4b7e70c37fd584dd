package endpoints

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/store"
)

// away is an engine that reports nothing until it is back.
type away struct {
	*Local
	back chan struct{}
}

func (a away) Watch(ctx context.Context, report func([]Change, bool)) {
	select {
	case <-a.back:
		a.Local.Watch(ctx, report)
	case <-ctx.Done():
	}
}

// A server that starts while the engine cannot be read serves the copy on its disk, until the engine
// reports.
func TestDiskShadowServesLastRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, x := t.TempDir(), Cluster{Name: "x"}
		begin := func(there bool) (*testRegistry, *DiskShadow, *logtest.Log, func()) {
			t.Helper()
			r := &testRegistry{st: store.New(store.WithOverlays())}
			r.engine, _ = Open("", nil)
			e := away{r.engine, make(chan struct{})}
			if there {
				close(e.back)
			}
			said := &logtest.Log{}
			log := slog.New(slog.NewTextHandler(said, nil))
			k, err := NewDiskShadow(e, dir, 3*time.Second, log)
			if err != nil {
				t.Fatal(err)
			}
			r.Registry = New(k, r.st, Options{Log: log})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { r.Run(ctx) })
			r.stop = func() {
				cancel()
				running.Wait()
				if err := k.Close(); err != nil {
					t.Error(err)
				}
			}
			return r, k, said, func() { close(e.back) }
		}
		put := func(r *testRegistry, n int) {
			t.Helper()
			all := make([]Registered, n)
			for i := range all {
				all[i] = at(i)
			}
			if _, err := r.Replace(t.Context(), x, all, time.Hour); err != nil {
				t.Fatal(err)
			}
		}

		r, _, _, back := begin(false)
		time.Sleep(time.Minute + time.Second/2) // the disk is written each second
		select {
		case <-r.Loaded():
			t.Fatal("endpoints are served although the engine reported an empty set")
		default:
		}
		back()
		<-r.Loaded()
		put(r, 3)
		put(r, 2)
		r.stop() // the end of Watch writes the rest

		r, k, log, back := begin(false)
		began := time.Now()
		<-r.Loaded()
		synctest.Wait()
		if since := time.Since(began); r.sees("x") != 2 || since < 3*time.Second || since > 4*time.Second || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("from the disk after %v: %d; %s", since, r.sees("x"), log.String())
		}
		time.Sleep(2 * time.Hour)
		if n := r.sees("x"); n != 2 {
			t.Errorf("an endpoint with a lease that cannot be renewed: %d", n)
		}
		back()
		time.Sleep(time.Second)
		if n := r.sees("x"); n != -1 {
			t.Errorf("the engine reported no endpoints: %d", n)
		}

		file := func(f *os.File) (old *os.File) { return k.disk.journal.swap(k.disk, f) }
		null, err := os.Open(os.DevNull) // writes to it fail
		if err != nil {
			t.Fatal(err)
		}
		_ = file(null).Close()
		put(r, 1)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 || len(r.Faults()) != 1 {
			t.Errorf("%d log lines about the failed write, %v", n, r.Faults())
		}
		put(r, 4)
		time.Sleep(5 * time.Second)
		if r.Faults() != nil {
			t.Error(r.Faults())
		}
		r.stop()

		r, _, _, _ = begin(false)
		<-r.Loaded()
		if n := r.sees("x"); n != 4 {
			t.Errorf("a failed write to the disk was not tried again: %d", n)
		}
		r.stop()

		r, _, log, _ = begin(true)
		<-r.Loaded()
		synctest.Wait()
		if n := r.sees("x"); n != -1 || strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the copy is reported though the engine works: %d; %s", n, log.String())
		}
		put(r, 1)
		time.Sleep(5 * time.Second)
		if n := r.sees("x"); n != 1 || strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the copy is reported though the engine had worked: %d; %s", n, log.String())
		}
		if _, err := r.Release(t.Context(), x); err != nil {
			t.Error(err)
		}
		r.stop()

		r, _, _, _ = begin(false)
		time.Sleep(time.Minute)
		select {
		case <-r.Loaded():
			t.Errorf("removed registrations are still on the disk: %d", r.sees("x"))
		default:
		}
		r.stop()
	})
}

// An unreadable value of another program does not keep the others from the disk.
func TestInvalidValueKeepsOthersOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		said := &logtest.Log{}
		k, err := NewDiskShadow(e, t.TempDir(), time.Second, slog.New(slog.NewTextHandler(said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Watch(ctx, func([]Change, bool) {}) })
		x := Cluster{"default", "x"}
		good := `{"address":"10.0.0.1","port":80}`
		for _, all := range [][]Change{
			{put(t, Key{x, "a"}, good), put(t, Key{x, "b"}, good)},
			{put(t, Key{x, "a"}, `{`), put(t, Key{Cluster: x}, `x`), put(t, Key{x, "c"}, good), {Key: Key{x, "b"}}},
		} {
			if err := e.Write(ctx, all); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		cancel()
		running.Wait()
		has := map[string]string{}
		for _, c := range k.disk.all() {
			has[c.ID] = string(c.Value)
		}
		if len(has) != 3 || has["a"] != good || has["c"] != good || has[""] != "{}" || said.String() != "" {
			t.Errorf("%v\n%s", has, said)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A server with a copy reports the faults of the copy and of the other engine.
func TestFaultsOfEngineWithCopy(t *testing.T) {
	disk, engine := &Local{}, &Local{}
	k := &DiskShadow{Engine: engine, disk: disk}
	disk.fault.Set("not stored", errors.New("full"))
	engine.fault.Set("not read", errors.New("away"))
	if all := k.Faults(); len(all) != 2 || all[0].Text != "not stored: full" || all[1].Text != "not read: away" {
		t.Errorf("SAFE-17 %v", all)
	}
}
