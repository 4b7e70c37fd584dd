package endpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(n int) Registered {
	return Registered{Endpoint: Endpoint{Address: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), Port: 80}}
}

// A testRegistry is a registry with its store.
type testRegistry struct {
	*Registry
	engine *Local
	st     *store.Store
	log    logtest.Log
	stop   func()
}

func start(t *testing.T, dir string, o Options) *testRegistry {
	t.Helper()
	r := &testRegistry{st: store.New(store.WithOverlays())}
	o.Log = slog.New(slog.NewTextHandler(&r.log, nil))
	var err error
	if r.engine, err = Open(dir, o.Log); err != nil {
		t.Fatal(err)
	}
	r.Registry = New(r.engine, r.st, o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := r.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	<-r.Loaded()
	return r
}

// sees returns the number of endpoints in the assignment of a cluster; -1: there is none.
func (r *testRegistry) sees(name string) int {
	r.Flush()
	a := r.st.Snapshot().View(store.OverlayOf(defaultGroup)).Table(xds.Endpoint).Lookup(name)
	if a == nil {
		return -1
	}
	return bytes.Count(a.Body, []byte("10.0."))
}

// An expired lease removes its endpoints, and the cluster stays, without any. A lease that is renewed by
// the same Put stays, and nothing is written.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{})
		ctx := t.Context()
		c := Cluster{Name: "x"}
		must := func(res Result, err error) Result {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		if res := must(r.Put(ctx, c, []Registered{at(0)}, 10*time.Second)); res.Set != 1 {
			t.Error(res)
		}
		must(r.Put(ctx, c, []Registered{at(1)}, 0))
		must(r.Put(ctx, c, []Registered{at(2), at(3)}, 15*time.Second))
		if n := r.sees("x"); n != 4 {
			t.Errorf("sees %d", n)
		}
		for range 5 {
			time.Sleep(8 * time.Second)
			if res := must(r.Put(ctx, c, []Registered{at(0)}, 10*time.Second)); res.Unchanged != 1 {
				t.Error(res)
			}
		}
		if n := r.sees("x"); n != 2 {
			t.Errorf("sees %d", n)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := r.sees("x"); n != 2 {
			t.Errorf("sees %d before the end", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := r.sees("x"); n != 1 {
			t.Errorf("sees %d after the end", n)
		}
		// It has no lease now, or another one.
		must(r.Put(ctx, c, []Registered{at(1)}, 5*time.Second))
		must(r.Put(ctx, c, []Registered{at(4)}, 5*time.Second))
		must(r.Put(ctx, c, []Registered{at(4)}, 0))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n := r.sees("x"); n != 1 {
			t.Errorf("sees %d", n)
		}
		must(r.Remove(ctx, c, "10.0.0.5:80"))
		if n := r.sees("x"); n != 0 {
			t.Errorf("sees %d", n)
		}
		if _, err := r.Remove(ctx, c, "10.0.0.5:80"); !errors.Is(err, ErrNone) {
			t.Error(err)
		}
		must(r.Release(ctx, c))
		if n := r.sees("x"); n != -1 {
			t.Errorf("sees %d", n)
		}
		if len(r.engine.leases.by) != 0 || len(r.engine.values) != 0 {
			t.Error("something is left")
		}
	})
}

// A session keeps its lease by KeepAlive, which reports a lost lease.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{PerCluster: 3})
		ctx := t.Context()
		s, err := r.Session(4 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		op := func(n int) Op { e := at(n).Endpoint; return Op{Cluster: Cluster{Name: "x"}, Endpoint: &e} }
		bad := op(9)
		bad.Endpoint.Port = 0
		errs, err := s.Apply(ctx, []Op{op(0), bad, op(1), {Cluster: Cluster{Name: "x"}, ID: "10.0.0.1:80"}, {Cluster: Cluster{Name: "x"}}})
		if err != nil || len(errs) != 2 || errs[1].Error() != "port: must be 1 to 65535" || errs[4].Error() != "id: is missing" {
			t.Fatal(errs, err)
		}
		if n := r.sees("x"); n != 1 {
			t.Errorf("sees %d", n)
		}
		for range 5 {
			time.Sleep(2 * time.Second)
			if err := s.KeepAlive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.sees("x"); n != 1 {
			t.Errorf("sees %d", n)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if err := s.KeepAlive(ctx); !errors.Is(err, ErrNoLease) {
			t.Error(err)
		}
		if n := r.sees("x"); n != 0 {
			t.Errorf("sees %d", n)
		}
		if errs, err = s.Apply(ctx, []Op{op(0), op(1), op(2)}); err != nil || len(errs) != 0 {
			t.Fatal(errs, err)
		}
		if errs, err = s.Apply(ctx, []Op{op(3)}); err != nil || errs[0] == nil {
			t.Fatal(errs, err)
		}
		// An endpoint that is removed and put again in one call is there.
		if errs, err = s.Apply(ctx, []Op{{Cluster: Cluster{Name: "x"}, ID: "10.0.0.1:80"}, op(0)}); err != nil || len(errs) != 0 || r.sees("x") != 3 {
			t.Fatal(errs, err, r.sees("x"))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, err = s.Apply(ctx, []Op{op(0)}); !errors.Is(err, ErrNoLease) || r.sees("x") != 0 {
			t.Error(err, r.sees("x"))
		}
		if _, err = s.Apply(ctx, []Op{op(0)}); err != nil || r.sees("x") != 1 {
			t.Error(err, r.sees("x"))
		}
		for _, ttl := range []time.Duration{MinTTL - 1, MaxTTL + 1} {
			if _, err := r.Session(ttl); err == nil {
				t.Errorf("a lease of %v", ttl)
			}
		}
	})
}

// A Put renews the lease of exactly the endpoints that it puts: not one with further endpoints, nor one
// of another time.
func TestPutRenewsExactlyItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{})
		put := func(ttl time.Duration, all ...Registered) {
			t.Helper()
			if _, err := r.Put(t.Context(), Cluster{Name: "x"}, all, ttl); err != nil {
				t.Fatal(err)
			}
		}
		is := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if n := r.sees("x"); n != want {
				t.Errorf("sees %d, want %d", n, want)
			}
		}
		put(15*time.Second, at(0), at(1))
		put(5*time.Second, at(2))
		is(2*time.Second, 3)
		put(15*time.Second, at(0))
		put(20*time.Second, at(2))
		is(12*time.Second, 3)
		put(15*time.Second, at(0))
		is(2*time.Second, 2) // at(1) was put once
		is(10*time.Second, 1)
		is(10*time.Second, 0)
	})
}

