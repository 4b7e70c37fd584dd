// Package dir loads resources from the files of a directory into a store, and
// again whenever the directory changes. It interprets no resource: the files
// are Envoy's own, the names and references in them are data.
//
// A load is all or nothing. Any mistake in any file keeps what was loaded
// before, and every mistake is told with its place.
package dir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/internal/guard"
	"github.com/chancery-xds/chancery/internal/protofile"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options of a source. The zero value is ready to use.
type Options struct {
	// Log is told of each reload; slog.Default() if nil.
	Log *slog.Logger
	// MaxFile is the largest file that is read, in bytes; 64 MiB if zero.
	MaxFile int64
	// AllowMassDelete lets a reload remove more than half of the resources of a
	// type, or everything. Without it that is refused, since it is what an
	// unmounted volume or half a checkout looks like.
	AllowMassDelete bool
	// Poll is how often the directory is looked at when nothing hints at a
	// change; 30 s if zero.
	Poll time.Duration

	// Review, if set, is shown all resources of a load, in the order of the
	// files, before they are committed. What it returns is added; with an error,
	// such as [Errors], nothing is committed.
	Review func([]Loaded) ([]Loaded, error)
	// Done, if set, is told of each attempt to load that committed something,
	// or failed.
	Done func(at time.Time, err error)
}

// A Source loads a directory into the default group of a store. It is made by
// [New]. Load and Run must not be called at the same time.
type Source struct {
	Options
	root  string
	store *store.Store
	force chan struct{} // one slot

	files map[string]*file // as last seen
	world world            // as last committed
	err   error            // why the world is not what the files say

	warnings []protofile.Problem // of the files as last seen
	told     map[string]bool     // those that were logged
}

// A file is what was found in a file when it was last read.
type file struct {
	stamp
	settled bool // the stamp alone tells that it has not changed
	sum     [sha256.Size]byte
	emptied bool
	loaded  []Loaded

	errs, warnings []protofile.Problem

	more int // errors that errs leaves out
}

// New returns a source that loads the directory into st.
func New(root string, st *store.Store, opts Options) *Source {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	opts.MaxFile = cmp.Or(opts.MaxFile, 64<<20)
	opts.Poll = cmp.Or(opts.Poll, 30*time.Second)
	return &Source{Options: opts, root: root, store: st, force: make(chan struct{}, 1)}
}

// A Report says what a load found and did.
type Report struct {
	Files  int
	Counts []Count // in push order
	Commit store.Commit
	Took   time.Duration

	// Warnings tell what is doubtful in the files, sorted by place; of more than
	// a hundred the first. Run logs each once.
	Warnings []protofile.Problem
}

// A Count is the number of resources of a type.
type Count struct {
	Type *xds.Type
	N    int
}

// Load reads what has changed since the last load and commits it. If anything
// is wrong it commits nothing; mistakes in files are [Errors], all of them.
func (s *Source) Load() (Report, error) {
	report, err := s.guarded(false, &scanner{})
	s.done(report, err)
	return report, err
}

func (s *Source) done(r Report, err error) {
	if s.Done != nil && (err != nil || len(r.Commit.Changes) > 0) {
		if p := guard.Do(func() { s.Done(time.Now(), err) }); p != nil {
			p.Log(s.Log, "done")
		}
	}
}

func (s *Source) load(force bool, sc *scanner) (Report, error) {
	start := time.Now()
	next, changed, errs := s.look(force, sc)
	if !changed && errs == nil && s.err == nil {
		return s.report(store.Commit{}, start), nil
	}
	if errs != nil {
		s.err = errs
		return Report{}, s.err
	}
	if s.err = s.review(sc.files, next); s.err != nil {
		return Report{}, s.err
	}
	if s.err = s.world.guard(next, s.AllowMassDelete); s.err != nil {
		return Report{}, s.err
	}
	var commit store.Commit
	if commit, s.err = s.store.Update(func(tx *store.Tx) error { s.world.replace(tx, next); return nil }); s.err != nil {
		return Report{}, s.err
	}
	s.world = next
	return s.report(commit, start), nil
}

// look reads what has changed and returns what the files say now. It returns
// nothing of it if nothing has changed.
func (s *Source) look(force bool, sc *scanner) (next world, changed bool, _ Errors) {
	sc.scan(s.root)
	errs, more := sc.errs, 0
	files := s.read(sc.files, force)
	changed = len(files) != len(s.files) || len(errs) > 0
	var warnings []protofile.Problem
	for path, f := range files {
		changed = changed || f != s.files[path]
		errs = append(errs, f.errs...)
		warnings = append(warnings, f.warnings...)
		more += f.more
	}
	s.files = files
	s.warnings = summary(s.root, "warnings", warnings, 0)
	if !changed && len(errs) == 0 && s.err == nil {
		return world{}, false, nil
	}
	next, twice := assemble(sc.files, files)
	return next, true, summary(s.root, "mistakes", append(errs, twice...), more)
}

