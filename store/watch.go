package store

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/chancery-xds/chancery/xds"
)

// A Watch follows the changes of a store for one stream. Only the goroutine of the stream may use
// it, except for the channel of C and for Ring. A Watch keeps no resource in memory.
type Watch struct {
	st   *Store
	ctx  context.Context // of the stream; passed to selectors
	node *xds.Node       // passed to selectors; may be nil

	underlays bool // the watch also sees the underlays of its groups

	selection *selection // the selection that chose group
	group     *group
	id        uint32 // in the group's index
	bell      chan struct{}
	seenSeq   atomic.Uint64 // the newest commit that Next returned

	opened bool // Next was called since the watch follows this group
	closed bool
	keys   []uint64 // keys of the watch in the index, and possibly some that were removed
	live   int      // number of keys in the index
}

// Watch returns a watch of the resources that the node may see. The error of the selector means that the node
// may see nothing. Close the watch when the stream ends. The node may be nil. The watch keeps the node and
// the context until Close, for selectors ([WithGroups]).
func (st *Store) Watch(ctx context.Context, node *xds.Node) (*Watch, error) {
	return st.watch(ctx, node, false)
}

func (st *Store) watch(ctx context.Context, node *xds.Node, underlays bool) (*Watch, error) {
	w := &Watch{st: st, ctx: ctx, node: node, underlays: underlays, bell: make(chan struct{}, 1)}
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
	return strings.TrimPrefix(g.name, overlayPrefix)
}

// Groups returns the groups that the watch follows. If several groups have a resource with the same
// name, the watch sees the resource of the first group. Next updates the list after [Tx.Select].
func (w *Watch) Groups() []string {
	if w.group.layers == nil {
		return []string{w.group.name}
	}
	names := make([]string, 0, len(w.group.layers))
	for _, l := range w.group.layers {
		if !IsOverlay(l.name) {
			names = append(names, l.name)
		}
	}
	return names
}

// C returns a channel that signals changes. It has one slot. A commit signals if it touches a name in which the
// watch is interested and Next has not returned that commit yet. The channel is never closed.
func (w *Watch) C() <-chan struct{} { return w.bell }

// Next returns the newest view, and the names that may differ from the view that Next returned before. Nil names
// mean that any name may differ: at the first call, if the store no longer remembers all commits in
// between, or if the node now sees other groups. An empty list means that no name differs. View and
// names are shared and must not be changed.
//
// The view is nil as long as the content of one of the node's groups is unknown. C signals when it is known.
//
// An error means that the node may see nothing any more ([Tx.Select]). Then close the watch.
//
// Next clears the signal of C. It does not block, except during a commit with [Tx.Select]. Next may
// also be called without a signal.
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	select {
	case <-w.bell:
	default:
	}
	h := w.group.head.Load()
	// A commit stores its selection before its heads. If the selection has changed, the head that
	// was loaded may be old.
	for w.st.selection.Load() != w.selection {
		if err := w.decide(); err != nil {
			return nil, none, err
		}
		h = w.group.head.Load()
	}
	seen := w.seenSeq.Swap(h.seq)
	if !w.opened {
		w.opened = true
		return h.visible(), nil, nil
	}
	return h.visible(), h.since(seen), nil
}

// View returns the newest view like Next, but does not change what Next returns.
func (w *Watch) View() xds.View { return w.group.head.Load().visible() }

// Interested changes the interest of the stream in a type: in all names, if wildcard is true, and
// in the added names. Names may be resource names or aliases, and need not exist. A name that is in
// both lists counts as added. The watch does not keep the strings. A nil type is ignored.
//
// If a name is new and the group has commits that Next did not return yet, C signals at once,
// because these commits may have touched the name.
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
	// A commit stores its head before it searches the index. So either this code sees the head, or the
	// commit finds the new keys.
	if len(adds) > 0 && w.group.head.Load().seq > w.seenSeq.Load() {
		w.ring()
	}
}

// Wants reports whether the stream is interested in the name itself, apart from a wildcard.
func (w *Watch) Wants(t *xds.Type, name string) bool {
	return t != nil && len(w.group.index.keep(w, []uint64{key(typeKey(t.URL), name)})) > 0
}

// Close ends the watch. C may still signal once. A second call does nothing.
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
	w.st.closeGroup(w.group)
}

func (w *Watch) ring() {
	select {
	case w.bell <- struct{}{}:
	default: // a signal is pending already
	}
}

// Ring signals C like a commit. It is safe to call from any goroutine. It is for signals to the stream that
// do not come from the store.
func (w *Watch) Ring() { w.ring() }
