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
	"slices"
	"time"

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
}

// A file is what was found in a file when it was last read.
type file struct {
	stamp
	settled bool // the stamp alone tells that it has not changed
	sum     [sha256.Size]byte
	emptied bool
	loaded  []Loaded
	errs    []Error
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
}

// A Count is the number of resources of a type.
type Count struct {
	Type *xds.Type
	N    int
}

// Load reads what has changed since the last load and commits it. If anything
// is wrong it commits nothing; mistakes in files are [Errors], all of them.
func (s *Source) Load() (Report, error) {
	report, err := s.load(false, &scanner{})
	s.done(report, err)
	return report, err
}

func (s *Source) done(r Report, err error) {
	if s.Done != nil && (err != nil || len(r.Commit.Changes) > 0) {
		s.Done(time.Now(), err)
	}
}

func (s *Source) load(force bool, sc *scanner) (Report, error) {
	start := time.Now()
	sc.scan(s.root)
	files := make(map[string]*file, len(sc.files))
	errs := sc.errs
	changed := len(sc.files) != len(s.files)
	for _, f := range sc.files {
		old := s.files[f.path]
		now, err := s.file(f, old, force)
		if err != nil {
			errs = append(errs, unread(f.path, err))
			now = &file{emptied: old != nil && (old.emptied || len(old.loaded) > 0)}
		}
		files[f.path] = now
		changed = changed || old == nil || old.sum != now.sum
		errs = append(errs, now.errs...)
	}
	s.files = files
	if !changed && len(errs) == 0 && s.err == nil {
		return s.report(store.Commit{}, start), nil
	}
	next, more := assemble(sc.files, files)
	if errs = append(errs, more...); len(errs) > 0 {
		errs.sort()
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
	r := Report{Files: len(s.files), Commit: c, Took: time.Since(start)}
	for _, t := range s.world.types {
		r.Counts = append(r.Counts, Count{t.typ, len(t.resources)})
	}
	slices.SortFunc(r.Counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Type.URL, b.Type.URL))
	})
	return r
}

// file returns what is in a file; old is what was in it, or nil.
func (s *Source) file(f found, old *file, force bool) (*file, error) {
	if old != nil && old.settled && old.stamp == f.stamp && !force {
		return old, nil
	}
	at := time.Now()
	data, stamp, err := read(f.path, s.MaxFile)
	if err != nil {
		return nil, err
	}
	// Clocks of file systems tick slowly: what was written just before it was
	// read may be written again under the same stamp.
	settled := at.Sub(stamp.mtime) > 2*time.Second
	sum := sha256.Sum256(data)
	if old != nil && old.sum == sum {
		old.stamp, old.settled = stamp, settled
		return old, nil
	}
	now := &file{stamp: stamp, settled: settled, sum: sum}
	if len(data) == 0 && old != nil && (old.emptied || len(old.loaded) > 0) {
		now.emptied = true
		return nil, errors.New("has become empty, which is what half a write looks like: delete it, or leave a comment in it")
	}
	now.loaded, now.errs = decode(f.path, data)
	return now, nil
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
	report, err := s.load(force, &scanner{enter: w.enter, touch: w.touch})
	w.end()
	s.done(report, err)
	switch {
	case err == nil && (force || was != nil || len(report.Commit.Changes) > 0):
		s.Log.Info("loaded", report.Attrs()...)
	case err != nil && (force || was == nil || was.Error() != err.Error()):
		s.tell(err)
	}
}

// tell logs why nothing was loaded, mistake by mistake.
func (s *Source) tell(err error) {
	const most = 20
	errs, ok := errors.AsType[Errors](err)
	if !ok {
		s.Log.Error("not loaded, what was good before stays", "error", err)
		return
	}
	s.Log.Error("not loaded, what was good before stays", "mistakes", len(errs))
	for i, e := range errs {
		if i == most {
			s.Log.Error("and more", "mistakes", len(errs)-most)
			break
		}
		s.Log.Error("mistake", "at", e.String(), "error", e.Text)
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
