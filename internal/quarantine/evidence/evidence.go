// Package evidence records which versions of resources the clients of a group have accepted (HEAL-3). A
// client that refuses a version, and has accepted none, gets an earlier version that other clients
// accepted.
//
// A Book has a [Scope] for each set of clients that see the same resources. The lane of a rollout has the scope
// of its group: its clients fall back to the versions of the group, and their ACKs count when the group gets
// the version. The tables of a lane are not shown. For each type a scope has the
// current table, the versions that this table replaced, and the versions that clients accepted. A wildcard
// ACK is one pointer, whatever the size of the table. The cost of a commit is its number of changed names,
// once for each scope and not for each client.
//
// replaced.go records the tables that clients see, accept.go the ACKs, and clients.go the kinds and owners
// of the clients. before.go chooses the earlier versions. saved.go turns all of it into bytes and back.
package evidence

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

const (
	// MaxAge is how long a replaced version stays a candidate.
	MaxAge = 24 * time.Hour

	// MaxBack is the maximum number of candidates for a refused version.
	MaxBack = 3

	maxScopes   = 1000     // scopes of a book; the scope that was used least recently is dropped
	maxVersions = 6        // replaced versions of a name
	maxReplaced = 20_000   // replaced versions of a type in a scope
	maxNames    = 2 << 20  // names in the current tables of a book
	maxBytes    = 64 << 20 // bytes of the replaced versions of a book
	maxNamed    = 100_000  // names of a type in a scope that clients accepted by name
	maxAhead    = 10_000   // of these, names whose version only a lane has
	maxAgents   = 16       // kinds of clients of a type in a scope, with the kind others
	maxWorlds   = 4        // accepted tables of a kind of client
	maxMessages = 1024     // messages with names that are known
	maxAgent    = 256      // bytes of a kind of client
	maxChain    = 8        // earlier tables that a new scope looks at
)

// A Book is the evidence of a server. Its methods, and those of its scopes, are safe for concurrent use.
// The zero value is empty.
type Book struct {
	// Revision returns the revision of the configuration that set a version, for people; "": unknown. It must not
	// call the book. Nil: there are no revisions. Set it before the first use of the book.
	Revision func(groups string, t *xds.Type, name string, sum xds.Sum) string

	mu      sync.Mutex // held for memory access only
	scopes  map[scopeKey]*Scope
	foreign map[string][]*Scope // of other servers, by group
	changes []chan struct{}     // see Changed
	bytes   atomic.Int64        // of all replaced versions
	names   atomic.Int64        // in all current tables
	used    uint64              // counts calls of Scope
}

type scopeKey struct{ group, identity string }

// A Scope is the evidence of clients that see the same resources.
type Scope struct {
	book *Book
	key  scopeKey
	used uint64 // guarded by Book.mu

	mu      sync.Mutex // held for memory access only
	evicted bool       // only the streams that use the scope know it
	types   sync.Map   // from type URL to *evidence; values are added with mu held
}

// evidence is the evidence of a type in a scope. Scope.mu guards it, except for current.
type evidence struct {
	typ      *xds.Type
	current  atomic.Pointer[xds.Table]
	replaced map[string][]version // by name, newest first
	count    int                  // versions in replaced

	agents   []string              // see others
	owners   [maxAgents]ownerSet   // owners of the clients of a kind
	worlds   [maxAgents][]world    // tables that clients of a kind accepted as a whole, the newest last
	named    map[string]acceptance // accepted by name: current versions only
	ahead    map[string]acceptance // accepted by name: versions that only a lane has; not saved
	messages map[message]bool
	restored savedType // of an earlier run, until the first table

	elsewhere []savedType // what clients of other servers accepted
}

// Scope returns the scope of the clients of a group with an identity. Both may be empty.
func (b *Book) Scope(group, identity string) *Scope {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used++
	k := scopeKey{group, identity}
	s := b.scopes[k]
	if s == nil {
		if b.scopes == nil {
			b.scopes = map[scopeKey]*Scope{}
		}
		for len(b.scopes) >= maxScopes || len(b.scopes) > 0 && b.names.Load() > maxNames {
			b.evict()
		}
		s = &Scope{book: b, key: k}
		b.scopes[k] = s
	}
	s.used = b.used
	return s
}

// evict drops the scope that was used least recently. The book is locked.
func (b *Book) evict() {
	var oldest *Scope
	for _, s := range b.scopes {
		if oldest == nil || s.used < oldest.used {
			oldest = s
		}
	}
	delete(b.scopes, oldest.key)
	oldest.mu.Lock()
	defer oldest.mu.Unlock()
	oldest.evicted = true
	for e := range oldest.all {
		b.names.Add(-int64(e.size()))
		for _, vs := range e.replaced {
			for _, v := range vs {
				b.bytes.Add(-int64(len(v.Body)))
			}
		}
		e.replaced, e.count = map[string][]version{}, 0
	}
}

// others returns the other scopes of the same group.
func (b *Book) others(s *Scope) (all []*Scope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all = slices.Clone(b.foreign[s.key.group])
	for k, o := range b.scopes {
		if k.group == s.key.group && o != s {
			all = append(all, o)
		}
	}
	return all
}

// size returns the number of names in the current table.
func (e *evidence) size() int {
	if t := e.current.Load(); t != nil {
		return t.Len()
	}
	return 0
}

// visible returns the resource in the current table; nil: there is none.
func (e *evidence) visible(name string) *xds.Resource {
	if t := e.current.Load(); t != nil {
		return t.Lookup(name)
	}
	return nil
}

func (s *Scope) all(yield func(*evidence) bool) {
	s.types.Range(func(_, e any) bool { return yield(e.(*evidence)) })
}

func (s *Scope) find(t *xds.Type) *evidence {
	if e, ok := s.types.Load(t.URL); ok {
		return e.(*evidence)
	}
	return nil
}

// of returns the evidence of a type, and creates it. The scope is locked.
func (s *Scope) of(t *xds.Type) *evidence {
	e := s.find(t)
	if e == nil {
		e = &evidence{typ: t, replaced: map[string][]version{}, named: map[string]acceptance{}, ahead: map[string]acceptance{}, messages: map[message]bool{}}
		s.types.Store(t.URL, e)
	}
	return e
}