// A write that fails on the disk is not served, and is an error. An ended lease is not served, even if
// the disk fails.
func TestFailedWriteIsNotServed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir, Options{})
		put := func(n int, ttl time.Duration) error {
			_, err := r.Put(t.Context(), Cluster{Name: "x"}, []Registered{at(n)}, ttl)
			return err
		}
		if err := errors.Join(put(0, 0), put(1, 4*time.Second)); err != nil {
			t.Fatal(err)
		}
		null, err := os.Open(os.DevNull) // writes to it fail
		if err != nil {
			t.Fatal(err)
		}
		good := r.engine.journal.swap(r.engine, null)
		if err := put(2, 0); err == nil || r.sees("x") != 2 {
			t.Error(err, r.sees("x"))
		}
		if all := r.Faults(); len(all) != 1 || all[0].Since != time.Now() || !strings.Contains(all[0].Text, "was replaced") {
			t.Error(all)
		}
		_ = r.engine.journal.swap(r.engine, good).Close()
		if err := put(2, 0); err != nil || r.sees("x") != 3 || r.Faults() != nil {
			t.Error(err, r.sees("x"), r.Faults())
		}
		null, err = os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.engine.journal.swap(r.engine, null).Close()
		time.Sleep(4*time.Second + time.Millisecond) // the lease has ended
		synctest.Wait()
		if n := r.sees("x"); n != 2 || len(r.Faults()) != 1 {
			t.Errorf("sees %d, %v", n, r.Faults())
		}
		time.Sleep(diskRetry) // without another write
		synctest.Wait()
		if r.Faults() != nil {
			t.Error(r.Faults())
		}
		r.stop()
		if r = start(t, dir, Options{}); r.sees("x") != 2 {
			t.Errorf("sees %d", r.sees("x"))
		}
	})
}

