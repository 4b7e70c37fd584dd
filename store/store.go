package store

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// DefaultGroup is the group of nodes for which no other group is chosen.
const DefaultGroup = "default"

// A Store holds resources by group and type. It is safe for concurrent use. Create it with [New]. The zero
// value is a store without options.
type Store struct {
	now  func() time.Time // nil: time.Now
	keep int              // commits in a log; 0: defaultLog

	emptyGroups  bool                // groups that were never written are empty, not unknown
	overlays     bool                // each group has an overlay
	overlayGroup func(string) string // the group whose overlay a group has; nil: its own

	writing sync.Mutex // held by the running transaction

	latest    atomic.Pointer[Commit]    // nil: no commit yet; stored under mu
	selection atomic.Pointer[selection] // nil: all nodes see DefaultGroup; stored by New, and under mu

	mu         sync.Mutex // guards the fields below; held for memory operations only
	seq        uint64     // of the newest commit
	groups     map[string]*group
	composites map[string]*group // composites, by the key of their layers
	log        []Commit          // the newest commits, oldest first
	snapshot   *Snapshot         // the content after commit seq; nil: not made yet
	dueRings   map[*group]news   // groups whose watches must be signalled
	ringing    bool              // the goroutine of ringLoop is running
}

// An Option sets a property of a store that [New] makes. A nil Option changes nothing, and so does a nil
// function in an option.
type Option func(*Store)

// WithClock sets the clock for the times of commits and for the age of old tables. The default is
// [time.Now].
func WithClock(now func() time.Time) Option {
	return func(st *Store) { st.now = now }
}

// WithLog sets how many commits each group and [Store.Log] remember. The default is 1,024 and the
// minimum is 1. If a watch has missed more commits of its group, Next reports that any name may
// have changed.
func WithLog(commits int) Option {
	return func(st *Store) { st.keep = max(commits, 1) }
}

// WithEmptyGroups makes groups count as empty before the first write to them. By default the
// content of such a group is unknown: its nodes get no response and keep their resources, until a
// transaction writes to the group or marks it as empty ([Tx.Clear]). So a server that starts before
// its configuration is loaded does not remove all resources of its clients.
func WithEmptyGroups() Option {
	return func(st *Store) { st.emptyGroups = true }
}

// New returns an empty store.
func New(opts ...Option) *Store {
	st := &Store{}
	for _, o := range opts {
		if o != nil {
			o(st)
		}
	}
	return st
}

// defaultLog is how many commits are remembered without [WithLog].
const defaultLog = 1024

// clock returns the current time.
func (st *Store) clock() time.Time {
	if st.now == nil {
		return time.Now()
	}
	return st.now()
}

// Log returns the newest commits, oldest first. They have counts of resources, not names.
func (st *Store) Log() []Commit {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.log)
}

// Newest returns the newest commit, or false if there is none. It does not wait for a transaction.
func (st *Store) Newest() (c Commit, ok bool) {
	if newest := st.latest.Load(); newest != nil {
		return *newest, true
	}
	return Commit{}, false
}

// Snapshot returns the content of all groups after the newest commit. The first call after a commit costs
// time for each group. Later calls return the same snapshot.
func (st *Store) Snapshot() *Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.snapshot == nil {
		s := &Snapshot{seq: st.seq, views: make(map[string]xds.Tables, len(st.groups)), overlayGroup: st.overlayGroup}
		for name, g := range st.groups {
			if view := g.head.Load().view; view != nil {
				s.views[name] = view
			}
		}
		st.snapshot = s
	}
	return st.snapshot
}

// A Snapshot is the content of a store after a commit. A Snapshot is immutable and safe for
// concurrent use. It keeps all its resources in memory.
type Snapshot struct {
	seq          uint64
	views        map[string]xds.Tables
	overlayGroup func(string) string
}

// Seq returns the number of the commit, or 0 before the first commit.
func (s *Snapshot) Seq() uint64 { return s.seq }

// Groups returns the names of the groups that have content, sorted.
func (s *Snapshot) Groups() []string {
	names := slices.Sorted(maps.Keys(s.views))
	return slices.DeleteFunc(names, func(name string) bool { return IsOverlay(name) || hasNoContent(s.views[name]) })
}

// View returns the resources for nodes that see these groups, the first group first. The result is
// nil if the content of one of the groups is unknown. The caller must not change it.
func (s *Snapshot) View(groups ...string) xds.Tables {
	heads := make([]*head, len(groups))
	for i, name := range groups {
		heads[i] = &head{view: s.views[name]}
	}
	return mergeHeads(heads).view
}

// Effective returns the same as [Snapshot.View], with the overlays of the groups ([WithOverlays]) and their
// underlays ([Store.WatchWithUnderlay]).
func (s *Snapshot) Effective(groups ...string) xds.Tables {
	all := make([]string, 0, 2*len(groups))
	for _, name := range groups {
		if over := overlayFor(s.overlayGroup, name); s.views[over] != nil {
			all = append(all, over)
		}
		all = append(all, name)
	}
	for _, name := range groups {
		if under := UnderlayOf(name); s.views[under] != nil {
			all = append(all, under)
		}
	}
	return s.View(all...)
}
