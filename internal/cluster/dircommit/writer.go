// Package dircommit commits a directory to the revision store when its content changes. Any number of
// servers may watch the same directory; the server that holds the lease writes.
//
// A commit by another author stays until the content of the directory changes again. So a writer does
// not undo a rollback. For this, each revision of a writer has a mark in its source: the hash of the
// content.
//
// A writer that was suspended may not know that another server was elected. It finds a marked
// revision of that server, and stops writing. So no clock is needed to detect it.
package dircommit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
)

// Options configure how a directory is read and committed.
type Options struct {
	Dir   dir.Options           // without Keep and Done; the source starts with the content of the store
	Note  func() revisions.Note // returns the note of the next revision; its Source may be a git commit
	Log   *slog.Logger          // nil: slog.Default()
	Retry time.Duration         // the approximate delay before another attempt; 0: 5 s
	Noted func(State)           // called after each change of the state; nil: no call
}

// A State is the state of a Writer.
type State struct {
	Writes bool      // this server has the lease; otherwise another server has it, or the store does not answer
	Since  time.Time // the time since when Writes has this value
	Err    error     // why the directory is not committed; nil: no error, or another server writes
}

// A Writer commits the directory while it holds the lease. [New] makes one.
type Writer struct {
	engine revisions.Engine
	repo   *revisions.Repository
	root   string
	opts   Options
	state  atomic.Pointer[State]
	src    atomic.Pointer[dir.Source] // nil: another server writes

	kept      atomic.Pointer[dir.LastGood] // the last good content of the directory in this term; nil: no load has changed it
	done      atomic.Pointer[dir.LastGood] // the content that is in the store, or needs no commit
	committed atomic.Uint64                // the newest revision that this server committed
}

// lease is the name of the writer's lease.
const lease = "writer"

// New returns a writer of a directory to an engine. It does nothing before Run.
func New(e revisions.Engine, r *revisions.Repository, root string, opts Options) *Writer {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	opts.Retry = cmp.Or(opts.Retry, 5*time.Second)
	f := &Writer{engine: e, repo: r, root: root, opts: opts}
	f.state.Store(&State{Since: time.Now()})
	return f
}

// State returns the current state. Any goroutine may call it.
func (f *Writer) State() State { return *f.state.Load() }

// Source returns the watched directory while this server writes; nil while it does not.
func (f *Writer) Source() *dir.Source { return f.src.Load() }

// Pending reports whether this server has loaded content of the directory that is not yet in the store, or is in
// a revision after the served one. It is false if an error prevents the commit: see [State]. Any goroutine may
// call it.
func (f *Writer) Pending(served revisions.Number) bool {
	return f.Source() != nil && f.State().Err == nil && (f.kept.Load() != f.done.Load() || uint64(served) < f.committed.Load())
}

func (f *Writer) note(writes bool, err error) {
	was := f.State()
	next := State{writes, was.Since, err}
	if was.Writes != writes {
		next.Since = time.Now()
	}
	f.state.Store(&next)
	if f.opts.Noted != nil {
		f.opts.Noted(next)
	}
}

// Run writes the directory to the store whenever it holds the lease, until ctx is done.
func (f *Writer) Run(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		held, release, err := f.engine.Lease(ctx, lease)
		if err == nil {
			f.opts.Log.Info("leadership gained: this server writes its directory to the store", "dir", f.root)
			err = f.write(held)
			release()
			if err == nil && ctx.Err() == nil {
				err = errors.New("the lease has ended")
			}
			f.src.Store(nil)
			if ctx.Err() == nil {
				f.opts.Log.Warn("leadership lost: this server no longer writes to the store", "dir", f.root, "error", err)
			}
		} else if !errors.Is(err, revisions.ErrBusy) && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			f.opts.Log.Error("cannot find out which server writes to the store", "dir", f.root, "error", err)
		}
		if errors.Is(err, revisions.ErrBusy) {
			err, said = nil, ""
		}
		f.note(false, err)
		f.rest(ctx, nil)
	}
}

// rest waits for the bell, or for about Retry. The time differs from server to server.
func (f *Writer) rest(ctx context.Context, bell <-chan struct{}) {
	t := time.NewTimer(f.opts.Retry/2 + rand.N(f.opts.Retry))
	defer t.Stop()
	select {
	case <-t.C:
	case <-bell:
	case <-ctx.Done():
	}
}

// errOusted means that another server was elected.
var errOusted = errors.New("another server has written meanwhile")