// A server that cannot write its disk at the start serves the stored registrations and reports the fault, until it can.
func TestFullDiskAtStart(t *testing.T) {
	dir := t.TempDir()
	for _, stored := range []int{0, 2} {
		t.Run(fmt.Sprintf("SAFE-15 %d stored", stored), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(dir, t.Name())
				put := func(r *testRegistry, n int) error {
					_, err := r.Put(t.Context(), Cluster{Name: "x"}, []Registered{at(n)}, time.Hour)
					return err
				}
				r := start(t, dir, Options{})
				for n := range stored {
					if err := put(r, n); err != nil {
						t.Fatal(err)
					}
				}
				r.stop()
				next := file(dir) + ".next"
				if err := os.MkdirAll(filepath.Join(next, "full"), 0o700); err != nil { // it cannot be replaced
					t.Fatal(err)
				}
				r = start(t, dir, Options{})
				began := time.Now()
				served := max(r.sees("x"), 0)
				if err := put(r, 2); err == nil || served != stored {
					t.Errorf("%v, serves %d", err, served)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if all := r.Faults(); len(all) != 1 || all[0].Since != began || !strings.Contains(all[0].Text, "journal.next") {
					t.Error(all)
				}
				if n := strings.Count(r.log.String(), "level=ERROR"); n != 1 {
					t.Errorf("%d errors in the log:\n%s", n, r.log.String())
				}
				if err := os.RemoveAll(next); err != nil {
					t.Fatal(err)
				}
				time.Sleep(diskRetry)
				synctest.Wait()
				err := put(r, 2)
				synctest.Wait() // the log may be late
				if err != nil || r.Faults() != nil || !strings.Contains(r.log.String(), "the endpoint journal is written again") {
					t.Errorf("%v, %v, %s", err, r.Faults(), r.log.String())
				}
				r.stop()
				if r = start(t, dir, Options{}); r.sees("x") != stored+1 {
					t.Errorf("sees %d", r.sees("x"))
				}
			})
		})
	}
}

// A registration is not acknowledged if a restart would not read it: the journal or its directory was removed or replaced.
// The journal is written again, and the other file stays.
func TestLostJournal(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"file removed":      func(dir string) error { return os.Remove(file(dir)) },
		"directory removed": os.RemoveAll,
		"file replaced": func(dir string) error {
			return disk.Replace(file(dir), 0o600, func(w io.Writer) error { _, err := io.WriteString(w, "other"); return err })
		},
		"directory replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700), os.WriteFile(file(dir), []byte("other"), 0o600))
		},
	} {
		t.Run("SAFE-15 "+name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "endpoints")
			synctest.Test(t, func(t *testing.T) {
				r := start(t, dir, Options{})
				put := func(n int) error {
					_, err := r.Put(t.Context(), Cluster{Name: "x"}, []Registered{at(n)}, 0)
					return err
				}
				if err := errors.Join(put(0), lose(dir)); err != nil {
					t.Fatal(err)
				}
				if err := put(1); err == nil || r.sees("x") != 1 || len(r.Faults()) != 1 {
					t.Errorf("%v, %d, %v", err, r.sees("x"), r.Faults())
				}
				time.Sleep(diskRetry)
				synctest.Wait()
				if err := put(2); err != nil || r.Faults() != nil {
					t.Errorf("%v, %v", err, r.Faults())
				}
				if _, err := Open(dir, nil); !errors.Is(err, disk.ErrBusy) {
					t.Errorf("the directory is not locked: %v", err)
				}
				if other, err := os.ReadFile(file(dir) + ".damaged"); strings.HasSuffix(name, "replaced") && string(other) != "other" {
					t.Errorf("%q, %v", other, err)
				}
				r.stop()
				if r = start(t, dir, Options{}); r.sees("x") != 2 {
					t.Errorf("sees %d", r.sees("x"))
				}
				for _, wait := range []time.Duration{0, look + diskRetry} { // without a registration
					if err := errors.Join(os.RemoveAll(dir+".old"), lose(dir)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(wait)
					synctest.Wait()
					if _, err := os.Stat(file(dir)); wait > 0 && (err != nil || !strings.Contains(r.log.String(), "written again")) {
						t.Errorf("%v\n%s", err, r.log.String())
					}
					r.stop()
					if r = start(t, dir, Options{}); r.sees("x") != 2 {
						t.Errorf("sees %d after %v", r.sees("x"), wait)
					}
				}
			})
		})
	}
}

