package store

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/chancery-xds/chancery/xds"
)

// A Watch follows the store for one stream. It belongs to the stream's
// goroutine; only the channel that C returns may be used by others. It keeps no
// resource alive.
type Watch struct {
	st   *Store
	ctx  context.Context // of the stream, for selectors
	node *xds.Node       // for selectors; may be nil

	selection *selection // that says what the node sees
	group     *group
	id        uint32 // in the group's index
	bell      chan struct{}
	seen      atomic.Uint64 // the newest commit that Next told about

	opened bool // Next was called since the watch sees this group
	closed bool
	keys   []uint64 // of the index: all that the watch has there, and a few it has no more
	live   int      // keys that it has
}

// Watch returns a watch of what the node may see, or why it may see nothing. Close the watch
// when the stream ends. The node may be nil; it and the context are kept until then, for
// selectors ([WithGroups]).
func (st *Store) Watch(ctx context.Context, node *xds.Node) (*Watch, error) {
	w := &Watch{st: st, ctx: ctx, node: node, bell: make(chan struct{}, 1)}
	if err := w.decide(); err != nil {
		return nil, err
	}
	return w, nil
}

// Group returns the first of [Watch.Groups].
func (w *Watch) Group() string {
	g := w.group
	if g.layers != nil {
		g = g.layers[0]
	}
	return strings.TrimPrefix(g.name, over)
}

// Groups returns the names of the groups that the watch sees; of a name that several have, the
// first one's resource. It moves with Next.
func (w *Watch) Groups() []string {
	if w.group.layers == nil {
		return []string{w.group.name}
	}
	names := make([]string, 0, len(w.group.layers))
	for _, l := range w.group.layers {
		if !IsOver(l.name) {
			names = append(names, l.name)
		}
	}
	return names
}

// C returns the doorbell, a channel with one slot. It rings after a commit that
// touches what the watch is interested in, unless Next has told of it already.
// It is never closed.
func (w *Watch) C() <-chan struct{} { return w.bell }

// Next returns the newest view, and the names that may differ between it and
// the view that Next returned before, as the commits in between touched them.
// Nil means that anything may: so it is the first time, after more commits
// or names than the store remembers, and when the node sees other groups than before. An empty
// list means that no name does. View and names are shared and must not be changed.
//
// The view is nil as long as nothing was ever written to one of the node's groups: nobody knows
// then what is in it. C rings when there is one.
//
// An error says that the node may see nothing any more ([Tx.Select]); the watch is to be closed then.
//
// It takes back what rang before, waits for nobody but a commit that selects groups, and may be
// called when nothing rang.
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	select {
	case <-w.bell:
	default:
	}
	h := w.group.head.Load()
	// A commit says what nodes see before it puts heads in place: unless it has by now, this
	// is a head of before.
	for w.st.selection.Load() != w.selection {
		if err := w.decide(); err != nil {
			return nil, none, err
		}
		h = w.group.head.Load()
	}
	seen := w.seen.Swap(h.seq)
	if !w.opened {
		w.opened = true
		return h.seen(), nil, nil
	}
	return h.seen(), h.since(seen), nil
}

// View returns the newest view, as Next does, and leaves to Next what is to be told
// of it.
func (w *Watch) View() xds.View { return w.group.head.Load().seen() }

// Interested says how the stream's interest in a type has moved: whether it
// wants to hear of all names, and which names it wants to hear of from now on
// or no more. Names match resources and aliases; they may exist or not. A name
// both removed and added is added. The strings are not kept.
//
// If something new is added and there were commits since Next, the doorbell
// rings at once: they may have touched it. Of a nil type there is nothing to hear.
func (w *Watch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	if w.closed || t == nil {
		return
	}
	typ := typeKey(t.URL)
	adds := make([]uint64, 0, len(added)+1)
	removes := make([]uint64, 0, len(removed)+1)
	if all := key(typ, xds.Wildcard); wildcard {
		adds = append(adds, all)
	} else {
		removes = append(removes, all)
	}
	for _, name := range removed {
		removes = append(removes, key(typ, name))
	}
	for _, name := range added {
		adds = append(adds, key(typ, name))
	}
	x := &w.group.index
	w.live -= x.remove(w, removes)
	adds = x.add(w, adds)
	w.live += len(adds)
	w.keys = append(w.keys, adds...)
	if len(w.keys) > 2*w.live+16 {
		slices.Sort(w.keys)
		w.keys = slices.Clip(x.keep(w, slices.Compact(w.keys)))
	}
	// A commit puts its head in place before it looks into the index. So either
	// it is seen here, or it sees what was added.
	if len(adds) > 0 && w.group.head.Load().seq > w.seen.Load() {
		w.ring()
	}
}

// Wants reports whether the stream is interested in a name by itself, and not only in all.
func (w *Watch) Wants(t *xds.Type, name string) bool {
	return t != nil && len(w.group.index.keep(w, []uint64{key(typeKey(t.URL), name)})) > 0
}

// Close ends the watch. Its doorbell may still ring once. Closing it again does
// nothing.
func (w *Watch) Close() {
	if w.closed {
		return
	}
	w.closed = true
	w.group.index.remove(w, w.keys)
	w.keys = nil
	w.group.index.leave(w)
	w.st.mu.Lock()
	defer w.st.mu.Unlock()
	w.st.leave(w.group)
}

func (w *Watch) ring() {
	select {
	case w.bell <- struct{}{}:
	default: // it rings already
	}
}

// Ring rings the doorbell, as a commit does. Unlike all else of a watch it may be called by
// anybody, at any time: by who has something to say to the stream that is not in the store.
func (w *Watch) Ring() { w.ring() }
