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

// A fullDisk fails the nth change of the file system, and all that make
// something until room is made. A file is half written then.
type fullDisk struct {
	disk
	n      int  // of calls left; negative: no limit
	once   bool // then there is room again at once
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

// Whatever fails: the last export is in place, or the next one is, whole; the
// error says where; and with room again all is well.
func TestFullDisk(t *testing.T) {
	before := world{eds("a"), assignment("a", 1), eds("b"), assignment("b", 1), secret("s", "1")}
	after := world{eds("a"), assignment("a", 2), eds("b"), assignment("b", 1), secret("s", "2"), routes("r", "a")}
	whole := func(w world) map[string]string {
		s := open(t, t.TempDir(), Options{Prefix: "/x"})
		s.export(w)
		return s.read()
	}
	was, next := whole(before), whole(after)
	done := 0
	for n := 0; done < 2; n++ {
		if n > 200 {
			t.Fatal("never enough")
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
			case err == nil: // a link that could not be made: a copy serves
				if r.Written != 4 {
					t.Errorf("%+v", r)
				}
			case !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), full.failed+": no space left on device"):
				t.Errorf("error %q does not say that %s is full", err, full.failed)
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

// A journal notes what has to be on the disk before the next export is shown:
// the directories in which something was made since they were last synced.
type journal struct {
	disk
	dirty  map[string]bool
	swaps  int
	unsafe []string // that were dirty when it was shown
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

// What an export has outlasts a loss of power before anybody is led to it, and
// so does the link that leads there, once the export is done.
func TestLossOfPower(t *testing.T) {
	t.Run("FILE-5 directories are on the disk before the link leads to them", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{Prefix: "/x"})
		j := &journal{disk: s.dir.system.(disk), dirty: map[string]bool{}}
		s.dir.system = j
		for i := range uint32(3) {
			s.export(world{eds("a"), assignment("a", i), secret("s", "1"), routes("r", "a")})
		}
		if j.swaps != 3 || len(j.unsafe) > 0 || len(j.dirty) > 0 {
			t.Errorf("%d links led to what is not on the disk: %q; at the end %v is not", j.swaps, j.unsafe, j.dirty)
		}
	})
}

// A reader that comes at any moment finds one whole export.
func TestNoHalfOfAnExport(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	worlds := []world{
		{secret("a", strings.Repeat("x", 10_000)), secret("b", "1"), secret("c", "1")},
		{secret("a", "2"), secret("b", strings.Repeat("y", 10_000)), secret("c", "2")},
	}
	known := map[string]bool{}
	for _, w := range worlds {
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
				t.Errorf("neither the one nor the other: %.200q", got)
			default:
				looks.Add(1)
			}
		}
	})
	for i := 0; i < 50 || looks.Load() < 50; i++ {
		s.export(worlds[i%2])
	}
	close(quit)
	reading.Wait()
}

// contents is what is in the files of an export; "" if it was removed meanwhile.
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

// The first export there is.
func TestFullFromTheBeginning(t *testing.T) {
	s := open(t, t.TempDir(), Options{Settle: time.Nanosecond})
	s.dir.system = &fullDisk{disk: s.dir.system.(disk), n: 6}
	if _, err := s.Export(t.Context(), world{eds("a"), assignment("a", 1)}.view(t)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if got := names(t, s.root); len(got) != 1 || len(names(t, filepath.Join(s.root, got[0]))) != 0 {
		t.Errorf("left %q", got)
	}
}
