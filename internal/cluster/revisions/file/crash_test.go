package file

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/xds"
)

// A memory is a disk that loses power after some steps. Afterwards each unsynced name and file may be
// there, missing, or incomplete.
type memory struct {
	mu    sync.Mutex
	live  map[string]*inode // content by path
	safe  map[string]*inode // synced content by path
	left  int               // steps; negative: no loss of power
	steps int
	room  int // bytes; 0: no limit
	rng   *rand.Rand
}

type inode struct {
	dir    bool
	data   []byte
	synced []byte
}

var errPower = errors.New("loss of power")

func newMemory(rng *rand.Rand) *memory {
	return &memory{live: map[string]*inode{}, safe: map[string]*inode{}, left: -1, rng: rng}
}

// step is called before each change.
func (m *memory) step() error {
	m.steps++
	if m.left == 0 {
		return errPower
	}
	m.left--
	return nil
}

func (m *memory) Read(path string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return nil, errPower
	}
	if n := m.live[path]; n != nil && !n.dir {
		return slices.Clone(n.data), nil
	}
	return nil, fs.ErrNotExist
}

func (m *memory) List(dir string) (all []os.DirEntry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.live[dir]; n == nil {
		return nil, fs.ErrNotExist
	}
	for path, n := range m.live {
		if filepath.Dir(path) == dir {
			all = append(all, listed{filepath.Base(path), n.dir})
		}
	}
	return all, nil
}

type listed struct {
	name string
	dir  bool
}

func (l listed) Name() string               { return l.name }
func (l listed) IsDir() bool                { return l.dir }
func (l listed) Type() fs.FileMode          { return 0 }
func (l listed) Info() (fs.FileInfo, error) { return l, nil }
func (l listed) Size() int64                { return 0 }
func (l listed) Mode() fs.FileMode          { return 0 }
func (l listed) ModTime() time.Time         { return time.Time{} } // long ago
func (l listed) Sys() any                   { return nil }

func (m *memory) Mkdir(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[path] != nil {
		return fs.ErrExist
	}
	if err := m.step(); err != nil {
		return err
	}
	m.live[path] = &inode{dir: true}
	return nil
}

func (m *memory) Write(path string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[filepath.Dir(path)] == nil {
		return fs.ErrNotExist
	}
	if err := m.step(); err != nil { // to create it
		return err
	}
	n := &inode{}
	m.live[path] = n
	if m.room > 0 && m.used()+len(data) > m.room {
		return syscall.ENOSPC
	}
	for _, part := range [][]byte{data[:len(data)/2], data} {
		if err := m.step(); err != nil {
			return err
		}
		n.data = part
	}
	if err := m.step(); err != nil { // to sync it
		return err
	}
	n.synced = data
	return nil
}

// used returns the size of all files.
func (m *memory) used() (n int) {
	for _, is := range m.live {
		n += len(is.data)
	}
	return n
}

func (m *memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[from] == nil || m.live[filepath.Dir(to)] == nil {
		return fs.ErrNotExist
	}
	if err := m.step(); err != nil {
		return err
	}
	m.live[to] = m.live[from]
	delete(m.live, from)
	return nil
}

func (m *memory) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[path] == nil {
		return fs.ErrNotExist
	}
	if err := m.step(); err != nil {
		return err
	}
	delete(m.live, path)
	return nil
}

func (m *memory) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return err
	}
	for path := range m.all() {
		if filepath.Dir(path) == dir {
			if m.safe[path] = m.live[path]; m.live[path] == nil {
				delete(m.safe, path)
			}
		}
	}
	return nil
}

func (m *memory) all() map[string]bool {
	all := map[string]bool{}
	for _, of := range []map[string]*inode{m.live, m.safe} {
		for path := range of {
			all[path] = true
		}
	}
	return all
}

// after returns the content of the disk when the power is back.
func (m *memory) after() *memory {
	next := newMemory(m.rng)
	for _, path := range slices.Sorted(maps.Keys(m.all())) {
		n := m.safe[path]
		if m.rng.IntN(2) == 0 {
			n = m.live[path]
		}
		if n == nil || filepath.Dir(path) != "/" && next.live[filepath.Dir(path)] == nil {
			continue
		}
		data := n.synced
		if data == nil && len(n.data) > 0 { // a part of it, or nothing
			data = n.data[:m.rng.IntN(len(n.data)+1)]
		}
		at := &inode{dir: n.dir, data: data, synced: data}
		next.live[path], next.safe[path] = at, at
	}
	return next
}

func (m *memory) clone() *memory {
	next := newMemory(m.rng)
	next.live, next.safe = maps.Clone(m.live), maps.Clone(m.safe) // no file is changed after it was synced
	return next
}

func (m *memory) Lock(path string) (func(), error) { return system{}.Lock(path) }

func (m *memory) Hear(w *watch.Watcher, path string) { system{}.Hear(w, path) }

// crashing returns an engine on a memory; its locks are on a disk that does not fail.
func crashing(t *testing.T, m *memory) *Engine {
	e := &Engine{dir: "/store", disk: m, log: slog.Default(), poll: time.Hour, locks: t.TempDir()}
	if err := e.prepare(); err != nil && !errors.Is(err, errPower) {
		t.Fatal(err)
	}
	return e
}