// write commits the directory while the lease is held. An error is the reason to release the lease.
func (f *Writer) write(held context.Context) error {
	head, err := f.repo.Head(held)
	if err != nil {
		return err
	}
	w := &term{Writer: f, seen: head.Revision.Number}
	w.last, err = f.last(held)
	if err != nil {
		return err
	}
	f.kept.Store(nil)
	f.done.Store(nil)
	bell := make(chan struct{}, 1)
	ring := func() {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	opts := f.opts.Dir
	opts.Keep = func(c dir.LastGood) { f.kept.Store(&c); ring() }
	opts.Done = func(_ time.Time, err error) { w.failed.Store(&err); ring() }
	src := dir.New(f.root, store.New(), opts)
	// A large removal needs confirmation: an unmounted directory must not empty the store.
	if head.Revision.Number > 0 {
		if err := src.Restore(Config(head, head.Revision.Time)); err != nil {
			f.opts.Log.Warn("cannot compare the directory with the store", "dir", f.root, "error", err)
		} else {
			w.had = head.Revision.Items > 0
		}
	}
	report, err := src.Load()
	if err == nil && report.Rejected != nil { // a revision must not mix groups of different times
		err = report.Rejected
	}
	if err != nil {
		src.LogError(err)
		w.failed.Store(&err)
	}
	f.src.Store(src)
	var running sync.WaitGroup
	defer running.Wait()
	held, cancel := context.WithCancel(held)
	defer cancel()
	running.Go(func() { src.Run(held) })
	for held.Err() == nil {
		err := w.commit(held)
		if held.Err() != nil || errors.Is(err, errOusted) {
			return err
		}
		if err != nil {
			f.opts.Log.Error("cannot commit the directory", "dir", f.root, "error", err)
			f.note(true, err)
			f.rest(held, bell)
			continue
		}
		f.note(true, w.bad())
		select {
		case <-bell:
		case <-held.Done():
		}
	}
	return nil
}

// A term is the work of a writer during one lease. The writing goroutine owns its fields, except the
// atomic ones.
type term struct {
	*Writer
	failed atomic.Pointer[error] // the error of the last load
	last   string                // the hash of the content that a writer committed last; "": unknown
	seen   revisions.Number      // up to this revision, no other elected writer has committed in this term
	tried  map[attempt]bool      // attempts with an unknown result
	had    bool                  // the directory had content in this term, so an empty one was confirmed
}

// An attempt is a revision that may have been committed.
type attempt struct {
	number revisions.Number
	note   revisions.Note
}

// bad returns the error of the last load.
func (w *term) bad() error {
	if at := w.failed.Load(); at != nil {
		return *at
	}
	return nil
}

func (w *term) loaded() bool { return w.bad() == nil }

// commit commits the loaded content, if it differs from the last commit of a writer.
func (w *term) commit(ctx context.Context) error {
	c := w.kept.Load()
	if c == nil || !w.loaded() {
		return nil
	}
	items, err := Items(w.root, *c)
	if err != nil {
		return err
	}
	if len(items) == 0 && !w.had { // a directory that was always empty is not committed
		w.done.Store(c)
		return nil
	}
	w.had = true
	is := contentOf(items)
	for is != w.last {
		base, err := w.repo.Head(ctx)
		if err != nil {
			return err
		}
		if err := w.alone(ctx); err != nil {
			return err
		}
		w.seen = base.Revision.Number
		if is == w.last { // an earlier attempt has succeeded
			break
		}
		note := w.opts.Note()
		note.Source = revisionapi.Mark(note.Source, is)
		next, err := w.repo.CommitIf(ctx, base, base.To(items), note)
		switch {
		case err == nil:
			if n := next.Revision; n.Number != base.Revision.Number {
				w.opts.Log.Info("directory was committed", "dir", w.root, "revision", n.Number.String(), "set", n.Set, "removed", n.Removed)
			}
			w.last, w.seen, w.tried = is, next.Revision.Number, nil
			w.committed.Store(uint64(next.Revision.Number))
		case errors.Is(err, revisions.ErrUnknown):
			if w.tried == nil {
				w.tried = map[attempt]bool{}
			}
			w.tried[attempt{base.Revision.Number + 1, note}] = true
			return err
		case !errors.Is(err, revisions.ErrConflict):
			return err
		}
	}
	w.done.Store(c)
	return nil
}

// alone returns an error if another elected writer has committed since w.seen. It also finds the
// attempt of this writer that succeeded.
func (w *term) alone(ctx context.Context) error {
	var found error
	err := w.repo.History(ctx, func(r revisions.Revision) bool {
		switch mark := revisionapi.MarkIn(r.Source); {
		case r.Number <= w.seen || mark == "":
		case w.tried[attempt{r.Number, r.Note}]:
			w.last = mark // at most one attempt succeeds, because each builds on the newest revision
		default:
			found = fmt.Errorf("%w: %s, by %s", errOusted, r.Number, r.Author)
		}
		return r.Number > w.seen && found == nil
	})
	return errors.Join(found, err)
}

// last returns the hash of the content that a writer committed last; "": unknown.
func (f *Writer) last(ctx context.Context) (is string, err error) {
	left := 1000
	err = f.repo.History(ctx, func(r revisions.Revision) bool {
		is = revisionapi.MarkIn(r.Source)
		left--
		return is == "" && left > 0
	})
	return is, err
}

// contentOf is a hash of all served content.
func contentOf(items []*revisions.Item) string {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b *revisions.Item) int { return a.Key().Compare(b.Key()) })
	h := sha256.New()
	text := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	for _, it := range items {
		k := it.Key()
		for _, s := range []string{k.Group, k.Type, k.Name, it.Version, string(it.Definition), fmt.Sprint(it.Secret)} {
			text(s)
		}
		if r := it.Resource; r != nil {
			text(r.Version + " " + r.Sum.String() + fmt.Sprint(r.OnDemand))
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}
