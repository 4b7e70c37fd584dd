// Package relay serves what another xDS server gives: a [client.Client] fills a store, and what
// the streams of a server are interested in decides what the client asks for. Each name is asked for
// once, however many streams want it, and given up some time after the last of them.
//
// Nothing is told of a wildcard or a name before the upstream has answered, or the client's disk has
// it: the views are [xds.Undecided]. That a type has nothing, or nothing any more, is passed on when
// it was so for some seconds on end ([Options.Confirm]): a server that has just restarted
// may have lost what it knew.
//
// # Concurrency
//
// A [Source] is safe for concurrent use, a [Watch] belongs to the goroutine of its stream. The
// goroutine of [Source.Run] alone asks the client and writes to the store; streams leave their
// interest under a lock that is held for memory only.
package relay

import (
	"context"
	"log/slog"
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
	// Linger is how long a name is asked for after the last stream that wanted it. Zero: a
	// minute.
	Linger time.Duration

	// Confirm is how long a type must have nothing before streams are told, and how long what
	// something refers to stays that the upstream has removed. Zero: 5 s.
	Confirm time.Duration

	// Refs returns what a resource refers to, for make before break; nil, or a nil list: it may
	// be everything.
	Refs func(*xds.Resource) []xds.Ref

	// Refused returns what clients refuse of what is served; then [Source.Check] must be the client's, or part of
	// it, and [Source.Refused] be called when that changes. Nil: refusals of clients are not passed up.
	Refused func() []Refusal

	// Limits are those of what is asked of the upstream at a time.
	Limits Limits

	// Owner says whose a stream is, by its context. Of all owners that want more than there may be the one
	// who wants most gets less. Nil: all are one's.
	Owner func(context.Context) string

	// Committed is called after each commit, and when the source has become ready, by the
	// goroutine of Run. Nil: nobody is told.
	Committed func()

	// Log gets what the operator would want to know. Nil: nothing is logged.
	Log *slog.Logger
}

// maxLingering is how many names are asked for that nobody wants: of more, the first go at once.
const maxLingering = 10_000

// A Source is what an upstream gives. It is made by [New].
type Source struct {
	store  *store.Store
	client *client.Client
	opts   Options
	wake   chan struct{} // one slot: Run has something to do

	ready  atomic.Bool
	moved  atomic.Bool // Options.Refused may return something else
	doubts doubts
	known  atomic.Pointer[map[string]bool] // types, by URL, of which it is known what there is; the map never changes

	mu      sync.Mutex // guards what follows, and the interest and decisions in it; held for memory only
	types   map[string]*kind
	watches map[*Watch]bool
	dirty   []*name // whose users or whose end have changed
	idle    []left  // names without users, the one that had none for the longest time first, and some that have
	asks    int     // types of which the upstream is asked for something
	weight  int     // of all names that it is asked for, in bytes
	full    bool    // more is wanted than it may be asked for: what nobody wants goes at once

	*state // of Run
}

// A state is what the goroutine of Run alone knows.
type state struct {
	follow *client.Follower
	look   time.Time // when Options.Refused is asked next; zero: when something moves
	passed time.Time // when the upstream was last asked once more
}

// New returns a source of what the client's servers give, by way of the store, which must have no other writer.
// The client stays the caller's.
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
	// It is a view from which streams say what they want; what it lacks is undecided.
	if _, err := st.Update(func(tx *store.Tx) error { tx.MarkKnown(); return nil }); err != nil {
		panic(err) // there is nothing in it that could be wrong
	}
	s := &Source{
		store: st, client: c, opts: o, wake: make(chan struct{}, 1), types: map[string]*kind{}, watches: map[*Watch]bool{},
		state: &state{follow: c.Follow()},
	}
	s.known.Store(&map[string]bool{})
	return s
}

// Run asks for what is wanted, and passes on what is told, until ctx is done.
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
		if p := panics.Do(s.step); p != nil {
			p.Log(s.opts.Log, "relay")
		}
		next := time.Hour
		if at := s.next(); !at.IsZero() {
			next = time.Until(at)
		}
		timer.Reset(next)
	}
}

// step does what is due.
func (s *Source) step() {
	now := time.Now()
	s.ask(now)
	c := change{now: now}
	for _, n := range s.follow.Take() {
		s.hear(n, &c)
	}
	for _, k := range s.waits() {
		c.add(k)
		k.standing.reach(!s.follow.Unreachable(k.typ)) // of what does not exist no event says so
	}
	s.commit(&c)
	s.passUp(now)
}

// next is when something is due by itself; zero: never.
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
	default: // it is going to look
	}
}

// Ready reports whether clients can be served: the upstream has answered, or the disk has something.
func (s *Source) Ready() bool { return s.ready.Load() }

// probe asks for all clusters and listeners until the upstream, or the disk, has given something, so that who
// waits for that before he sends clients does not wait for ever.
func (s *Source) probe(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range []*xds.Type{xds.Cluster, xds.Listener} {
		s.use(s.name(t, xds.Wildcard), by)
	}
}