func item(name string, size int, b byte) *revisions.Item {
	return &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, name, slices.Repeat([]byte{b}, size))}
}

func has(t *testing.T, s *revisions.Snapshot, want ...*revisions.Item) bool {
	t.Helper()
	if s.Len() != len(want) {
		return false
	}
	for _, it := range want {
		if got := s.Get(it.Key()); got == nil || got.Resource.Sum != it.Resource.Sum {
			return false
		}
	}
	return true
}

// Whenever the power fails, the next reader gets the revision before, or the one being committed,
// complete. If the commit had returned, it is the committed one. A sweep removes the rest.
func TestPowerLossKeepsWholeRevisions(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	olds := []*revisions.Item{item("a", 1000, 1), item("b", 1000, 1)}
	news := []*revisions.Item{item("a", 700_000, 2), item("b", 1000, 1), item("c", 10, 1)}
	ctx := t.Context()
	commit := func(m *memory, items []*revisions.Item) error {
		e := crashing(t, m)
		repo := revisions.Open(e, revisions.Options{})
		s, err := repo.Head(ctx)
		if err != nil {
			return err
		}
		if _, err = repo.Commit(ctx, s, s.To(items), revisions.Note{}); err == nil && s.Revision.Number > 0 {
			_, _ = repo.Sweep(ctx, 1) // it may fail half way, too
		}
		return err
	}
	first := newMemory(rng)
	first.live["/"], first.safe["/"] = &inode{dir: true}, &inode{dir: true}
	second := first.clone()
	if err := commit(second, olds); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		from     *memory
		was, are []*revisions.Item
	}{{"the first", first, nil, olds}, {"the second", second, olds, news}} {
		done, states := false, map[bool]int{}
		for n := 0; !done; n++ {
			m := c.from.clone()
			m.left = n
			err := commit(m, c.are)
			done = m.left > 0
			for range 10 {
				after := m.after()
				e := crashing(t, after)
				repo := revisions.Open(e, revisions.Options{})
				s, e2 := repo.Head(ctx)
				if e2 != nil {
					t.Fatalf("%s, after %d steps: %v", c.name, n, e2)
				}
				old, cur := has(t, s, c.was...), has(t, s, c.are...)
				if !old && !cur || err == nil && !cur {
					t.Fatalf("%s, after %d steps, commit %v: %s has the wrong content", c.name, n, err, s.Revision.Number)
				}
				states[cur]++
				s, e2 = repo.Commit(ctx, s, s.To(news[1:]), revisions.Note{})
				if e2 != nil || !has(t, s, news[1:]...) {
					t.Fatalf("%s, after %d steps: the next commit: %v", c.name, n, e2)
				}
				if _, e2 = repo.Sweep(ctx, 1); e2 != nil {
					t.Fatal(e2)
				}
				left := 0
				for range e.List(ctx, "") {
					left++
				}
				if left != 3 && left != 4 { // the head, its revision, its pack and perhaps the pack of an older page
					t.Fatalf("%s, after %d steps: %d keys are left", c.name, n, left)
				}
			}
		}
		t.Logf("%s: old %d times, new %d times", c.name, states[false], states[true])
		if states[true] == 0 || states[false] == 0 {
			t.Error("every loss of power led to the same content")
		}
	}
}

// On a full disk no commit succeeds, and a sweep makes room. A sweep that is interrupted leaves a whole store.
func TestSweepOfFullDisk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	m := newMemory(rng)
	m.live["/"], m.safe["/"] = &inode{dir: true}, &inode{dir: true}
	m.room = 2 << 20
	ctx := t.Context()
	for round := range 2 {
		e := crashing(t, m)
		repo := revisions.Open(e, revisions.Options{})
		s, err := repo.Head(ctx)
		for n := 1; err == nil; n++ {
			s, err = repo.Commit(ctx, s, s.To([]*revisions.Item{item("a", 90_000+n, byte(n))}), revisions.Note{})
		}
		m.mu.Lock()
		m.live["/store/other"] = &inode{data: make([]byte, m.room-m.used())}
		m.mu.Unlock()
		if !errors.Is(err, revisions.ErrFull) {
			t.Fatal(err)
		}
		for n := 0; ; n++ {
			lost := m.clone()
			lost.left, lost.room = n, m.room
			_, err := revisions.Open(crashing(t, lost), revisions.Options{}).Sweep(ctx, 1)
			done := lost.left > 0
			after := lost.after()
			repo := revisions.Open(crashing(t, after), revisions.Options{})
			if err := repo.History(ctx, func(revisions.Revision) bool { return true }); err != nil {
				t.Fatalf("SAFE-15 round %d, after %d steps: %v", round, n, err)
			}
			if done {
				if err != nil {
					t.Fatalf("SAFE-15 round %d: %v", round, err)
				}
				break
			}
		}
		swept, err := repo.Sweep(ctx, 1)
		if err != nil || swept.Revisions < 5 || m.live[e.reserve()] == nil {
			t.Fatalf("SAFE-15 round %d: %+v, %v", round, swept, err)
		}
		delete(m.live, "/store/other")
	}
}
