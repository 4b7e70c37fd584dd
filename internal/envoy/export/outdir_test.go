package export

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A fullDisk fails the nth change of the file system, and later changes that create something, until
// the test makes room. A failing write leaves half a file.
type fullDisk struct {
	disk
	n      int  // calls until the failure; negative: no failure
	once   bool // then there is room again after one failure
	failed string
}

func (d *fullDisk) fails(op, path string) error {
	if d.n != 0 {
		d.n--
		return nil
	}
	if d.failed = path; d.once {
		d.n = -1
	}
	return &os.PathError{Op: op, Path: path, Err: syscall.ENOSPC}
}

func (d *fullDisk) Mkdir(path string) error {
	if err := d.fails("mkdir", path); err != nil {
		return err
	}
	return d.disk.Mkdir(path)
}

func (d *fullDisk) Write(path string, data []byte) error {
	if err := d.fails("write", path); err != nil {
		return errors.Join(err, d.disk.Write(path, data[:len(data)/2]))
	}
	return d.disk.Write(path, data)
}

func (d *fullDisk) Link(from, to string) error {
	if err := d.fails("link", to); err != nil {
		return err
	}
	return d.disk.Link(from, to)
}

func (d *fullDisk) Symlink(target, path string) error {
	if err := d.fails("symlink", path); err != nil {
		return err
	}
	return d.disk.Symlink(target, path)
}

func (d *fullDisk) Rename(from, to string) error {
	if err := d.fails("rename", to); err != nil {
		return err
	}
	return d.disk.Rename(from, to)
}

func (d *fullDisk) Sync(dir string) error {
	if err := d.fails("sync", dir); err != nil {
		return err
	}
	return d.disk.Sync(dir)
}

// After any failure, either the last or the next export is completely in place. The error names the
// file, and the next export succeeds.
func TestFullDisk(t *testing.T) {
	before := resourceList{eds("a"), assignment("a", 1), eds("b"), assignment("b", 1), secret("s", "1")}
	after := resourceList{eds("a"), assignment("a", 2), eds("b"), assignment("b", 1), secret("s", "2"), routes("r", "a")}
	whole := func(w resourceList) map[string]string {
		s := open(t, t.TempDir(), Options{Prefix: "/x"})
		s.export(w)
		return s.read()
	}
	was, next := whole(before), whole(after)
	done := 0
	for n := 0; done < 2; n++ {
		if n > 200 {
			t.Fatal("the export fails without end")
		}
		once := n%2 > 0
		t.Run(fmt.Sprintf("FILE-4 FILE-5 operation %d, once: %v", n/2, once), func(t *testing.T) {
			s := open(t, t.TempDir(), Options{Prefix: "/x"})
			s.export(before)
			full := &fullDisk{disk: s.dir.system.(disk), n: n / 2, once: once}
			s.dir.system = full
			r, err := s.Export(t.Context(), after.view(t))
			got := s.read()
			switch {
			case err == nil && full.failed == "":
				done++
			case err == nil: // writing a copy replaced a failed link
				if r.Written != 4 {
					t.Errorf("%+v", r)
				}
			case !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), full.failed+": no space left on device"):
				t.Errorf("error %q does not name %s", err, full.failed)
			}
			want := was
			if err == nil || strings.Contains(err.Error(), "the export is in place") {
				want = next
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if err == nil {
				s.tidy()
			}
			full.n = -1
			s.export(after)
			if d := cmp.Diff(next, s.read()); d != "" {
				t.Error(d)
			}
			s.tidy()
		})
	}
}

// A journal records directories that changed since their last sync. They must be on disk before the
// next export becomes visible.
type journal struct {
	disk
	dirty  map[string]bool
	swaps  int
	unsafe []string // directories that were not synced when the export became visible
}

func (j *journal) Mkdir(path string) error {
	j.dirty[path] = true
	return j.disk.Mkdir(path)
}

func (j *journal) Write(path string, data []byte) error {
	j.dirty[filepath.Dir(path)] = true
	return j.disk.Write(path, data)
}

func (j *journal) Link(from, to string) error {
	j.dirty[filepath.Dir(to)] = true
	return j.disk.Link(from, to)
}

func (j *journal) Sync(dir string) error {
	delete(j.dirty, dir)
	return j.disk.Sync(dir)
}

func (j *journal) Rename(from, to string) error {
	j.swaps++
	j.unsafe = slices.AppendSeq(j.unsafe, maps.Keys(j.dirty))
	j.dirty[filepath.Dir(to)] = true
	return j.disk.Rename(from, to)
}

// An export is on disk before a reader can reach it. The link to it is on disk when Export returns.
func TestLossOfPower(t *testing.T) {
	t.Run("FILE-5 directories are on the disk before the link leads to them", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{Prefix: "/x"})
		j := &journal{disk: s.dir.system.(disk), dirty: map[string]bool{}}
		s.dir.system = j
		for i := range uint32(3) {
			s.export(resourceList{eds("a"), assignment("a", i), secret("s", "1"), routes("r", "a")})
		}
		if j.swaps != 3 || len(j.unsafe) > 0 || len(j.dirty) > 0 {
			t.Errorf("%d swaps; not synced before a swap: %q; not synced at the end: %v", j.swaps, j.unsafe, j.dirty)
		}
	})
}

// A reader always finds one complete export.
func TestReadersSeeWholeExports(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	states := []resourceList{
		{secret("a", strings.Repeat("x", 10_000)), secret("b", "1"), secret("c", "1")},
		{secret("a", "2"), secret("b", strings.Repeat("y", 10_000)), secret("c", "2")},
	}
	known := map[string]bool{}
	for _, w := range states {
		s.export(w)
		known[contents(s.root)] = true
	}
	quit := make(chan struct{})
	var looks atomic.Int64
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
			}
			switch got := contents(s.root); {
			case got == "":
			case !known[got]:
				t.Errorf("neither of the two exports: %.200q", got)
			default:
				looks.Add(1)
			}
		}
	})
	for i := 0; i < 50 || looks.Load() < 50; i++ {
		s.export(states[i%2])
	}
	close(quit)
	reading.Wait()
}

// contents returns the contents of an export; "" if it was removed meanwhile.
func contents(root string) string {
	dir, err := os.OpenRoot(filepath.Join(root, "current"))
	if err != nil {
		return ""
	}
	defer dir.Close()
	var all strings.Builder
	for _, path := range []string{"sds/a.yaml", "sds/b.yaml", "sds/c.yaml"} {
		b, err := dir.ReadFile(path)
		if err != nil {
			return ""
		}
		all.Write(b)
	}
	return all.String()
}

// The disk is full during the first export.
func TestFullDiskAtFirstExport(t *testing.T) {
	s := open(t, t.TempDir(), Options{Settle: time.Nanosecond})
	s.dir.system = &fullDisk{disk: s.dir.system.(disk), n: 6}
	if _, err := s.Export(t.Context(), resourceList{eds("a"), assignment("a", 1)}.view(t)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if got := names(t, s.root); len(got) != 1 || len(names(t, filepath.Join(s.root, got[0]))) != 0 {
		t.Errorf("remaining files %q", got)
	}
}
