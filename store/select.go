package store

import (
	"context"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A Selector says which groups a node sees. Of a name that several of them have, the resource
// of the first group is seen. The name "" is [DefaultGroup], and so is an empty list.
//
// An error refuses the node: its stream ends with it. The server tells clients an error that has
// a status of gRPC as it is, and any other as PERMISSION_DENIED.
//
// The context is that of the client's stream or call, and knows its connection (peer, TLS). The
// node is never nil, and empty if the client says nothing of itself; it must not be kept or
// changed. A selector is called from the goroutines of the streams, and must be safe for
// concurrent use.
type Selector func(ctx context.Context, n *xds.Node) ([]string, error)

// WithGroups says which groups a node sees: one, or several that are laid over each other. By
// default every node sees [DefaultGroup]. It is asked once per stream, and again when a
// transaction says otherwise ([Tx.Select]).
func WithGroups(s Selector) Option {
	return func(st *Store) {
		if s != nil {
			st.selection.Store(&selection{s})
		}
	}
}

// Select says which groups nodes see from this commit on, together with what it writes: no node
// sees the new groups with the old choice, or the reverse. Each stream asks anew. Whose node sees
// other groups than before is told the difference; whose node is refused, ends. Nil makes the
// transaction fail.
func (tx *Tx) Select(s Selector) {
	tx.use()
	if s == nil {
		tx.fail("a transaction selects groups by a nil function")
	}
	tx.selection = &selection{s}
}

// A selection is a selector in force. Its address tells it from those before.
type selection struct{ groups Selector }

// of returns the groups that a node sees, each once.
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
			groups = append(groups, strings.Clone(name)) // it may be a part of a request
		}
	}
	return groups, nil
}

// decide asks which groups the watch's node sees, and has it see them.
func (w *Watch) decide() error {
	for {
		s := w.st.selection.Load()
		names, err := s.of(w.ctx, w.node)
		if err != nil {
			return err
		}
		if w.enter(s, names) {
			return nil
		}
	}
}

// enter has the watch see groups, and reports whether the selection is still in force that says so.
// A commit publishes its selection and what it writes under one lock: who finds the selection
// in force, finds what was written with it.
func (w *Watch) enter(s *selection, names []string) bool {
	st := w.st
	g := st.see(names)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.selection.Load() != s {
		st.leave(g)
		return false
	}
	w.selection = s
	if g == w.group {
		st.leave(g)
		return true
	}
	if w.group != nil {
		w.moves(g)
	} else {
		g.index.enter(w)
	}
	w.group, w.opened = g, false
	w.seen.Store(g.head.Load().seq)
	return true
}

// moves takes the watch's interests from its group to another, in whose past is from now on
// what the watch's client may hold.
func (w *Watch) moves(to *group) {
	from := w.group
	w.keys = from.index.keep(w, w.keys)
	from.index.remove(w, w.keys)
	from.index.leave(w)
	to.index.enter(w)
	w.keys = to.index.add(w, w.keys)
	w.live = len(w.keys)
	to.inherit(from, w.st.clock())
	w.st.leave(from)
}
