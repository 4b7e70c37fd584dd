package dir

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/check/validate"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Source loads a directory into a group of a store, or into several, if there are
// directories in it that make groups of their own ([GroupFile]). It is made by [New]. Restore,
// Load and Run must not be called at the same time, and one after the other in this order.
type Source struct {
	opts  Options
	root  string
	store *store.Store
	force chan order // one slot

	*reader
	beside   beside
	examiner *validate.Validator // of what is asked about

	files    map[string]*file // as last seen
	home     *part            // of the root's group
	parts    map[string]*part // of all groups that were committed, by name; home among them
	layout   layout           // as last committed
	rules    *groups.Rules    // of that; nil: there never was a group besides the root's
	unready  []string         // groups whose rules are left out of these: see [plan.unready]
	checking bool             // nothing is served: every mistake is told, whosever it is

	held    atomic.Int64 // of removals, for others
	deaf    atomic.Bool  // the system does not tell of all changes
	expiry  expiry       // of what is served
	waiting waiting      // what the log was told of removals
	begun   bool         // the files were loaded once
	loaded  bool         // the last load did not fail
	err     error        // why nothing is what the files say
	failing failing      // what is known of err
	kept    Kept         // groups that are not what their files say, sorted by name
	keeping keeping      // what the log was told of them

	served  atomic.Pointer[served]  // what is served, for others
	seen    atomic.Pointer[seen]    // what the files say, for others
	holders atomic.Pointer[holders] // of secrets in it, for others
	doubted atomic.Pointer[doubted] // what is doubtful in what is served, for others

	warnings []findings.Problem // of the files as last seen
	stdin    []byte             // what was read from there, of a check
	untold   int                // warnings that these leave out
	missing  []findings.Problem // references of the groups to what they have not
	told     map[string]bool    // those that were logged
}

// New returns a source that loads the directory into st.
func New(root string, st *store.Store, opts Options) *Source {
	opts = opts.withDefaults()
	s := &Source{opts: opts, root: root, store: st, reader: newReader(opts.Types, opts.Most), force: make(chan order, 1), layout: newLayout(root)}
	s.beside = besides(opts.Types, opts.Bootstraps)
	s.home = s.newPart(groups.Default)
	s.parts = map[string]*part{groups.Default: s.home}
	s.examiner = validate.New(opts.Types, s.beside.secrets...)
	if opts.Validate {
		s.validator = s.examiner
	}
	return s
}

// A Report says what a load found and did.
type Report struct {
	Files  int
	Groups int     // directories with a [GroupFile], and the root; 0: there is none
	Counts []Count // in push order; of all groups
	Held   int     // resources that are gone from the files, and served until a second look agrees
	Commit store.Commit
	Took   time.Duration

	// Kept are the groups that stay as they were, since something is wrong with their files
	// and keeps nobody else's from changing ("on_error: alone"). Nil: there are none.
	Kept Kept

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
// is wrong it commits nothing; mistakes in files are [Errors], all of them. What is wrong with
// a group that is alone with its errors is in the report.
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
	if err == nil && r.Kept != nil {
		err = r.Kept
	}
	s.sees(time.Now(), err)
	news := err != nil || !s.loaded || len(r.Commit.Changes) > 0
	if s.loaded = err == nil; news && s.opts.Done != nil {
		if p := panics.Do(func() { s.opts.Done(time.Now(), err) }); p != nil {
			p.Log(s.opts.Log, "done")
		}
	}
}

func (s *Source) report(c store.Commit, start time.Time) Report {
	r := Report{Files: len(s.files), Held: int(s.held.Load()), Kept: s.kept, Commit: c, Took: time.Since(start), Warnings: s.doubts()}
	s.doubted.Store(&doubted{r.Warnings, len(s.counted(slices.DeleteFunc(slices.Clone(s.missing), func(p findings.Problem) bool { return p.Code != findings.Dangling })))})
	if s.rules != nil {
		r.Groups = len(s.layout.named)
	}
	worlds := make([]world, 0, len(s.parts))
	for _, p := range s.parts {
		worlds = append(worlds, p.world)
	}
	r.Counts = counts(worlds...)
	return r
}

// counts returns how many resources of each type there are.
func counts(worlds ...world) []Count {
	at := map[string]int{}
	var all []Count
	for _, w := range worlds {
		for url, c := range w.types {
			i, known := at[url]
			if !known {
				i = len(all)
				at[url], all = i, append(all, Count{Type: c.typ})
			}
			all[i].N += len(c.at)
		}
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), cmp.Compare(a.Type.URL, b.Type.URL))
	})
	return all
}

// Held returns how many resources are missing from the files, and served until a second
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
