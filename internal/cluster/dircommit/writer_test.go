package dircommit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/source/dir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, root string, names ...string) {
	t.Helper()
	text := ""
	for _, name := range names {
		text += "---\n\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: " + name + "\n"
	}
	put(t, filepath.Join(root, "a.yaml"), text)
}

func put(t *testing.T, at, text string) {
	t.Helper()
	if err := os.WriteFile(at+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+"~", at); err != nil {
		t.Fatal(err)
	}
}

// A testStore is a store with writers.
type testStore struct {
	*testing.T
	at   string
	repo *revisions.Repository
	ring <-chan struct{}
}

func newPlace(t *testing.T) *testStore {
	t.Helper()
	p := &testStore{T: t, at: filepath.Join(t.TempDir(), "store")}
	e := p.engine()
	p.repo = revisions.Open(e, revisions.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	p.ring = e.Watch(ctx, "head")
	t.Cleanup(func() {
		cancel()
		for range p.ring {
		}
	})
	return p
}

func (p *testStore) engine() revisions.Engine {
	p.Helper()
	e, err := file.Open(p.at, nil)
	if err != nil {
		p.Fatal(err)
	}
	return e
}

// feed runs a writer until stop is called; states yields each state.
func (p *testStore) feed(name, root string, e revisions.Engine) (f *Writer, states <-chan State, stop func()) {
	p.Helper()
	told := make(chan State, 1000)
	f = New(e, revisions.Open(e, revisions.Options{}), root, Options{
		Dir: dir.Options{Log: slog.New(slog.DiscardHandler)}, Log: slog.New(slog.DiscardHandler), Retry: 10 * time.Millisecond,
		Note:  func() revisions.Note { return revisions.Note{Author: name, Message: "files", Source: "abc"} },
		Noted: func(s State) { told <- s },
	})
	ctx, cancel := context.WithCancel(p.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	p.Cleanup(stop)
	return f, told, stop
}

// until waits for a state.
func (p *testStore) until(states <-chan State, is func(State) bool) State {
	p.Helper()
	late := time.After(long)
	for {
		select {
		case s := <-states:
			if is(s) {
				return s
			}
		case <-late:
			p.Fatalf("no such state within %v", long)
		}
	}
}

// long limits the waits of a test.
const long = 30 * time.Second

func writes(s State) bool { return s.Writes }
func waits(s State) bool  { return !s.Writes }

// head waits for a revision, and checks its content.
func (p *testStore) head(n revisions.Number, author string, items int) *revisions.Snapshot {
	p.Helper()
	late := time.After(long)
	for {
		s, err := p.repo.Head(p.Context())
		if err != nil {
			p.Fatal(err)
		}
		if r := s.Revision; r.Number >= n {
			if r.Number != n || r.Author != author || r.Items != items {
				p.Fatalf("%s by %s, %d items; want %s by %s, %d", r.Number, r.Author, r.Items, n, author, items)
			}
			return s
		}
		select {
		case <-p.ring:
		case <-late:
			p.Fatalf("%s is the newest for %v, want %s", s.Revision.Number, long, n)
		}
	}
}

// Of several servers with the same directory one commits it. When it ends another takes over, and commits
// only changes. A commit of another author, such as a rollback, stays until the directory changes.
func TestOneWrites(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	write(t, root, "a")
	f, ana, stop := p.feed("ana", root, p.engine())
	p.until(ana, writes)
	if f.Source() == nil {
		t.Error("Source is nil while the server writes")
	}
	if got := p.head(1, "ana", 1).Revision.Source; !strings.HasPrefix(got, "abc, files ") {
		t.Errorf("source %q", got)
	}
	_, ben, _ := p.feed("ben", root, p.engine())
	if s := p.until(ben, waits); s.Err != nil {
		t.Error(s.Err)
	}
	write(t, root, "a", "b")
	p.head(2, "ana", 2)
	if _, err := p.repo.Restore(t.Context(), p.head(2, "ana", 2), 1, revisions.Note{Author: "eve", Message: "b is bad"}); err != nil {
		t.Fatal(err)
	}
	stop()
	if f.Source() != nil {
		t.Error("Source is not nil after the writer has stopped")
	}
	p.until(ben, writes)
	p.head(3, "eve", 1)
	write(t, root, "a", "b", "c")
	p.head(4, "ben", 3)
}

// slow is an engine that commits only after a token from let.
type slow struct {
	revisions.Engine
	let chan struct{}
}

func (s *slow) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	select {
	case <-s.let:
	case <-ctx.Done():
	}
	return s.Engine.CompareAndSwap(ctx, key, old, value)
}

// Loaded content is pending until its revision is served: a caller that waits after a reload waits for the commit.
func TestLoadedContentIsPending(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	write(t, root, "a")
	let := make(chan struct{}, 100)
	let <- struct{}{}
	let <- struct{}{}
	f, states, _ := p.feed("ana", root, &slow{p.engine(), let})
	p.until(states, writes)
	p.head(1, "ana", 1)
	for f.Pending(1) { // until the writer has the result of its commit
		p.until(states, writes)
	}
	if !f.Pending(0) {
		t.Error("not pending, but revision 1 is not served")
	}
	write(t, root, "a", "b")
	if _, err := f.Source().ReloadAndWait(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if !f.Pending(1) {
		t.Error("not pending, but the commit is not complete")
	}
	close(let)
	p.head(2, "ana", 2)
	for f.Pending(2) {
		p.until(states, writes)
	}
}

// stopped is an engine whose first lease is invisible to others and never ends. It imitates a
// suspended program that does not know that its lease has ended.
type stopped struct {
	revisions.Engine
	was atomic.Bool
}

func (s *stopped) Lease(ctx context.Context, name string) (context.Context, func(), error) {
	if s.was.Swap(true) {
		return s.Engine.Lease(ctx, name)
	}
	held, cancel := context.WithCancel(ctx)
	return held, cancel, nil
}

// A writer whose lease has ended unnoticed does not overwrite commits of its successor.
func TestSuspendedWriterOverwritesNothing(t *testing.T) {
	p, old, fresh := newPlace(t), t.TempDir(), t.TempDir()
	write(t, old, "a")
	_, states, stop := p.feed("old", old, &stopped{Engine: p.engine()})
	p.until(states, writes)
	p.head(1, "old", 1)
	write(t, fresh, "a", "b")
	_, next, _ := p.feed("new", fresh, p.engine())
	p.until(next, writes)
	p.head(2, "new", 2)
	write(t, old, "a", "x", "y")
	s := p.until(states, waits)
	stop()
	if s.Err == nil || !strings.Contains(s.Err.Error(), "another server has written meanwhile: r2, by new") {
		t.Error(s.Err)
	}
	p.head(2, "new", 2)
}

// An invalid directory, or one with a large removal, does not change the store.
func TestBadDirectory(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	var all []string
	for i := range 30 {
		all = append(all, fmt.Sprintf("c%d", i))
	}
	write(t, root, all...)
	_, states, stop := p.feed("ana", root, p.engine())
	p.until(states, writes)
	p.head(1, "ana", 30)
	stop()
	write(t, root, "c1")
	_, states, stop = p.feed("ben", root, p.engine())
	if s := p.until(states, writes); s.Err == nil || !strings.Contains(s.Err.Error(), "c") {
		t.Error(s.Err)
	}
	write(t, root, "c1\nx")
	p.until(states, func(s State) bool { return s.Err != nil && strings.Contains(s.Err.Error(), "a.yaml:") })
	p.head(1, "ana", 30)
	write(t, root, append(all, "more")...)
	p.head(2, "ben", 31)
	stop()
}

// An empty directory empties the store only after confirmation, also after a restart.
func TestEmptyDirectoryNeedsConfirmation(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	_, states, stop := p.feed("eve", root, p.engine())
	p.until(states, writes)
	stop()
	write(t, root, "a", "b", "c")
	_, states, stop = p.feed("ana", root, p.engine())
	p.until(states, writes)
	p.head(1, "ana", 3)
	empty := func() {
		t.Helper()
		if err := os.Remove(filepath.Join(root, "a.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	empty()
	p.until(states, func(s State) bool { return s.Err != nil })
	stop()
	f, states, stop := p.feed("ben", root, p.engine())
	if s := p.until(states, writes); s.Err == nil {
		t.Error("the removal needs no confirmation")
	}
	p.head(1, "ana", 3)
	if _, err := f.Source().ReloadAndWait(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	p.head(2, "ben", 0)
	p.until(states, func(s State) bool { return s.Err == nil })
	base := p.head(2, "ben", 0)
	write(t, root, "a")
	p.head(3, "ben", 1)
	stop()
	if _, err := p.repo.Restore(t.Context(), p.head(3, "ben", 1), base.Revision.Number, revisions.Note{Author: "eve", Message: "all is bad"}); err != nil {
		t.Fatal(err)
	}
	empty()
	_, states, stop = p.feed("ana", root, p.engine())
	if s := p.until(states, writes); s.Err != nil {
		t.Error(s.Err)
	}
	if _, err := p.repo.Restore(t.Context(), p.head(4, "eve", 0), 1, revisions.Note{Author: "eve", Message: "all is good"}); err != nil {
		t.Fatal(err)
	}
	write(t, root) // the directory changes, but is still empty
	time.Sleep(100 * time.Millisecond)
	p.head(5, "eve", 3)
	stop()
}

// A group that keeps its last good version prevents the commit: a revision must not mix groups of
// different times.
func TestGroupWithErrorsPreventsCommit(t *testing.T) {
	p, root := newPlace(t), t.TempDir()
	const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: "
	write(t, root, "a")
	edge := filepath.Join(root, "edge")
	if err := os.Mkdir(edge, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(edge, "group.yaml"), "on_error: alone\nmatch: {id: edge}\n")
	put(t, filepath.Join(edge, "e.yaml"), cluster+"e\n")
	_, states, stop := p.feed("ana", root, p.engine())
	p.until(states, writes)
	p.head(1, "ana", 3)
	stop()
	write(t, root, "a", "b")
	put(t, filepath.Join(edge, "e.yaml"), "name: [")
	_, states, _ = p.feed("ben", root, p.engine())
	if s := p.until(states, writes); s.Err == nil || !strings.Contains(s.Err.Error(), "edge/e.yaml:") {
		t.Error(s.Err)
	}
	p.head(1, "ana", 3)
	put(t, filepath.Join(edge, "e.yaml"), cluster+"e\n")
	p.head(2, "ben", 4)
}
