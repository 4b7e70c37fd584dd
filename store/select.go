package store

import (
	"context"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A Selector returns the groups that a node sees. If several groups have a resource with the same
// name, the node sees the resource of the first group. The name "" means [DefaultGroup], and so
// does an empty list.
//
// An error refuses the node and ends its stream. The server sends an error with a gRPC status unchanged, and
// any other error as PERMISSION_DENIED.
//
// The context is the context of the client's stream or call. It has the properties of the
// connection, such as the peer and TLS. The node is never nil; it is empty if the client sent no
// node. A selector must not keep or change the node. A selector must be safe for concurrent use.
type Selector func(ctx context.Context, n *xds.Node) ([]string, error)

// WithGroups sets the function that chooses the groups of a node. By default every node sees
// [DefaultGroup]. The function is called once for each stream, and again after [Tx.Select].
func WithGroups(s Selector) Option {
	return func(st *Store) {
		if s != nil {
			st.selection.Store(&selection{s})
		}
	}
}

// Select replaces the function that chooses the groups of nodes, in the same commit as the other changes of
// the transaction. So no node sees the new content with the old selection, or the reverse. The function is
// called for each open stream. A node that now sees other groups gets the difference. A node that is now
// refused loses its stream. A nil function makes the transaction fail.
func (tx *Tx) Select(s Selector) {
	tx.use()
	if s == nil {
		tx.fail("tx.Select: the selector is nil")
	}
	tx.selection = &selection{s}
}

// A selection is the current selector. Its address identifies it.
type selection struct{ groups Selector }

// of returns the groups of a node, each once.
func (s *selection) of(ctx context.Context, n *xds.Node) ([]string, error) {
	if s == nil {
		return []string{DefaultGroup}, nil
	}
	if n == nil {
		n = &xds.Node{}
	}
	names, err := s.groups(ctx, n)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return []string{DefaultGroup}, nil
	}
	groups, had := make([]string, 0, len(names)), make(map[string]bool, len(names))
	for _, name := range names {
		if name == "" {
			name = DefaultGroup
		}
		if !had[name] {
			had[name] = true
			groups = append(groups, strings.Clone(name)) // the string may be part of a request buffer
		}
	}
	return groups, nil
}

// decide calls the selector for the watch's node and lets the watch follow the selected groups.
func (w *Watch) decide() error {
	s := w.st.selection.Load()
	names, err := s.of(w.ctx, w.node)
	if err != nil {
		return err
	}
	w.enter(s, names)
	return nil
}

// enter lets the watch follow the groups of a selection. Next decides again if a commit has replaced the
// selection meanwhile. A commit publishes its selection and its content under one lock, so a reader that finds
// the selection also finds the content.
func (w *Watch) enter(s *selection, names []string) {
	st := w.st
	g := st.openGroup(st.layersOf(names, w.underlays))
	st.mu.Lock()
	defer st.mu.Unlock()
	w.selection = s
	if g == w.group {
		st.closeGroup(g)
		return
	}
	if w.group != nil {
		w.moveTo(g)
	} else {
		g.index.enter(w)
	}
	w.group, w.opened = g, false
	w.seenSeq.Store(g.head.Load().seq)
}

// moveTo moves the watch and its interests to another group. The past of that group then includes the content
// that the client may hold from the old group.
func (w *Watch) moveTo(to *group) {
	from := w.group
	w.keys = from.index.keep(w, w.keys)
	from.index.remove(w, w.keys)
	from.index.leave(w)
	to.index.enter(w)
	w.keys = to.index.add(w, w.keys)
	w.live = len(w.keys)
	to.inherit(from, w.st.clock())
	w.st.closeGroup(from)
}
