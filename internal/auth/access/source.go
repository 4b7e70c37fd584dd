package access

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// Options are what a [Source] needs besides what it wraps.
type Options struct {
	// Identity says what a connection has proved; the context is that of its stream or call. An
	// error ends the stream: with its status if it has one of gRPC, and with UNAUTHENTICATED
	// otherwise. Nil: no connection proves anything.
	Identity func(ctx context.Context) (Identity, error)

	// Denied is told of each stream and poll that is refused, or ended, by the policy or since its
	// identity has expired: for the log and for audits. It is called by the stream's goroutine.
	// Nil: nobody is told.
	Denied func(ctx context.Context, id Identity, node *xds.Node, why *Denied)

	// Group says which group rules mean by one that a watch sees: two groups may be states of one, to rules.
	// Nil: itself.
	Group func(group string) string

	// Now and Jitter replace the clock, and the random numbers in [0, 1) that spread the ends
	// of streams. Nil: time.Now, and those of math/rand/v2.
	Now    func() time.Time
	Jitter func() float64
}

// A Source is a source for a server that shows of another what a [Policy] allows. Make it by
// [New]. It is safe for concurrent use.
type Source[W Watch] struct {
	of     Watched[W]
	shared *shared
}

// Shared is what the views of a source have in common.
type shared struct {
	o Options

	mu     sync.Mutex // guards what follows; held for memory only
	policy *policy
	views  map[*View]bool
	lenses map[lensKey]*lens
}

// A policy is one in force. Its address tells it from those before.
type policy struct{ *Policy } // nil: everything is allowed

// New returns a source that shows of another what a policy allows. Nil: everything.
//
// The watches of the source that it wraps should have two more methods, as those of
// [store.Store] have: Groups() []string, without which rules that ask for groups let nothing be
// seen, and Ring(), which is called by others than the stream, and has C ring. Without Ring a
// new policy, and the end of an identity, are noticed when the watch rings by itself.
func New[W Watch](of Watched[W], p *Policy, o Options) *Source[W] {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return &Source[W]{of: of, shared: &shared{o: o, policy: &policy{p}, views: map[*View]bool{}, lenses: map[lensKey]*lens{}}}
}

// Watch implements [server.Source].
func (s *Source[W]) Watch(ctx context.Context, node *xds.Node) (*View, error) {
	v := &View{shared: s.shared, ctx: ctx, node: node}
	if s.shared.o.Identity != nil {
		id, err := s.shared.o.Identity(ctx)
		if err != nil {
			return nil, v.unproved(err)
		}
		v.id = id
	}
	v.begin()
	if err := v.decide(); err != nil {
		v.finish()
		return nil, err
	}
	of, err := s.of.Watch(ctx, node)
	if err != nil {
		v.finish()
		return nil, err
	}
	v.of = of
	v.groups, _ = v.of.(grouped)
	if err := v.enter(); err != nil {
		v.Close()
		return nil, err
	}
	v.watch()
	return v, nil
}

// unproved is what becomes of a client whose identity cannot be told.
func (v *View) unproved(err error) error {
	d, ok := errors.AsType[*Denied](err)
	if !ok {
		d = &Denied{Reason: err.Error(), Unauthenticated: true}
	}
	v.tell(d)
	if _, ok := status.FromError(err); ok {
		return err
	}
	return d
}

// SetPolicy puts a policy in force, for open streams, too: each asks it anew. Who may not be
// its node any more is ended; who sees something else than before is told the difference.
func (s *Source[W]) SetPolicy(p *Policy) {
	s.shared.mu.Lock()
	s.shared.policy = &policy{p}
	views := make([]*View, 0, len(s.shared.views))
	for v := range s.shared.views {
		views = append(views, v)
	}
	s.shared.mu.Unlock()
	for _, v := range views {
		v.ring()
	}
}

// Policy returns the policy in force; nil if everything is allowed.
func (s *Source[W]) Policy() *Policy { return s.shared.inForce().Policy }

func (s *shared) inForce() *policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}
