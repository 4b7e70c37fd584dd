package access

import (
	"context"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// Options are what a [Source] needs besides what it wraps.
type Options struct {
	// Identity says what a connection has proved; the context is that of its stream or call. An
	// error ends the stream: with its status if it has one of gRPC, and with UNAUTHENTICATED
	// otherwise. Nil: no connection proves anything.
	Identity func(ctx context.Context) (Identity, error)

	// Denied is told of each stream and poll that is refused, or ended, by the policy: for the
	// log and for audits. It is called by the stream's goroutine. Nil: nobody is told.
	Denied func(ctx context.Context, id Identity, node *xds.Node, why *Denied)

	// Now and Jitter replace the clock, and the random numbers in [0, 1) that spread the ends
	// of streams. Nil: time.Now, and math/rand/v2.
	Now    func() time.Time
	Jitter func() float64
}

// A Source is a source for a server that shows of another what a [Policy] allows. Make it by [New].
type Source[W Watch] struct {
	of Watched[W]
	o  Options
}

// New returns a source that shows of another what a policy allows. Nil: everything.
func New[W Watch](of Watched[W], p *Policy, o Options) *Source[W] {
	s := &Source[W]{of: of, o: o}
	s.SetPolicy(p)
	return s
}

// Watch implements [server.Source].
func (s *Source[W]) Watch(ctx context.Context, node *xds.Node) (*View, error) {
	return nil, &Denied{Reason: "no rules yet"}
}

// SetPolicy puts a policy in force, for open streams, too: each asks it anew. Who may not be
// its node any more is ended; who sees something else than before is told the difference.
func (s *Source[W]) SetPolicy(p *Policy) {}

// Policy returns the policy in force.
func (s *Source[W]) Policy() *Policy { return nil }

// A View is one stream's watch of a source, as far as it may see it. It implements
// [server.Watch] and [server.Recalling].
type View struct{ Watch }

// Recent implements [server.Recalling].
func (w *View) Recent(t *xds.Type) []*xds.Table { return nil }

// Identity returns whose stream it is.
func (w *View) Identity() Identity { return Identity{} }

// Grant returns what it sees now. Like all of a watch, it is for the stream's goroutine.
func (w *View) Grant() Grant { return Grant{} }
