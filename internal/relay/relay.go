// Package relay serves the resources of another xDS server, the upstream: a [client.Client] fills a store. The
// interest of the server's streams decides what the client requests. Each name is requested once, however many
// streams want it, and dropped some time after the last of them.
//
// A wildcard or a name is undecided ([xds.Undecided]) until the upstream has answered, or the client's disk has it.
// That a type is empty, or has become empty, is passed on only after it has lasted for some seconds
// ([Options.Confirm]): a server that has just restarted may have lost its state.
//
// # Concurrency
//
// A [Source] is safe for concurrent use. A [Watch] belongs to the goroutine of its stream. Only the goroutine of
// [Source.Run] calls the client and writes to the store. Streams record their interest under a lock that is held
// for memory only.
package relay

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options change what [New] makes.
type Options struct {
	// Linger is how long a name is requested after the last stream that wanted it. Zero: a minute.
	Linger time.Duration

	// Confirm is how long a type must be empty before clients get the removals, and how long a removed
	// resource stays while other resources refer to it. Zero: 5 s.
	Confirm time.Duration

	// Refs returns the references of a resource, for make before break. If it is nil, or returns nil, the
	// resource may refer to any other.
	Refs func(*xds.Resource) []xds.Ref

	// Refused returns the resources that clients refuse. If it is set, [Source.Check] must be (a part of)
	// the client's check, and [Source.Refused] must be called when the result changes. Nil: refusals of
	// clients are not passed up.
	Refused func() []Refusal

	// Limits limit the names that are requested from the upstream at a time.
	Limits Limits

	// Shown limits the memory of the resources in the store, in bytes (SAFE-14): beyond it, removals are
	// passed on at once. Zero: no limit.
	Shown int

	// Owner returns the owner of a stream, by its context. If all owners together exceed a limit, the one
	// that wants most loses a stream. Nil: all streams have the same owner.
	Owner func(context.Context) string

	// Committed is called after each commit, and when the source has become ready, by the goroutine of
	// Run. Nil: no call.
	Committed func()

	// Log gets messages for the operator. Nil: nothing is logged.
	Log *slog.Logger
}

// maxLingering limits how many unwanted names stay requested: beyond it, the oldest are dropped at once.
const maxLingering = 10_000

// A Source serves the resources of an upstream. It is made by [New].
type Source struct {
	store  *store.Store
	client *client.Client
	opts   Options
	wake   chan struct{} // one slot: Run has something to do

	ready  atomic.Bool
	moved  atomic.Bool // the result of Options.Refused may have changed
	doubts doubts
	known  atomic.Pointer[map[string]bool] // type URLs whose list of resources is known; the map is immutable

	mu      sync.Mutex // guards the fields below, and the interest and decisions in them; held for memory only
	types   map[string]*kind
	watches map[*Watch]bool
	dirty   []*name     // names whose users have changed
	idle    []abandoned // names without users, the oldest first; some may have users again
	asks    int         // requested types
	weight  int         // of all requested names, in bytes
	full    bool        // the wanted names exceed the limits: unwanted names are dropped at once

	*state // owned by Run
}

// A state is owned by the goroutine of Run.
type state struct {
	follow *client.Follower
	look   time.Time // when Options.Refused is called next; zero: not before a change
	passed time.Time // when names were last requested again
	shown  int       // bytes of memory of the resources in the store
}

// New returns a source of the resources of the client's servers. It needs a store without another writer.
// The caller closes the client.
func New(st *store.Store, c *client.Client, o Options) *Source {
	if o.Linger == 0 {
		o.Linger = time.Minute
	}
	if o.Confirm == 0 {
		o.Confirm = 5 * time.Second
	}
	o.Limits = o.Limits.orDefault()
	if o.Owner == nil {
		o.Owner = func(context.Context) string { return "" }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	// An empty view, in which all is undecided, lets streams state their interest.
	if _, err := st.Update(func(tx *store.Tx) error { tx.MarkKnown(); return nil }); err != nil {
		panic(err) // an empty commit cannot fail
	}
	s := &Source{
		store: st, client: c, opts: o, wake: make(chan struct{}, 1), types: map[string]*kind{}, watches: map[*Watch]bool{},
		state: &state{follow: c.Follow()},
	}
	s.known.Store(&map[string]bool{})
	return s
}

// Run requests the wanted names, and passes their resources on, until ctx is done.
func (s *Source) Run(ctx context.Context) {
	defer s.follow.Close()
	s.probe(1)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-s.follow.C():
		case <-timer.C:
		}
		if p := panics.Do(func() { s.step(ctx) }); p != nil {
			p.Log(s.opts.Log, "relay")
		}
		next := time.Hour
		if at := s.next(); !at.IsZero() {
			next = time.Until(at)
		}
		timer.Reset(next)
	}
}

// step does all that is due.
func (s *Source) step(ctx context.Context) {
	now := time.Now()
	s.ask(now)
	c := change{now: now}
	for _, n := range s.follow.Take() {
		for events := range slices.Chunk(n.Events, 1000) { // streams need the lock, too
			if ctx.Err() != nil {
				return
			}
			s.hear(n.Type, events, &c)
		}
	}
	for _, k := range s.heldTypes() {
		c.add(k)
		k.standing.reach(!s.follow.Unreachable(k.typ)) // there is no event for names that do not exist
	}
	s.commit(&c)
	s.passUp(now)
}

// next is when the next step is due by time; zero: never.
func (s *Source) next() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.types {
		if !k.due.IsZero() {
			at = earlier(at, k.due)
		}
	}
	if !s.look.IsZero() {
		at = earlier(at, s.look)
	}
	if len(s.idle) > 0 {
		at = earlier(at, s.idle[0].at.Add(s.opts.Linger))
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (s *Source) ring() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// Ready reports whether clients can be served: the upstream has answered, or the disk has resources.
func (s *Source) Ready() bool { return s.ready.Load() }

// probe requests all clusters and listeners until the upstream or the disk has sent something (by = 1),
// or ends that (by = -1). Otherwise a load balancer that waits for Ready before it sends clients would
// wait forever.
func (s *Source) probe(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range []*xds.Type{xds.Cluster, xds.Listener} {
		s.use(s.name(t, xds.Wildcard), by)
	}
}
