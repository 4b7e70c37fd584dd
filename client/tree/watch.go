package tree

import (
	"context"
	"iter"
	"slices"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Watch watches a listener, or another root (Options.Root), with all resources that it refers to. It
// yields each new state; a slow loop gets only the newest state. The watch starts when the loop over
// the iterator starts, and ends with the loop. The loop receives an error and ends if ctx is done
// ([context.Cause]), the client is closed ([client.ErrClosed]), or the listener cannot be watched. If
// another resource of the tree has a name that cannot be watched, the loop goes on: the tree has a
// member for that name, with the error in [Member.Err].
//
// A resource that is no longer referred to stays watched until the next tree has all its members. If
// the listener refers to the resource again before that, it need not be fetched again.
func Watch(ctx context.Context, c *client.Client, listener string, o Options) iter.Seq2[State, error] {
	return watch(ctx, func() follower { return c.Follow() }, listener, o)
}

// A follower watches a changing set of names. A [client.Follower] implements it.
type follower interface {
	Add(t *xds.Type, names ...string) error
	Remove(t *xds.Type, names ...string)
	Take() []client.TypeEvents
	C() <-chan struct{}
	Done() <-chan struct{}
	Close()
}

func watch(ctx context.Context, follow func() follower, listener string, o Options) iter.Seq2[State, error] {
	if o.Root == nil {
		o.Root = xds.Listener
	}
	if o.Refs == nil {
		o.Refs = refsOf
	}
	return func(yield func(State, error) bool) {
		g := &builder{Options: o, follower: follow(), root: xds.Ref{Type: o.Root, Name: listener}, nodes: byRef[*node]{}, dirty: map[*node]bool{}}
		defer g.Close()
		if err := g.Add(g.root.Type, g.root.Name); err != nil {
			yield(State{}, err)
			return
		}
		g.nodes.set(g.root, &node{Ref: g.root})
		for {
			select {
			case <-ctx.Done():
				yield(State{}, context.Cause(ctx))
				return
			case <-g.Done():
				yield(State{}, client.ErrClosed)
				return
			case <-g.C():
			}
			for _, news := range g.Take() {
				for _, e := range news.Events {
					g.apply(news.Type, e)
				}
			}
			if g.update() && !yield(g.state, nil) {
				return
			}
		}
	}
}

// A builder builds the trees of a watch. The goroutine that ranges over the watch owns it.
type builder struct {
	Options
	follower
	root  xds.Ref
	nodes byRef[*node]

	state       State
	dirty       map[*node]bool // nodes whose member differs from that of the last tree
	refsChanged bool           // some references may have changed
}

// A node is a watched name.
type node struct {
	xds.Ref
	referrer *node   // the first node that refers to it; nil: this node is the root
	member   *Member // immutable; nil: no event yet
}

func (n *node) waiting() Waiting {
	if n.referrer == nil {
		return Waiting{Ref: n.Ref}
	}
	return Waiting{n.Ref, n.referrer.Ref}
}

// apply applies an event.
func (g *builder) apply(t *xds.Type, e client.Event) {
	n, _ := g.nodes.get(xds.Ref{Type: t, Name: e.Name})
	if n == nil {
		return // not watched any more
	}
	m := &Member{Ref: n.Ref, Resource: e.Resource, Err: e.Err}
	switch e.Kind {
	case client.Removed, client.Absent:
		m.Resource, m.Err = nil, ErrAbsent
	case client.Updated, client.Refused, client.Stale, client.Unavailable:
	default:
		return // an event of a wildcard
	}
	g.set(n, m)
}

func (g *builder) set(n *node, m *Member) {
	was := n.member
	if was == nil {
		was = &Member{}
	}
	switch {
	case m.Resource == nil:
	case was.Resource == nil || was.Resource.Sum != m.Resource.Sum:
		m.Refs = g.Refs(m.Resource)
		m.Unknown = m.Refs == nil
	default:
		m.Resource = was.Resource // same content: keep the old pointer; a new version alone is not reported
		m.Refs, m.Unknown = was.Refs, was.Unknown
	}
	if n.member != nil && was.Resource == m.Resource && text(was.Err) == text(m.Err) {
		return
	}
	g.refsChanged = g.refsChanged || n.member == nil || !sameRefs(was.Refs, m.Refs)
	n.member = m
	g.dirty[n] = true
}

func sameRefs(a, b []xds.Ref) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || !a[i].Type.Is(b[i].Type) {
			return false
		}
	}
	return true
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// update creates the next state and reports whether there is one. If no reference changed, the next
// state is the last tree with the dirty members replaced.
func (g *builder) update() (news bool) {
	if g.refsChanged {
		return g.walk()
	}
	if len(g.dirty) == 0 || len(g.state.Waiting) > 0 {
		return false
	}
	members := slices.Clone(g.state.Tree.Members)
	for n := range g.dirty {
		if at, is := g.state.Tree.index.get(n.Ref); is {
			members[at], news = n.member, true
		}
	}
	clear(g.dirty)
	if news {
		g.state.Tree = &Tree{members, g.state.Tree.index}
	}
	return news
}
