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

// A Source loads a directory into a group of a store. If directories in it define groups of their own
// ([GroupFile]), it fills several groups. [New] makes one.
//
// Call Restore, Load and Run in this order, and never two of them at the same time. All other methods
// may be called from any goroutine at any time.
type Source struct {
	opts  Options
	root  string
	store *store.Store
	force chan order // requests of Reload and Order; has one slot

	*reader
	bootstraps       *bootstrapSet
	secretsRound     int                 // counts the changes of secrets of bootstraps
	examineValidator *validate.Validator // for Examine, also if Options.Validate is off

	files       map[string]*file // as last read
	order       []found          // of files
	home        *part            // the group of the root
	parts       map[string]*part // all committed groups, by name, including home
	layout      layout           // as last committed
	rules       *groups.Rules    // the rules of layout; nil: only the root has ever been a group
	neverLoaded []string         // groups that the rules leave out: see [plan.neverLoaded]
	checking    bool             // a check without serving: it reports every mistake, also of groups with "on_error: alone"

	held          atomic.Int64   // number of delayed removals; read by other goroutines
	heldUntil     atomic.Int64   // when the last of them is due, in nanoseconds; read by other goroutines
	missesChanges atomic.Bool    // the system does not report all changes of files
	expiry        expiry         // of certificates in the served resources
	delayLog      delayLog       // log lines about delayed removals
	last          lastChange     // the last change of the files
	pending       bool           // the last load was postponed
	waiting       missingWaiting // of the changes, for missing resources
	loadedOnce    bool           // the files were loaded at least once
	loaded        bool           // the last load succeeded
	err           error          // why the last load failed
	failing       failing        // since when loads fail, and when that was logged
	rejected      RejectedGroups // rejected groups, sorted by name
	rejectionLog  rejectionLog   // log lines about them

	served         atomic.Pointer[served]         // the served configuration, for other goroutines
	lastRead       atomic.Pointer[lastRead]       // the files as last read, for other goroutines
	holders        atomic.Pointer[secretHolders]  // served resources with secrets, for other goroutines
	servedWarnings atomic.Pointer[servedWarnings] // warnings of the served configuration, for other goroutines

	warnings        []findings.Problem // of the files as last read
	stdin           []byte             // the input of a check that read standard input
	omittedWarnings int                // number of warnings beyond Options.MaxProblems that were not kept
	missing         []findings.Problem // warnings that need all resources: see Source.doubts
	unresolved      func() []dangling  // references of the served configuration to missing resources; nil: nothing is served
	loggedWarnings  map[string]bool    // warnings that were logged, as text
}

// New returns a source that loads the directory into st.
func New(root string, st *store.Store, opts Options) *Source {
	opts = opts.withDefaults()
	s := &Source{opts: opts, root: root, store: st, reader: newReader(opts.Types, opts.MaxProblems), force: make(chan order, 1), layout: newLayout(root)}
	s.bootstraps = newBootstrapSet(opts.Types, opts.Bootstraps, nil, nil, nil, nil)
	s.home = s.newPart(groups.Default)
	s.parts = map[string]*part{groups.Default: s.home}
	s.examineValidator = validate.New(opts.Types, s.bootstraps.secrets()...)
	if opts.Validate {
		s.validator = s.examineValidator
	}
	return s
}

// A Report describes the result of a load.
type Report struct {
	Files  int
	Groups int     // directories with a [GroupFile], plus the root; 0: no directory has one
	Counts []Count // in push order; of all groups together
	Held   int     // resources that are missing from the files, and served until a later look confirms the removal
	Commit store.Commit
	Took   time.Duration

	// Rejected are the rejected groups: their files have errors, and they have "on_error: alone", so
	// the other groups were loaded. Nil: no group was rejected.
	Rejected RejectedGroups

	// Warnings are the warnings of the files, sorted by place. Options.MaxProblems limits their number. Run
	// logs each once.
	Warnings []findings.Problem
}

// A Count is the number of resources of a type.
type Count struct {
	Type *xds.Type
	N    int
}

// Load reads the files that changed since the last load, and commits the result. If there is any
// mistake it commits nothing, and returns all mistakes as [Errors]. The report has the mistakes of
// groups with "on_error: alone".
func (s *Source) Load() (Report, error) {
	report, err := s.loadSafely(func() (Report, error) { return s.load(order{}, &scanner{}) })
	s.done(report, err)
	return report, err
}

// An order asks for a load with options.
type order struct {
	force   bool           // read each file, whatever its modification time
	approve bool           // allow all removals
	done    chan<- outcome // receives the result; nil: no caller waits

	// Of loads that Run begins by itself:
	mayWait   bool   // the load may commit nothing, because it is postponed
	unsettled bool   // the files may be in the middle of a change: the load commits none
	replaced  string // the real path of the only file that a rename replaced: see [Source.loadReplaced]; "": load all
}

// An outcome is the result of an order.
type outcome struct {
	report Report
	err    error
}

// done records the result of a load, and calls Options.Done if the result is news.
func (s *Source) done(r Report, err error) {
	if err == nil && r.Rejected != nil {
		err = r.Rejected
	}
	s.publishRead(time.Now(), err)
	news := err != nil || !s.loaded || len(r.Commit.Changes) > 0
	s.loaded = err == nil
	if news && s.opts.Done != nil {
		if p := panics.Do(func() { s.opts.Done(time.Now(), err) }); p != nil {
			p.Log(s.opts.Log, "done")
		}
	}
}

// report returns the report of a load that succeeded.
func (s *Source) report(c store.Commit, start time.Time) Report {
	r := Report{Files: len(s.files), Held: int(s.held.Load()), Rejected: s.rejected, Commit: c, Took: time.Since(start), Warnings: s.allWarnings()}
	s.servedWarnings.Store(&servedWarnings{r.Warnings, s.countDangling()})
	if s.rules != nil {
		r.Groups = len(s.layout.named)
	}
	worlds := make([]groupContent, 0, len(s.parts))
	for _, p := range s.parts {
		worlds = append(worlds, p.content)
	}
	r.Counts = counts(worlds...)
	return r
}

// counts returns the number of resources of each type.
func counts(worlds ...groupContent) []Count {
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

// Held returns how many resources are missing from the files, and served until a later look confirms
// the removal.
func (s *Source) Held() int { return int(s.held.Load()) }

// HeldUntil returns the number of [Source.Held], and when these resources are removed, if they are still
// missing then.
func (s *Source) HeldUntil() (n int, until time.Time) {
	return s.Held(), time.Unix(0, s.heldUntil.Load())
}

// MissesChanges reports whether the operating system does not report all changes of the files. Then the source
// notices some changes only at its regular look at the files ([Options.Poll]).
func (s *Source) MissesChanges() bool { return s.missesChanges.Load() }

// Reload makes Run load at once, and read each file whatever its modification time.
func (s *Source) Reload() {
	select {
	case s.force <- order{force: true}:
	default: // a reload is already requested
	}
}

// ReloadAndWait does the same as [Source.Reload], waits for the result and returns it. With approve, all
// missing resources are removed at once. It waits until Run has loaded or ctx is done.
func (s *Source) ReloadAndWait(ctx context.Context, approve bool) (Report, error) {
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
