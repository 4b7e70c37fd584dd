package store

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// DefaultGroup is the group of whoever names no other.
const DefaultGroup = "default"

// A Store holds resources by group and type. It is safe for concurrent use;
// create it with [New]. The zero value is a store without options; nil is none.
type Store struct {
	now  func() time.Time // nil: time.Now
	keep int              // commits in a log; 0: defaultLog

	emptyGroups bool                // what was never written is empty
	overs       bool                // each group has another one laid over it
	overOf      func(string) string // nil: that with its own name

	writing sync.Mutex // held by the transaction whose turn it is

	latest    atomic.Pointer[Commit]    // nil: there is none; stored under mu
	selection atomic.Pointer[selection] // nil: all nodes see DefaultGroup; stored by New, and under mu

	mu       sync.Mutex // guards what follows; held for memory only
	seq      uint64     // of the newest commit
	groups   map[string]*group
	overlays map[string]*group // by the names of their layers
	log      []Commit          // the newest ones, oldest first
	snapshot *Snapshot         // of seq, if anyone has asked for it
	unrung   map[*group]news   // groups whose doorbells are due
	ringing  bool              // the goroutine that rings is running
}

// An Option changes what [New] makes. A nil one changes nothing, nor does one that is given a nil function.
type Option func(*Store)

// WithClock says what time it is: when something was committed, and how old it
// is. It is [time.Now] by default.
func WithClock(now func() time.Time) Option {
	return func(st *Store) {
		if now != nil {
			st.now = now
		}
	}
}

// WithLog sets how many commits each group and [Store.Log] remember; 1,024 by
// default, at least 1. A watch that missed more commits of its group is told
// that anything may have changed.
func WithLog(commits int) Option {
	return func(st *Store) { st.keep = max(commits, 1) }
}

// WithEmptyGroups says that a group is empty before anything was written to it. By
// default it is not known then what is in it: its nodes are told nothing, and keep
// what they have, until a transaction writes to it, be it to say that it is empty
// ([Tx.Clear]). So a server that starts before its configuration is there tells no
// client that everything is gone.
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

// defaultLog is how many commits are remembered unless somebody says so.
const defaultLog = 1024

// clock says what time it is.
func (st *Store) clock() time.Time {
	if st.now == nil {
		return time.Now()
	}
	return st.now()
}

// Log returns the newest commits, oldest first. They tell counts, no names.
func (st *Store) Log() []Commit {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.log)
}

// Newest returns the newest commit, and false if there is none. It waits for nobody.
func (st *Store) Newest() (c Commit, ok bool) {
	if newest := st.latest.Load(); newest != nil {
		return *newest, true
	}
	return Commit{}, false
}

// Snapshot returns what the newest commit left, of all groups at once. It costs
// the number of groups if something was committed since it was last called, and
// nothing otherwise.
func (st *Store) Snapshot() *Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.snapshot == nil {
		s := &Snapshot{seq: st.seq, views: make(map[string]xds.Tables, len(st.groups)), overOf: st.overOf}
		for name, g := range st.groups {
			if view := g.head.Load().view; view != nil {
				s.views[name] = view
			}
		}
		st.snapshot = s
	}
	return st.snapshot
}

// A Snapshot is the content of a store after a commit. It is immutable and safe
// for concurrent use. Keeping one keeps all of its resources alive.
type Snapshot struct {
	seq    uint64
	views  map[string]xds.Tables
	overOf func(string) string
}

// Seq is the number of the commit; 0 before the first.
func (s *Snapshot) Seq() uint64 { return s.seq }

// Groups returns the names of the groups that have content, in order.
func (s *Snapshot) Groups() []string {
	names := slices.Sorted(maps.Keys(s.views))
	return slices.DeleteFunc(names, func(name string) bool { return IsOver(name) || bare(s.views[name]) })
}

// View returns what nodes see that see these groups, laid over each other in this order. It is nil
// if one of them does not exist. It must not be changed.
func (s *Snapshot) View(groups ...string) xds.Tables {
	heads := make([]*head, len(groups))
	for i, name := range groups {
		heads[i] = &head{view: s.views[name]}
	}
	if len(heads) == 1 {
		return heads[0].view
	}
	return laid(heads).view
}

// Seen is View with what is laid over each of the groups ([WithOvers]).
func (s *Snapshot) Seen(groups ...string) xds.Tables {
	all := make([]string, 0, 2*len(groups))
	for _, name := range groups {
		if over := overOf(s.overOf, name); s.views[over] != nil {
			all = append(all, over)
		}
		all = append(all, name)
	}
	return s.View(all...)
}
