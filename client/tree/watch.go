package tree

import (
	"context"
	"iter"
	"slices"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// Watch watches a listener and all that it refers to. It tells each new state, and of several that
// were not taken the last. It begins when it is ranged over, and ends when the body does, or with
// an error: ctx is done ([context.Cause]), the client is closed ([client.ErrClosed]), or the
// listener cannot be watched. What cannot be watched of the others is a member with this error.
//
// A member that leaves the tree is watched until the next one is complete: a listener that comes
// back to it finds it there.
func Watch(ctx context.Context, c *client.Client, listener string, o Options) iter.Seq2[State, error] {
	return watch(ctx, func() follower { return c.Follow() }, listener, o)
}

// A follower watches names that come and go: a [client.Follower].
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
		o.Refs = known
	}
	return func(yield func(State, error) bool) {
		g := &grower{Options: o, follower: follow(), root: xds.Ref{Type: o.Root, Name: listener}, nodes: byRef[*node]{}, dirty: map[*node]bool{}}
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
					g.take(news.Type, e)
				}
			}
			if g.grow() && !yield(g.last, nil) {
				return
			}
		}
	}
}

// A grower makes trees. It is owned by the goroutine that ranges over the watch.
type grower struct {
	Options
	follower
	root  xds.Ref
	nodes byRef[*node]

	last  State
	dirty map[*node]bool // they differ from the members of the last tree, if it has them
	moved bool           // what refers to what may have changed
}

// A node is a name that is watched.
type node struct {
	xds.Ref
	from *node   // who refers to it first, when it was looked at last; nil: it is the root
	is   *Member // immutable; nil: nothing is known yet
}

func (n *node) waiting() Waiting {
	if n.from == nil {
		return Waiting{Ref: n.Ref}
	}
	return Waiting{n.Ref, n.from.Ref}
}

// take notes how a member stands.
func (g *grower) take(t *xds.Type, e client.Event) {
	n, _ := g.nodes.get(xds.Ref{Type: t, Name: e.Name})
	if n == nil {
		return // is not watched any more
	}
	m := &Member{Ref: n.Ref, Resource: e.Resource, Err: e.Err}
	switch e.Kind {
	case client.Removed, client.Absent:
		m.Resource, m.Err = nil, ErrAbsent
	case client.Updated, client.Refused, client.Stale, client.Unavailable:
	default:
		return // is of no single name
	}
	g.set(n, m)
}

func (g *grower) set(n *node, m *Member) {
	was := n.is
	if was == nil {
		was = &Member{}
	}
	switch {
	case m.Resource == nil:
	case was.Resource == nil || was.Resource.Sum != m.Resource.Sum:
		m.Refs = g.Refs(m.Resource)
		m.Unknown = m.Refs == nil
	default:
		m.Resource = was.Resource // they differ in their versions at most, of which watches do not hear either
		m.Refs, m.Unknown = was.Refs, was.Unknown
	}
	if n.is != nil && was.Resource == m.Resource && text(was.Err) == text(m.Err) {
		return
	}
	g.moved = g.moved || n.is == nil || !sameRefs(was.Refs, m.Refs)
	n.is = m
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

// grow makes the next state, and reports whether there is one. As long as nothing refers to
// anything else, that is the last tree with other members.
func (g *grower) grow() (news bool) {
	if g.moved {
		return g.walk()
	}
	if len(g.dirty) == 0 || len(g.last.Waiting) > 0 {
		return false
	}
	members := slices.Clone(g.last.Tree.Members)
	for n := range g.dirty {
		if at, is := g.last.Tree.index.get(n.Ref); is {
			members[at], news = n.is, true
		}
	}
	clear(g.dirty)
	if news {
		g.last.Tree = &Tree{members, g.last.Tree.index}
	}
	return news
}
