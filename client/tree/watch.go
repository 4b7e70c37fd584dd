package tree

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

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
func Watch(ctx context.Context, w Watcher, listener string, o Options) iter.Seq2[State, error] {
	if o.Root == nil {
		o.Root = xds.Listener
	}
	if o.Refs == nil {
		o.Refs = known
	}
	return func(yield func(State, error) bool) {
		of, cancel := context.WithCancel(ctx)
		g := &grower{Options: o, w: w, ctx: of, root: xds.Ref{Type: o.Root, Name: listener}, nodes: map[key]*node{}, bell: make(chan struct{}, 1)}
		defer g.watches.Wait()
		defer cancel()
		g.watch(g.root, xds.Ref{})
		for {
			if err := g.wait(ctx); err != nil {
				yield(State{}, err)
				return
			}
			if s, news := g.grow(); news && !yield(s, nil) {
				return
			}
		}
	}
}

// A grower makes trees. It is owned by the goroutine that ranges over the watch; only news are shared.
type grower struct {
	Options
	w       Watcher
	ctx     context.Context
	root    xds.Ref
	nodes   map[key]*node
	watches sync.WaitGroup

	last    State
	changed bool // a member of a tree may differ from the last one's

	bell chan struct{} // with one slot
	mu   sync.Mutex
	news []report // that were not taken, the last of each node
}

// A node is a name that is watched.
type node struct {
	xds.Ref
	cancel context.CancelFunc
	from   xds.Ref // who referred to it first
	told   bool    // it is known how it stands
	is     Member
	news   int // index in grower.news, plus 1; 0: there are none. Guarded by grower.mu
}

// A report is what a node's watch said last.
type report struct {
	of    *node
	event client.Event
	err   error // the watch has ended
}

// watch begins to watch a name.
func (g *grower) watch(r, from xds.Ref) *node {
	ctx, cancel := context.WithCancel(g.ctx)
	n := &node{Ref: r, cancel: cancel, from: from, is: Member{Ref: r}}
	g.nodes[keyOf(r)] = n
	g.watches.Go(func() {
		for event, err := range g.w.Watch(ctx, r.Type, r.Name) {
			if ctx.Err() != nil {
				return
			}
			g.tell(report{n, event, err})
		}
	})
	return n
}

// tell keeps a report until it is taken.
func (g *grower) tell(r report) {
	g.mu.Lock()
	if r.of.news == 0 {
		g.news = append(g.news, r)
		r.of.news = len(g.news)
	} else {
		g.news[r.of.news-1] = r
	}
	g.mu.Unlock()
	select {
	case g.bell <- struct{}{}:
	default:
	}
}

// wait takes reports, and waits until there are some. An error ends the watch.
func (g *grower) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.bell:
	}
	g.mu.Lock()
	news := g.news
	g.news = nil
	for _, r := range news {
		r.of.news = 0
	}
	g.mu.Unlock()
	for _, r := range news {
		if g.nodes[keyOf(r.of.Ref)] != r.of {
			continue // is not watched any more
		}
		if r.err != nil && (r.of.Ref == g.root || errors.Is(r.err, client.ErrClosed)) {
			return r.err
		}
		g.take(r)
	}
	return nil
}

// take notes how a member stands.
func (g *grower) take(r report) {
	m := Member{Ref: r.of.Ref, Resource: r.event.Resource, Err: r.event.Err, Refs: r.of.is.Refs, Unknown: r.of.is.Unknown}
	switch r.event.Kind {
	case client.Removed, client.Absent:
		m.Resource, m.Err = nil, ErrAbsent
	case client.Updated, client.Refused, client.Stale, client.Unavailable:
	default:
		if r.err == nil {
			return // is of no single name
		}
	}
	if r.err != nil {
		m.Resource, m.Err = nil, r.err
	}
	switch was := r.of.is.Resource; {
	case m.Resource == nil:
		m.Refs, m.Unknown = nil, false
	case was == nil || was.Sum != m.Resource.Sum:
		m.Refs = g.Refs(m.Resource)
		m.Unknown = m.Refs == nil
	default:
		m.Resource = was // they differ in their versions at most, of which watches do not hear either
	}
	if was := r.of.is; !r.of.told || was.Resource != m.Resource || text(was.Err) != text(m.Err) {
		g.changed = true
	}
	r.of.is, r.of.told = m, true
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// grow looks for all that the root refers to, and begins to watch what is new. It returns the new
// state, and whether it is one.
func (g *grower) grow() (State, bool) {
	t := &Tree{index: map[key]*Member{}}
	var waiting []Waiting
	seen := map[key]bool{keyOf(g.root): true}
	for queue := []xds.Ref{g.root}; len(queue) > 0; queue = queue[1:] {
		n := g.nodes[keyOf(queue[0])]
		if !n.told {
			waiting = append(waiting, Waiting{n.Ref, n.from})
			continue
		}
		m := n.is
		t.Members = append(t.Members, &m)
		t.index[keyOf(m.Ref)] = &m
		for _, r := range m.Refs {
			k := keyOf(r)
			if r.Name == xds.Wildcard || seen[k] || !g.follows(r.Type) {
				continue
			}
			seen[k] = true
			if child := g.nodes[k]; child == nil {
				g.watch(r, m.Ref)
			} else if !child.told {
				child.from = m.Ref
			}
			queue = append(queue, r)
		}
	}
	news := !slices.Equal(waiting, g.last.Waiting)
	if g.last.Waiting = waiting; len(waiting) == 0 && (g.changed || g.last.Tree == nil) {
		g.last.Tree, g.changed, news = t, false, true
	}
	for k, n := range g.nodes {
		if !seen[k] && (g.last.Tree == nil || g.last.Tree.index[k] == nil) {
			n.cancel()
			delete(g.nodes, k)
		}
	}
	return g.last, news
}

func (g *grower) follows(t *xds.Type) bool {
	return g.Types == nil || slices.ContainsFunc(g.Types, t.Is)
}
