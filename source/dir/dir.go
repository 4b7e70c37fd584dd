package dir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/guard"
	"github.com/chancery-xds/chancery/internal/validate"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Source loads a directory into a group of a store. It is made by [New]. Restore, Load
// and Run must not be called at the same time, and one after the other in this order.
type Source struct {
	opts  Options
	root  string
	store *store.Store
	force chan order // one slot

	*reader
	beside beside

	files    map[string]*file // as last seen
	world    world            // as last committed
	removals removals         // of what was committed
	held     atomic.Int64     // of removals, for others
	deaf     atomic.Bool      // the system does not tell of all changes
	expiry   expiry           // of what is served
	withheld []*xds.Type      // types of it that are not known
	waiting  waiting          // what the log was told of removals
	departed departed         // what was served lately, and is not any more
	begun    bool             // the files were loaded once
	loaded   bool             // the last load did not fail
	err      error            // why the world is not what the files say
	failing  failing          // what is known of err

	served  atomic.Pointer[world]   // the world, for others
	holders atomic.Pointer[holders] // of secrets in it, for others

	warnings []findings.Problem // of the files as last seen
	stdin    []byte             // what was read from there, of a check
	untold   int                // warnings that these leave out
	missing  []findings.Problem // references of the world to what it has not
	told     map[string]bool    // those that were logged
}

// A file is what was found in a file when it was last read.
type file struct {
	stamp
	settled bool // the stamp alone tells that it has not changed
	sum     [sha256.Size]byte
	emptied bool
	loaded  []Loaded

	errs, warnings []findings.Problem

	more, untold int // errors and warnings that these leave out
}

// New returns a source that loads the directory into st.
func New(root string, st *store.Store, opts Options) *Source {
	opts = opts.withDefaults()
	s := &Source{opts: opts, root: root, store: st, reader: newReader(opts.Types, opts.Most), force: make(chan order, 1), removals: removals{confirm: opts.Confirm}}
	s.beside = besides(opts.Types, opts.Bootstraps)
	if opts.Validate {
		s.validator = validate.New(opts.Types, s.beside.secrets...)
	}
	return s
}

// A Report says what a load found and did.
type Report struct {
	Files  int
	Counts []Count // in push order
	Held   int     // resources that are gone from the files, and served until a second look agrees
	Commit store.Commit
	Took   time.Duration

	// Warnings tell what is doubtful in the files, sorted by place; of more than
	// a hundred the first. Run logs each once.
	Warnings []findings.Problem
}

// A Count is the number of resources of a type.
type Count struct {
	Type *xds.Type
	N    int
}

// Load reads what has changed since the last load and commits it. If anything
// is wrong it commits nothing; mistakes in files are [Errors], all of them.
func (s *Source) Load() (Report, error) {
	report, err := s.guarded(order{}, &scanner{})
	s.done(report, err)
	return report, err
}

// An order is what a load is to do besides what every load does.
type order struct {
	force   bool           // look into each file whatever its date
	approve bool           // remove what goes
	done    chan<- outcome // nil: nobody waits
}

// An outcome is what became of an order.
type outcome struct {
	report Report
	err    error
}

func (s *Source) done(r Report, err error) {
	news := err != nil || !s.loaded || len(r.Commit.Changes) > 0
	if s.loaded = err == nil; news && s.opts.Done != nil {
		if p := guard.Do(func() { s.opts.Done(time.Now(), err) }); p != nil {
			p.Log(s.opts.Log, "done")
		}
	}
}