// read returns what is in files, by path: several at a time, since decoding is
// most of the work.
func (s *Source) read(order []found, force bool) map[string]*file {
	files := make([]*file, len(order))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(order) {
					return
				}
				files[i] = s.safely(order[i], s.files[order[i].path], force)
			}
		})
	}
	wg.Wait()
	byPath := make(map[string]*file, len(order))
	for i, f := range order {
		byPath[f.path] = files[i]
	}
	return byPath
}

// review shows Review what is about to be committed, and adds what it adds.
func (s *Source) review(order []found, next world) error {
	if s.Review == nil {
		return nil
	}
	var all []Loaded
	for _, f := range order {
		all = append(all, s.files[f.path].loaded...)
	}
	more, err := s.Review(all)
	for _, l := range more {
		next.add(l)
	}
	return err
}

func (s *Source) report(c store.Commit, start time.Time) Report {
	return Report{Files: len(s.files), Counts: s.world.counts(), Commit: c, Took: time.Since(start), Warnings: s.warnings}
}

func (w world) counts() []Count {
	var counts []Count
	for _, c := range w.types {
		counts = append(counts, Count{c.typ, len(c.at)})
	}
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Type.URL, b.Type.URL))
	})
	return counts
}

// had reports whether there was something in a file.
func had(old *file) bool { return old != nil && (old.emptied || len(old.loaded) > 0) }

// file returns what is in a file, which is old if that has not changed; old is
// what was in it, or nil.
func (s *Source) file(f found, old *file, force bool) *file {
	if old != nil && old.settled && old.stamp == f.stamp && !force {
		return old
	}
	at := time.Now()
	data, stamp, err := read(f.path, s.MaxFile)
	if err == nil && len(data) == 0 && had(old) {
		err = errors.New("has become empty, which is what half a write looks like: delete it, or leave a comment in it")
	}
	if err != nil {
		return &file{emptied: had(old), errs: []protofile.Problem{unread(f.path, err)}}
	}
	// Clocks of file systems tick slowly: what was written just before it was
	// read may be written again under the same stamp.
	settled := at.Sub(stamp.mtime) > 2*time.Second
	sum := sha256.Sum256(data)
	if old != nil && old.sum == sum {
		old.stamp, old.settled = stamp, settled
		return old
	}
	now := &file{stamp: stamp, settled: settled, sum: sum}
	d := decode(f.path, data)
	if d.died != nil {
		s.panicked(f.path, d.died)
	}
	for _, p := range d.Problems {
		if p.Warning {
			now.warnings = append(now.warnings, p)
		} else {
			now.errs = append(now.errs, p)
		}
	}
	now.loaded, now.more = d.loaded, d.Errors()-len(now.errs)
	return now
}

// Reload makes Run load at once, and look into each file whatever its date.
func (s *Source) Reload() {
	select {
	case s.force <- struct{}{}:
	default: // it is going to
	}
}

// Run reloads the directory whenever it has changed, until ctx is done. It is
// called after Load.
func (s *Source) Run(ctx context.Context) {
	w := newWatcher(s.Log, s.Poll)
	defer w.close()
	reload := func(force bool) { s.reload(force, w) }
	reload(false) // what changed since Load, and to watch
	pace{quiet: 100 * time.Millisecond, most: 2 * time.Second, poll: s.Poll}.run(ctx, w.bell, s.force, reload)
}

func (s *Source) reload(force bool, w *watcher) {
	was := s.err
	w.begin()
	report, err := s.guarded(force, &scanner{enter: w.enter, touch: w.touch})
	w.end()
	s.done(report, err)
	s.warn()
	switch {
	case err == nil && (force || was != nil || len(report.Commit.Changes) > 0):
		s.Log.Info("loaded", report.Attrs()...)
	case err != nil && (force || was == nil || was.Error() != err.Error()):
		s.tell(err)
	}
}

// warn logs the warnings that it has not logged yet.
func (s *Source) warn() {
	now := make(map[string]bool, len(s.warnings))
	for _, p := range s.warnings {
		line := p.Error()
		if now[line] = true; !s.told[line] {
			p.Warning = false // the level says it
			s.Log.Warn("accepted, but doubtful", "problem", p.Error())
		}
	}
	s.told = now
}

// tell logs why nothing was loaded, mistake by mistake.
func (s *Source) tell(err error) {
	errs, ok := errors.AsType[Errors](err)
	if !ok {
		s.Log.Error("not loaded, what was good before stays", "error", err)
		return
	}
	s.Log.Error("not loaded, what was good before stays", "mistakes", len(errs))
	for _, e := range errs {
		s.Log.Error("mistake", "error", e.Error())
	}
}

// Attrs returns the report as attributes of a log line.
func (r Report) Attrs() []any {
	var total int
	var types []any
	for _, c := range r.Counts {
		types = append(types, slog.Int(c.Type.String(), c.N))
		total += c.N
	}
	attrs := []any{"files", r.Files, "resources", total, slog.Group("types", types...)}
	var set, removed int
	for _, c := range r.Commit.Changes {
		set += c.Set
		removed += c.Removed
	}
	return append(attrs, "set", set, "removed", removed, "took", r.Took.Round(time.Millisecond).String())
}
