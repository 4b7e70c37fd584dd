// Package lazy finds resources when a stream asks for them. It wraps a store: a
// name that the store does not have is looked for by a [Resolver], and what is
// found is put into the store as a resource on demand, where all streams of the
// group find it. It knows neither gRPC nor generated code, and looks into no
// resource.
//
//	st := store.New(store.WithEmptyGroups()) // if all there is is found on demand
//	src, err := lazy.New(st, find, []*xds.Type{xds.VirtualHost})
//	go src.Run(ctx)
//	err = server.New(src).Register(g)
//
// While a name is looked for, nothing is said of it: the views are
// [xds.Undecided]. A name is looked for once at a time for each group, however
// many streams ask.
//
// # What is remembered
//
// A resource that was found stays for as long as a stream is subscribed to a
// name that finds it, and after that until there are too many ([WithLimit]); the
// one that nobody has been subscribed to for the longest time goes first. It is
// looked for again when [Source.Refresh] says so. A name that does not exist is
// remembered for a while ([WithAbsence]), then forgotten, or looked for again if
// a stream is still subscribed to it.
//
// # Concurrency
//
// A [Source] is safe for concurrent use, a [Watch] belongs to the goroutine of
// its stream. Nobody waits for a resolver, and no lock is held while it works.
// All goroutines end with the context of [Source.Run].
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

// A Query asks for a resource.
type Query struct {
	Group string // of the streams that asked, the first of those that they see: see [store.WithGroups]
	Type  *xds.Type
	Name  string
}

// A Resolver finds the resource that a name stands for, or returns nil if there
// is none. The resource must be sealed ([xds.Resource.Seal]) and have the name
// as its name or one of its aliases; it is on demand whether it says so or not.
// Names of the wildcard and of collections are not asked for.
//
// With an error nothing is decided, and the resolver is called again later. It
// is called by several goroutines, and must return when ctx is done. A panic is
// logged with its stack, and is an error like others.
type Resolver func(ctx context.Context, q Query) (*xds.Resource, error)

// A Source is a store that finds more when it is asked for it. It is made by
// [New]; the zero value and nil are of no use.
type Source struct {
	store    *store.Store
	resolver Resolver
	types    map[string]bool // by URL

	limit    int
	absence  time.Duration
	patience time.Duration
	parallel int
	log      *slog.Logger

	wake chan struct{} // one slot: Run has something to do

	mu      sync.Mutex // guards what follows; held for memory only
	entries map[key]*entry
	found   map[key]*holding // by the resource's own name
	queue   []*entry         // to be looked for, in this order
	due     timetable
	idle    list.List  // entries without users, the one that had none for the longest time first
	orphans []*holding // that lost their last name
	full    bool       // that was told

	// Owned by Run.
	running  int
	told     time.Time // when failures were logged
	failures int       // since then
}

// An Option changes what [New] makes. A nil one changes nothing.
type Option func(*Source)

// WithLimit sets how many names are remembered: 10,000 by default. A name that
// a stream is subscribed to is not forgotten. When there are so many of these,
// further names are told absent without being looked for, which is logged.
func WithLimit(names int) Option { return func(s *Source) { s.limit = max(names, 1) } }

// WithAbsence sets how long a name that does not exist is not looked for again:
// 30 s by default.
func WithAbsence(d time.Duration) Option { return func(s *Source) { s.absence = d } }

// WithPatience sets how long streams wait for a name to be found: 5 s by
// default. After that it is told absent, and looked for all the same. It is
// also how long a resolver may take; its context says so.
func WithPatience(d time.Duration) Option { return func(s *Source) { s.patience = d } }

// WithParallel sets how many names are looked for at the same time: 64 by
// default. Others wait for their turn.
func WithParallel(n int) Option { return func(s *Source) { s.parallel = max(n, 1) } }

// WithLogger sets where is logged that resolvers fail, once in 10 s at most, and
// that the limit is reached; slog.Default() unless set, or if it is nil.
func WithLogger(l *slog.Logger) Option { return func(s *Source) { s.log = cmp.Or(l, s.log) } }

// New returns a source of what st holds and, for resources of the types, of what
// the resolver finds. Nothing is found until [Source.Run] runs. A nil store, resolver or type, and
// no types at all, are errors.
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
		limit: 10_000, absence: 30 * time.Second, patience: 5 * time.Second, parallel: 64, log: slog.Default(),
		wake:    make(chan struct{}, 1),
		entries: map[key]*entry{}, found: map[key]*holding{},
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

// Refresh looks again for names of a group that are remembered, for instance
// because what they stand for has changed. Streams have what was found before
// until then. A name that nobody remembers needs no refreshing, nor does one of a nil type.
func (s *Source) Refresh(group string, t *xds.Type, names ...string) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if e := s.entries[key{group, t.URL, xds.CanonicalName(name)}]; e != nil {
			e.again = e.phase == running // it may have begun before the change
			s.enqueue(e)
		}
	}
}

func (s *Source) ring() {
	select {
	case s.wake <- struct{}{}:
	default: // it is going to look
	}
}
