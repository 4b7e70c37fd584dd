// Package lazy resolves resources when a stream subscribes to them. It wraps a store: a [Resolver]
// looks for a name that the store does not have. The source puts the resource that the resolver
// finds into the store, as a resource on demand for all streams of the group. The package uses
// neither gRPC nor generated code, and does not decode resources.
//
//	st := store.New(store.WithEmptyGroups()) // if all resources are resolved on demand
//	src, err := lazy.New(st, find, []*xds.Type{xds.VirtualHost})
//	go src.Run(ctx)
//	err = server.New(src).Register(g)
//
// While a resolver looks for a name, clients get no response about it: the views are [xds.Undecided].
// For each group a name is resolved once at a time, however many streams subscribe to it.
//
// # Other writers
//
// A resolved resource is in the underlay of its group ([store.UnderlayOf]). So transactions of other writers, such
// as [store.Tx.Clear], do not delete it, also while the resolver is down. A resource that a writer sets in a
// group of the stream hides a resolved resource with the same name or alias. [Source.Refresh] resolves a name again.
//
// # Lifetime of resources
//
// A resolved resource stays while a stream is subscribed to one of its names. Without subscribers
// it stays until the number of names exceeds the limit ([WithLimit]). Then the name that has been
// without subscribers for the longest time is forgotten first. A name that does not exist is remembered for a while ([WithAbsentTTL]). Then it is
// resolved again if a stream is subscribed to it, and else forgotten.
//
// # Concurrency
//
// A [Source] is safe for concurrent use. A [Watch] belongs to the goroutine of its stream. No other
// goroutine waits for a resolver, and no lock is held while a resolver works. All goroutines end
// with the context of [Source.Run].
package lazy

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Query is the request for one resource.
type Query struct {
	Group string // the first of the groups that the subscribed streams see: see [store.WithGroups]
	Type  *xds.Type
	Name  string
}

// A Resolver returns the resource of a name, or nil if the resource does not exist. The resource
// must be sealed ([xds.Resource.Seal]). The query's name must be the name or an alias of the
// resource. The resource becomes a resource on demand, whatever its field OnDemand is. A Resolver
// is not called for the wildcard and for collections.
//
// After an error the name stays undecided, and the Resolver is called again later. Several
// goroutines may call a Resolver. It must return when ctx is done. A panic is logged with its stack
// and counts as an error.
type Resolver func(ctx context.Context, q Query) (*xds.Resource, error)

// A Source is a store that resolves missing resources. Create it with [New]; the zero value and nil
// cannot be used.
type Source struct {
	store    *store.Store
	resolver Resolver
	types    map[string]bool // by URL

	limit     int
	absentTTL time.Duration
	timeout   time.Duration
	parallel  int
	log       *slog.Logger

	wake chan struct{} // one slot: Run has work to do

	mu          sync.Mutex // guards the fields below; held for memory only
	entries     map[key]*entry
	stored      map[key]*storedResource // by the name of the resource
	queue       []*entry                // entries to resolve, in this order
	due         timetable
	idle        list.List         // entries without subscribers; the first has been without for the longest time
	orphans     []*storedResource // resources without a name that is remembered
	limitLogged bool              // the limit was logged

	// Owned by Run.
	running        int
	failuresLogged time.Time // when failures were last logged
	failures       int       // since then
}

// An Option changes a setting of [New]. A nil Option changes nothing.
type Option func(*Source)

// WithLimit sets how many names are remembered. The default is 10,000. A name with subscribers is not
// forgotten. If all names have subscribers, further names are reported as absent without being
// resolved, and this is logged.
func WithLimit(names int) Option { return func(s *Source) { s.limit = max(names, 1) } }

// WithAbsentTTL sets how long a name that does not exist is remembered before it is resolved again. The
// default is 30 s.
func WithAbsentTTL(d time.Duration) Option { return func(s *Source) { s.absentTTL = d } }

// WithTimeout sets how long a stream waits for a name, and the timeout of a resolver's context. The
// default is 5 s. After that time the name is reported as absent, and is still resolved.
func WithTimeout(d time.Duration) Option { return func(s *Source) { s.timeout = d } }

// WithParallel sets how many names are resolved at the same time. The default is 64. Further names wait
// in a queue.
func WithParallel(n int) Option { return func(s *Source) { s.parallel = max(n, 1) } }

// WithLogger sets the logger for failures of the resolver, at most one line in 10 s, and for reaching
// the limit. The default, also for nil, is slog.Default().
func WithLogger(l *slog.Logger) Option { return func(s *Source) { s.log = cmp.Or(l, s.log) } }

// New returns a source with the resources of st and, for the given types, the resources that the
// resolver finds. The resolver is called only while [Source.Run] runs. A nil store, resolver or
// type is an error, and so is an empty list of types.
func New(st *store.Store, resolver Resolver, types []*xds.Type, opts ...Option) (*Source, error) {
	switch {
	case st == nil:
		return nil, errors.New("lazy.New was given a nil store")
	case resolver == nil:
		return nil, errors.New("lazy.New was given a nil resolver")
	case len(types) == 0:
		return nil, errors.New("lazy.New was given no types: it would resolve nothing")
	case slices.Contains(types, nil):
		return nil, errors.New("lazy.New was given a nil type")
	}
	s := &Source{
		store: st, resolver: resolver, types: map[string]bool{},
		limit: 10_000, absentTTL: 30 * time.Second, timeout: 5 * time.Second, parallel: 64, log: slog.Default(),
		wake:    make(chan struct{}, 1),
		entries: map[key]*entry{}, stored: map[key]*storedResource{},
	}
	for _, t := range types {
		s.types[t.URL] = true
	}
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	return s, nil
}

// Refresh resolves names of a group again, for example because their resources have changed. Until
// then streams keep the present resources. Refresh ignores names that are not remembered, and a nil
// type.
func (s *Source) Refresh(group string, t *xds.Type, names ...string) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if e := s.entries[key{group, t.URL, xds.CanonicalName(name)}]; e != nil {
			e.refresh = e.phase == running // the present call may have begun before the change
			s.enqueue(e)
		}
	}
}

func (s *Source) ring() {
	select {
	case s.wake <- struct{}{}:
	default: // Run is already due
	}
}