// A write of the journal that fails leaves no part of it on the disk, which may be full.
func TestFailedJournalIsRemoved(t *testing.T) {
	t.Run("SAFE-15", func(t *testing.T) {
		l, err := Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := l.journal.begin([]Change{{Value: []byte("{")}}); err == nil {
			t.Error("an invalid value was written")
		}
		if _, err := os.Lstat(l.journal.next()); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

// swap makes a journal write to another file.
func (j *journal) swap(l *Local, f *os.File) (old *os.File) {
	l.commit.Lock()
	defer l.commit.Unlock()
	old, j.f = j.f, f
	return old
}

// Changes that are written while the journal is shortened are in the short one, too.
func TestWritesWhileJournalIsShortened(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(id string) {
		t.Helper()
		if err := l.Write(t.Context(), []Change{{Key: Key{Cluster{"default", "x"}, id}, Value: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	size, err := l.journal.begin(l.all())
	if err != nil {
		t.Fatal(err)
	}
	l.shortening = true
	write("b")
	write("c")
	if err := l.journal.adopt(size, l.since); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(l.all()); n != 3 {
		t.Errorf("%d are there", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// After a failure, the journal is not shortened again at each write.
func TestFailedShorteningIsNotRepeated(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.journal.size = 5 << 20
	if err := os.MkdirAll(filepath.Join(l.journal.next(), "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if !l.long() || l.shorten() == nil || l.long() {
		t.Errorf("SAFE-15 the journal of %d bytes, %d of them live, is shortened: %v", l.journal.size, l.journal.live, l.long())
	}
}

// A restart loses nothing, and restarts the leases.
func TestRestartKeepsRegistrations(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, dir, Options{})
		for i := range 3 {
			if _, err := r.Put(t.Context(), Cluster{Name: "x"}, []Registered{at(i)}, time.Duration(i)*10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Remove(t.Context(), Cluster{Name: "x"}, "10.0.0.1:80"); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, nil); err == nil {
			t.Error("two have the directory")
		}
		time.Sleep(9 * time.Second)
		r.stop()
		r = start(t, dir, Options{})
		if n := r.sees("x"); n != 2 {
			t.Errorf("sees %d", n)
		}
		time.Sleep(9 * time.Second)
		if n := r.sees("x"); n != 2 {
			t.Errorf("sees %d", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := r.sees("x"); n != 1 {
			t.Errorf("sees %d", n)
		}
		r.stop()
		r = start(t, dir, Options{})
		if n := r.sees("x"); n != 1 {
			t.Errorf("sees %d: an ended registration is served again", n)
		}
		r.stop()
	})
}

// An incomplete last line is dropped, a damaged line is logged, and all others stay.
func TestDamagedJournalLines(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, Options{})
	for i := range 3 {
		if _, err := r.Put(t.Context(), Cluster{Name: fmt.Sprint("c", i)}, []Registered{at(i)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	whole, err := os.ReadFile(file(dir))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	last := len(whole) - len(lines[6])
	for cut := last; cut < len(whole); cut++ {
		if err := os.WriteFile(file(dir), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		r := start(t, dir, Options{})
		if a, b, c := r.sees("c0"), r.sees("c1"), r.sees("c2"); a != 1 || b != 1 || c != 0 {
			t.Fatalf("cut at %d: %d %d %d", cut, a, b, c)
		}
		if _, err := r.Put(t.Context(), Cluster{Name: "c2"}, []Registered{at(2)}, 0); err != nil {
			t.Fatal(err)
		}
		r.stop()
		if strings.Contains(r.log.String(), "damaged") {
			t.Error(r.log.String())
		}
	}
	damaged := bytes.Replace(whole, []byte(`"10.0.0.2"`), []byte(`"10.0.0.3"`), 1)
	if err := os.WriteFile(file(dir), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	r = start(t, dir, Options{})
	if a, b, c := r.sees("c0"), r.sees("c1"), r.sees("c2"); a != 1 || b != 0 || c != 1 {
		t.Errorf("%d %d %d", a, b, c)
	}
	r.stop()
	if !strings.Contains(r.log.String(), "damaged") {
		t.Error(r.log.String())
	}
	if kept, err := os.ReadFile(file(dir) + ".damaged"); err != nil || !bytes.Equal(kept, damaged) {
		t.Error(err, string(kept))
	}
}

// An unreadable journal does not prevent the start: it is renamed, and logged. Reading it takes little
// memory, however large it is.
func TestUnreadableJournalIsSetAside(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, Options{})
	if _, err := r.Put(t.Context(), Cluster{Name: "x"}, []Registered{at(0)}, 0); err != nil {
		t.Fatal(err)
	}
	r.stop()
	whole, err := os.ReadFile(file(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		nuls       int64
		sees       int
		kept, said string
	}{
		{"empty", "", 0, -1, ".damaged", "damaged endpoint journal"},
		{"cut off in the first line", string(whole[:12]), 0, -1, ".damaged", "damaged endpoint journal"},
		{"another first byte", "C" + string(whole[1:]), 0, -1, ".damaged", "damaged endpoint journal"},
		{"newer", "chancery endpoints 2\n" + string(whole[len(header):]), 0, -1, ".newer", "of a newer version or damaged"},
		{"only NULs", "", 128 << 20, -1, ".damaged", "damaged endpoint journal"},
		{"NULs after it", string(whole), 128 << 20, 1, ".damaged", "lines=1"},
	} {
		if err := os.WriteFile(file(dir), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		size := int64(len(c.text)) + c.nuls
		if err := os.Truncate(file(dir), size); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := start(t, dir, Options{})
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: %d MiB were allocated", c.name, took>>20)
		}
		if n := r.sees("x"); n != c.sees {
			t.Errorf("%s: sees %d, want %d", c.name, n, c.sees)
		}
		if _, err := r.Put(t.Context(), Cluster{Name: "y"}, []Registered{at(1)}, 0); err != nil {
			t.Error(c.name, err)
		}
		r.stop()
		if s := r.log.String(); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, c.said) || !strings.Contains(s, "kept="+file(dir)+c.kept) {
			t.Errorf("%s: %s", c.name, s)
		}
		if is, err := os.Stat(file(dir) + c.kept); err != nil || is.Size() != size {
			t.Error(c.name, err, is)
		}
		again := start(t, dir, Options{})
		if n := again.sees("y"); n != 1 || strings.Contains(again.log.String(), "ERROR") {
			t.Errorf("%s: later sees %d, %s", c.name, n, &again.log)
		}
		again.stop()
	}
}

// The journal is bounded, and each of many concurrent writers finds what it wrote.
func TestJournalIsBounded(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, Options{})
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 400 {
				one := at(w)
				one.Hostname = strings.Repeat("h", 400) + fmt.Sprint(i)
				all := make([]Registered, 10)
				for j := range all {
					all[j] = one
					all[j].ID = fmt.Sprint(w, "-", j)
				}
				if _, err := r.Put(t.Context(), Cluster{Name: "x"}, all, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if info, err := os.Stat(file(dir)); err != nil || info.Size() > 6<<20 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	r.stop()
	r = start(t, dir, Options{})
	all := r.List("default", "x")
	if len(all) != 1 || len(all[0].Endpoints) != 80 || all[0].Endpoints[79].Hostname != strings.Repeat("h", 400)+"399" {
		t.Errorf("%d", len(all[0].Endpoints))
	}
}

// Replace removes all other endpoints. Exceeded limits and unknown groups are errors, and write nothing.
func TestReplaceAndLimits(t *testing.T) {
	r := start(t, "", Options{PerCluster: 3, MaxEndpoints: 4, MaxClusters: 2, Known: func(g string) bool { return g == "default" }})
	ctx := t.Context()
	if res, err := r.Replace(ctx, Cluster{Name: "x"}, []Registered{at(0), at(1), at(2)}, 0); err != nil || res.Set != 3 {
		t.Fatal(res, err)
	}
	if res, err := r.Replace(ctx, Cluster{Name: "x"}, []Registered{at(2), at(3)}, 0); err != nil || res != (Result{1, 1, 2}) || r.sees("x") != 2 {
		t.Fatal(res, err)
	}
	if res, err := r.Replace(ctx, Cluster{Name: "y"}, nil, 0); err != nil || res != (Result{}) || r.sees("y") != 0 {
		t.Fatal(res, err)
	}
	if all := r.List("", ""); len(all) != 2 || all[0].Name != "x" || all[0].Total != 2 || all[0].Endpoints != nil || all[1].Total != 0 {
		t.Errorf("%+v", all)
	}
	if all := r.List("default", "x"); len(all) != 1 || all[0].Total != 2 || len(all[0].Endpoints) != 2 {
		t.Errorf("%+v", all)
	}
	for name, f := range map[string]func() error{
		"unknown group":                func() error { _, err := r.Put(ctx, Cluster{"g", "x"}, nil, 0); return err },
		"too many clusters: at most 2": func() error { _, err := r.Put(ctx, Cluster{Name: "z"}, nil, 0); return err },
		"too many endpoints of a cluster: at most 3": func() error {
			_, err := r.Put(ctx, Cluster{Name: "x"}, []Registered{at(4), at(5)}, 0)
			return err
		},
		"too many endpoints: at most 4": func() error {
			_, err := r.Put(ctx, Cluster{Name: "y"}, []Registered{at(4), at(5), at(6)}, 0)
			return err
		},
		"endpoints[1].id: ": func() error { _, err := r.Put(ctx, Cluster{Name: "x"}, []Registered{at(4), at(4)}, 0); return err },
		"endpoints[1].port": func() error {
			_, err := r.Put(ctx, Cluster{Name: "x"}, []Registered{at(4), {Endpoint: Endpoint{Address: "10.0.0.1"}}}, 0)
			return err
		},
		"ttl: must be":        func() error { _, err := r.Put(ctx, Cluster{Name: "x"}, nil, time.Millisecond); return err },
		"cluster: is miss":    func() error { _, err := r.Put(ctx, Cluster{}, nil, 0); return err },
		"is not a valid name": func() error { _, err := r.Put(ctx, Cluster{Name: "*"}, nil, 0); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	if n := r.sees("x"); n != 2 {
		t.Errorf("sees %d", n)
	}
	// Registrations of other servers are limited, too, and logged.
	var many []Change
	for i := range 3 {
		many = append(many, Change{Key: Key{Cluster: Cluster{"default", fmt.Sprint("z", i)}}, Value: []byte("{}")})
	}
	r.hear(many, false)
	r.hear([]Change{{Key: Key{Cluster{"default", "x"}, "bad"}, Value: []byte(`{`)}}, false)
	r.stop()
	if !strings.Contains(r.log.String(), "invalid registered endpoints") || !strings.Contains(r.log.String(), "count=2") {
		t.Error(r.log.String())
	}
}

// For registrations of other servers the limits are twice as high, for a cluster and in total.
func TestLimitsForOtherServers(t *testing.T) {
	for _, o := range []Options{{PerCluster: 3}, {MaxEndpoints: 3}} {
		r := start(t, "", o)
		var many []Change
		for i := range 20 {
			v, err := encode(at(i).Endpoint, 0)
			if err != nil {
				t.Fatal(err)
			}
			many = append(many, Change{Key: Key{Cluster{"default", "x"}, fmt.Sprint(i)}, Value: v})
		}
		r.hear(many, false)
		r.hear(many[:6], false) // existing endpoints have room
		if n := r.sees("x"); n != 6 {
			t.Errorf("%+v: sees %d", o, n)
		}
		r.stop()
		if !strings.Contains(r.log.String(), "count=14") {
			t.Error(r.log.String())
		}
	}
}

// A single change is served at once. Frequent changes are served together, in few commits a second, and
// never slowEngine.
func TestFrequentChangesAreServedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{})
		commits := func(n int, between time.Duration) int {
			t.Helper()
			time.Sleep(time.Second)
			before, _ := r.st.Newest()
			for i := range n {
				if _, err := r.Put(t.Context(), Cluster{Name: fmt.Sprint("c", i%1000)}, []Registered{at(i)}, 0); err != nil {
					t.Fatal(err)
				}
				time.Sleep(between)
			}
			time.Sleep(25 * time.Millisecond)
			after, _ := r.st.Newest()
			return int(after.Seq - before.Seq)
		}
		if n := commits(100, 6*time.Millisecond); n != 100 {
			t.Errorf("%d commits of 100 changes, each by itself", n)
		}
		if n := commits(5000, 200*time.Microsecond); n < 1000/26 || n > 50 {
			t.Errorf("%d commits of 5000 changes in a second", n)
		}
	})
}
