package lazy

import (
	"context"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Watch follows the source for one stream, as a [store.Watch] does. It also resolves the names that
// the stream is subscribed to.
type Watch struct {
	*store.Watch
	src   *Source
	group string         // the group at the last Next; resolved resources are put into this group
	used  map[key]*entry // entries that the stream is subscribed to; guarded by the source
}

// Watch returns a watch of the resources for a node, or an error if the node must not see any
// resource ([store.Store.Watch]).
func (s *Source) Watch(ctx context.Context, node *xds.Node) (*Watch, error) {
	w, err := s.store.WatchWithUnderlay(ctx, node)
	if err != nil {
		return nil, err
	}
	return &Watch{Watch: w, src: s, group: w.Group()}, nil
}

// Interested does the same as [store.Watch.Interested]. It also resolves added names that the store
// does not have.
func (w *Watch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	w.Watch.Interested(t, wildcard, added, removed)
	if t == nil || !w.src.types[t.URL] {
		return
	}
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	newest := w.View()
	for _, name := range removed {
		w.release(w.key(t, name))
	}
	for _, name := range added {
		if k := w.key(t, name); canResolve(t, k.name) {
			w.use(w.src.lookUp(k, t, newest))
		}
	}
}

func (w *Watch) key(t *xds.Type, name string) key {
	return key{w.group, t.URL, xds.CanonicalName(name)}
}

// use counts the watch as a user of an entry until it unsubscribes. The entry may be nil.
func (w *Watch) use(e *entry) {
	if e == nil || w.used[e.key] != nil {
		return
	}
	if w.used == nil {
		w.used = map[key]*entry{}
	}
	w.used[e.key] = e
	e.users++
	w.src.reschedule(e)
}

func (w *Watch) release(k key) {
	if e := w.used[k]; e != nil {
		delete(w.used, k)
		e.users--
		w.src.reschedule(e)
	}
}

// Close ends the watch. A second call does nothing.
func (w *Watch) Close() {
	w.Watch.Close()
	w.releaseAll()
}

func (w *Watch) releaseAll() {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	for k := range w.used {
		w.release(k)
	}
}

// Next does the same as [store.Watch.Next]. The view is [xds.Undecided] about names that are being
// resolved.
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	v, names, err := w.Watch.Next()
	if err != nil {
		return nil, names, err
	}
	if g := w.Group(); g != w.group { // missing names of the new group are resolved in Undecided
		w.releaseAll()
		w.group = g
	}
	if v == nil {
		return nil, names, nil
	}
	return &view{v, w}, names, nil
}

// A view is a view of the store that resolves missing names.
type view struct {
	xds.View
	watch *Watch
}

// Undecided reports whether it is still unknown if the name exists. It starts to resolve a name
// without an entry, for example a name that was just removed from the store.
func (v *view) Undecided(t *xds.Type, name string) bool {
	s := v.watch.src
	k := v.watch.key(t, name)
	if !s.types[t.URL] || !canResolve(t, k.name) || inView(v, t, k.name) {
		u, is := v.View.(xds.Undecided)
		return is && u.Undecided(t, name) && !inView(v, t, k.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := v.watch.View()
	e := s.lookUp(k, t, newest)
	if e == nil {
		return inView(newest, t, k.name)
	}
	if v.watch.Wants(t, name) { // an unsubscribed name must not get an entry, because nothing would release the entry
		v.watch.use(e)
	}
	return e.status == undecided || e.status == found && inView(newest, t, k.name) // then a newer view has the resource
}