func (s *Source) load(o order, sc *scanner) (Report, error) {
	start := time.Now()
	next, changed, errs := s.look(o.force, sc)
	if !changed && errs == nil && !s.behind() {
		return s.report(store.Commit{}, start), nil
	}
	if errs != nil {
		s.err = errs
		return Report{}, s.err
	}
	if s.err = s.review(sc.files, next); s.err != nil {
		return Report{}, s.err
	}
	lost := s.removals.losses(start, s.world, next)
	gone := lost
	if s.opts.AllowMassDelete || o.approve {
		s.removals.approved()
		lost = nil // whatever it is, it is meant
	} else {
		if s.err = s.removals.refuse(lost, s.world, next, !s.begun, s.opts.HowToAllow); s.err != nil {
			return Report{}, s.err
		}
		s.removals.hold(start, lost, next)
	}
	s.hides(next)
	var commit store.Commit
	if commit, s.err = s.store.Update(func(tx *store.Tx) error {
		s.commit(tx.Group(s.opts.Group), next)
		return nil
	}); s.err != nil {
		s.hides(s.world)
		return Report{}, s.err
	}
	s.removals.committed(start, lost)
	s.held.Store(int64(s.removals.held))
	s.departed = s.departed.after(start, s.world, next)
	s.serves(next)
	if s.opts.References {
		s.missing = problems(next.dangling(s.shown, s.beside.has))
	}
	if s.opts.Keep != nil && (len(commit.Changes) > 0 || !s.begun) {
		s.opts.Keep(next.config(start, s.departed, &s.removals))
	}
	if !s.begun {
		s.since(gone)
	}
	s.begun = true
	return s.report(commit, start), nil
}

// commit writes what is new.
func (s *Source) commit(tx *store.Tx, next world) {
	s.world.replace(tx, next)
	for _, t := range s.withheld {
		if next.types[t.URL] == nil { // none of it is there but what the program has set
			tx.Replace(t, slices.Collect(s.store.Snapshot().View(s.opts.Group).Table(t).All())...)
		}
	}
	if s.withheld = nil; s.opts.AllowEmpty || len(s.world.types) > 0 {
		tx.Known()
	}
}

// behind reports whether the world is not what the files say.
func (s *Source) behind() bool { return !s.begun || s.err != nil || s.removals.held > 0 }

// look reads what has changed and returns what the files say now. It returns
// nothing of it if nothing has changed.
func (s *Source) look(force bool, sc *scanner) (next world, changed bool, _ Errors) {
	sc.outside, sc.option = s.opts.FollowLinksOutside, s.opts.called("FollowLinksOutside")
	sc.scan(s.root)
	files := s.read(sc.files, s.files, force)
	for again := 0; again < rereads && !maps.Equal(files, s.files) && !sc.still(s.root); again++ {
		files = s.read(sc.files, files, false)
	}
	return s.gather(sc, files)
}

// gather puts together what is in files.
func (s *Source) gather(sc *scanner, files map[string]*file) (next world, changed bool, _ Errors) {
	errs, more, untold := sc.errs, 0, 0
	changed, now := len(files) != len(s.files) || len(errs) > 0, time.Now()
	var warnings []findings.Problem
	for path, f := range files {
		changed = changed || f != s.files[path]
		errs = append(errs, f.errs...)
		warnings = append(warnings, f.warnings...)
		warnings = append(warnings, f.ending(now)...)
		more += f.more
		untold += f.untold
	}
	s.failing.moved = s.failing.moved || !maps.Equal(files, s.files)
	s.files, s.warnings, s.untold = files, warnings, untold
	if !changed && len(errs) == 0 && !s.behind() {
		return world{}, false, nil
	}
	next, twice := assemble(sc.files, files)
	if s.opts.Validate {
		twice = append(twice, next.sharing()...)
	}
	return next, true, s.summary("error", s.counted(append(errs, twice...)), more)
}

// rereads is how often files are read again that have changed while they were read, as
// a link that leads to another generation of all does: half of each is no configuration.
const rereads = 5

// read returns what is in files, by path, of which some were seen before: several at a
// time, since decoding is most of the work.
func (s *Source) read(order []found, before map[string]*file, force bool) map[string]*file {
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
				path := order[i].path
				files[i] = s.safely(order[i], cmp.Or(before[path], s.files[path]), force)
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
	if s.opts.Review == nil {
		return nil
	}
	var all []Loaded
	for _, f := range order {
		all = append(all, s.files[f.path].loaded...)
	}
	more, err := s.opts.Review(all)
	for _, l := range more {
		next.add(l)
	}
	return err
}

