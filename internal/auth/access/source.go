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

// Options configure a [Source].
type Options struct {
	// Identity returns the verified identity of a connection; the context is that of its stream or
	// call. An error ends the stream: with its gRPC status, or with UNAUTHENTICATED if it has none.
	// Nil: no connection has an identity.
	Identity func(ctx context.Context) (Identity, error)

	// Denied is called for each stream and poll that the policy refuses or ends, or whose identity
	// has expired. It is for logs and audits. It is called from the goroutine of the stream. Nil: no
	// call.
	Denied func(ctx context.Context, id Identity, node *xds.Node, why *Denied)

	// Group returns the name by which rules know a group of a watch. For example, rules use one name
	// for all lanes of a group. Nil: the same name.
	Group func(group string) string

	// Now and Jitter replace the clock, and the random numbers in [0, 1) that spread the ends of
	// streams. Nil: time.Now and math/rand/v2.
	Now    func() time.Time
	Jitter func() float64
}

// A Source is a source for a server. It shows the part of another source that a [Policy] allows.
// [New] makes one. It is safe for concurrent use.
type Source[W Watch] struct {
	of     Watched[W]
	shared *shared
}

// Shared is the state that the views of a source have in common.
type shared struct {
	o Options

	mu     sync.Mutex // guards the fields below; never held during I/O
	policy *policy
	views  map[*View]bool
	lenses map[lensKey]*lens
}

// A policy is a policy in force. Its address identifies it.
type policy struct{ *Policy } // nil: everything is allowed

// New returns a source that shows the part of another source that a policy allows. A nil policy
// allows everything.
//
// The watches of the other source should have two more methods: Groups and Ring. Those of
// [store.Store] have them. Without Groups() []string, rules that depend on groups show nothing.
// Ring() must make C ring, and may be called from any goroutine. Without Ring, a new policy or an
// expired identity takes effect only when the watch rings for another reason.
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
			return nil, v.unverified(err)
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
	v.groups, _ = v.of.(groupedWatch)
	if err := v.enter(); err != nil {
		v.Close()
		return nil, err
	}
	v.watch()
	return v, nil
}

// unverified returns the error of a client whose identity cannot be verified.
func (v *View) unverified(err error) error {
	d, ok := errors.AsType[*Denied](err)
	if !ok {
		d = &Denied{Reason: err.Error(), Unauthenticated: true}
	}
	v.report(d)
	if _, ok := status.FromError(err); ok {
		return err
	}
	return d
}

// SetPolicy replaces the policy, also for open streams. A stream ends if its client may not be its
// node any more. If its client sees other resources now, the stream gets the difference.
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
