// Package dircommit commits a directory to the revision store when its content changes. Any number of servers
// may watch the same directory; the one that holds the lease writes.
//
// A commit by another author stays until the content of the directory changes again, so a rollback is not
// undone. For that, the source of each revision made here names the content it was made from. A writer that was stopped for
// long, and does not know that another one was elected meanwhile, finds such a revision of somebody else, and
// writes nothing: no clock is part of that.
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

// Options are how a directory is read, and what its revisions say.
type Options struct {
	Dir   dir.Options           // but for Keep and Done, and what there is at a start is what the store has
	Note  func() revisions.Note // of the next revision; its Source may be a revision of git
	Log   *slog.Logger          // nil: slog.Default()
	Retry time.Duration         // how long it waits for the lease, or after an error, more or less; 0: 5 s
	Noted func(State)           // told of each change of the state; nil: nobody is
}

// A State says what a feeder does.
type State struct {
	Writes bool      // it has the lease: else another one has it, or nobody can have it
	Since  time.Time // of Writes
	Err    error     // why what the directory says is not committed; nil: it is, or another one writes
}

// A Feeder writes while it is elected. It is made by [New].
type Feeder struct {
	engine revisions.Engine
	repo   *revisions.Repository
	root   string
	opts   Options
	state  atomic.Pointer[State]
	src    atomic.Pointer[dir.Source] // nil: another one writes
}

// lease is the name of that of who writes.
const lease = "writer"

// New returns a feeder of what is in an engine, by a directory. It does nothing before Run.
func New(e revisions.Engine, r *revisions.Repository, root string, opts Options) *Feeder {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	opts.Retry = cmp.Or(opts.Retry, 5*time.Second)
	f := &Feeder{engine: e, repo: r, root: root, opts: opts}
	f.state.Store(&State{Since: time.Now()})
	return f
}

// State returns what it does now. It may be called by anyone at any time.
func (f *Feeder) State() State { return *f.state.Load() }

// Source is the directory of who writes; nil: another one does.
func (f *Feeder) Source() *dir.Source { return f.src.Load() }

func (f *Feeder) note(writes bool, err error) {
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

// Run writes whenever it is elected, until ctx is done.
func (f *Feeder) Run(ctx context.Context) {
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

// rest waits for a while, which differs from server to server, or for a bell.
func (f *Feeder) rest(ctx context.Context, bell <-chan struct{}) {
	t := time.NewTimer(f.opts.Retry/2 + rand.N(f.opts.Retry))
	defer t.Stop()
	select {
	case <-t.C:
	case <-bell:
	case <-ctx.Done():
	}
}

// errOusted says that another one was elected.
var errOusted = errors.New("another server has written meanwhile")

// write commits what the directory says, while it is held. An error says why it is to be so no longer.
func (f *Feeder) write(held context.Context) error {
	head, err := f.repo.Head(held)
	if err != nil {
		return err
	}
	w := &writer{Feeder: f, seen: head.Revision.Number}
	if w.last, err = f.last(held); err != nil {
		return err
	}
	bell := make(chan struct{}, 1)
	ring := func() {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	opts := f.opts.Dir
	opts.Keep = func(c dir.LastGood) { w.kept.Store(&c); ring() }
	opts.Done = func(_ time.Time, err error) { w.failed.Store(&err); ring() }
	src := dir.New(f.root, store.New(), opts)
	// So much that has gone is asked about: a directory that is not mounted is not to empty the store.
	if head.Revision.Number > 0 {
		if err := src.Restore(Config(head, head.Revision.Time)); err != nil {
			f.opts.Log.Warn("cannot compare the directory with the store", "dir", f.root, "error", err)
		} else {
			w.had = head.Revision.Items > 0
		}
	}
	report, err := src.Load()
	if err == nil && report.Rejected != nil { // a revision has no groups of another day
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

// A writer is a feeder while it has the lease. Its other fields are of the goroutine that writes.
type writer struct {
	*Feeder
	kept   atomic.Pointer[dir.LastGood] // of the directory; nil: as it was
	failed atomic.Pointer[error]        // of the last load
	last   string                       // the content that was committed last by whichever writer
	seen   revisions.Number             // up to that no revision is of another writer that is elected now
	tried  map[attempt]bool             // of what it is not known whether it was committed
	had    bool                         // the directory had something: if it has nothing now somebody has allowed that
}

// An attempt is a revision that may be there.
type attempt struct {
	number revisions.Number
	note   revisions.Note
}

// bad is why the directory was not loaded the last time.
func (w *writer) bad() error {
	if at := w.failed.Load(); at != nil {
		return *at
	}
	return nil
}

func (w *writer) loaded() bool { return w.bad() == nil }

// commit commits what was loaded, if it is something else than what was committed last by a writer.
func (w *writer) commit(ctx context.Context) error {
	c := w.kept.Load()
	if c == nil || !w.loaded() {
		return nil
	}
	items, err := Items(w.root, *c)
	if err != nil || len(items) == 0 && !w.had { // a directory that is not there yet says nothing
		return err
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
		if is == w.last { // an attempt was one
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
	return nil
}

// alone is an error if another writer has committed since. It finds out which of its own attempts was committed.
func (w *writer) alone(ctx context.Context) error {
	var found error
	err := w.repo.History(ctx, func(r revisions.Revision) bool {
		switch mark := revisionapi.MarkIn(r.Source); {
		case r.Number <= w.seen || mark == "":
		case w.tried[attempt{r.Number, r.Note}]:
			w.last = mark // the only one: an attempt is made of what was the newest
		default:
			found = fmt.Errorf("%w: %s, by %s", errOusted, r.Number, r.Author)
		}
		return r.Number > w.seen && found == nil
	})
	return errors.Join(found, err)
}

// last is the content that was committed last by a writer; "": that is not known.
func (f *Feeder) last(ctx context.Context) (is string, err error) {
	left := 1000
	err = f.repo.History(ctx, func(r revisions.Revision) bool {
		is = revisionapi.MarkIn(r.Source)
		left--
		return is == "" && left > 0
	})
	return is, err
}

// contentOf tells contents apart: by all that is served of them.
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