func (s *Source) report(c store.Commit, start time.Time) Report {
	return Report{Files: len(s.files), Counts: s.world.counts(), Held: s.removals.held, Commit: c, Took: time.Since(start), Warnings: s.doubts()}
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
	data, stamp, err := read(f.path, s.opts.MaxFile)
	if err == nil && len(data) == 0 && had(old) {
		err = errors.New("has become empty, which may be an unfinished write: delete the file, or leave a comment in it")
	}
	if err != nil {
		now := &file{emptied: had(old), errs: []findings.Problem{s.unread(f.path, err)}}
		if old != nil && old.emptied == now.emptied && slices.Equal(old.errs, now.errs) {
			return old // it cannot be read as before
		}
		return now
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
	s.fill(now, f.path, data)
	return now
}

// fill notes what is in a file.
func (s *Source) fill(now *file, path string, data []byte) {
	d := s.reader.decode(path, data)
	if d.died != nil {
		s.panicked(path, d.died)
	}
	for _, p := range d.Problems {
		if p.Warning {
			now.warnings = append(now.warnings, p)
		} else {
			now.errs = append(now.errs, p)
		}
	}
	now.loaded, now.more, now.untold = d.loaded, d.Errors()-len(now.errs), d.Warnings()-len(now.warnings)
	if !s.opts.V2 {
		now.errs = append(now.errs, ofV2(d.loaded, s.opts.called("V2"))...)
	}
}

// Held returns how many resources are gone from the files, and served until a second
// look agrees. It may be called by anyone at any time.
func (s *Source) Held() int { return int(s.held.Load()) }

// Deaf reports whether the system does not tell of all changes of the files, so that some
// are noticed when the files are looked at anyway. It may be called by anyone at any time.
func (s *Source) Deaf() bool { return s.deaf.Load() }

// Reload makes Run load at once, and look into each file whatever its date.
func (s *Source) Reload() {
	select {
	case s.force <- order{force: true}:
	default: // it is going to
	}
}

// Order loads as [Source.Reload] has it, and returns what was done. With approve it
// removes whatever is gone, at once. It waits for Run, until ctx is done.
func (s *Source) Order(ctx context.Context, approve bool) (Report, error) {
	done := make(chan outcome, 1)
	select {
	case s.force <- order{force: true, approve: approve, done: done}:
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
	select {
	case o := <-done:
		return o.report, o.err
	case <-ctx.Done():
		return Report{}, context.Cause(ctx)
	}
}

// Run reloads the directory whenever it has changed, until ctx is done. It is
// called after Load, also if that has failed: then it loads as soon as the files are good.
func (s *Source) Run(ctx context.Context) {
	w := newWatcher(s.opts.Log, s.opts.Poll)
	defer w.close()
	reload := func(o order) time.Time { return s.reload(o, w) }
	again := reload(order{}) // what changed since Load, and to watch
	pace{quiet: 100 * time.Millisecond, most: 2 * time.Second, poll: s.opts.Poll}.run(ctx, w.bell, s.force, again, reload)
}

// reload loads, and returns when to load again though nothing hints at a change;
// the zero time if it need not be sooner than usual.
func (s *Source) reload(o order, w *watcher) time.Time {
	was := s.err
	s.failing.moved = false
	w.begin()
	report, err := s.guarded(o, &scanner{enter: w.enter, touch: w.touch})
	w.end()
	s.deaf.Store(w.deaf)
	s.done(report, err)
	s.warn()
	switch {
	case err == nil && (o.force || was != nil || len(report.Commit.Changes) > 0):
		attrs := report.Attrs()
		if o.approve { // who asks later where it all went finds who allowed it
			attrs = append(attrs, "removals", "approved")
		}
		s.opts.Log.Info("loaded", attrs...)
	case err != nil && (o.force || was == nil || was.Error() != err.Error() || s.failing.due(time.Now())):
		s.Tell(err)
	}
	s.holding(time.Now())
	if o.done != nil {
		o.done <- outcome{report, err}
	}
	if err != nil {
		return time.Time{}
	}
	return s.removals.again
}

// warn logs the warnings that it has not logged yet.
func (s *Source) warn() {
	doubts := s.doubts()
	now := make(map[string]bool, len(doubts))
	for _, p := range doubts {
		line := p.Error()
		if now[line] = true; !s.told[line] {
			p.Warning = false // the level says it
			s.opts.Log.Warn("configuration warning", "code", p.Coded(), "problem", p.Error())
		}
	}
	s.told = now
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
