package lazy

import (
	"context"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A Watch follows the source for one stream, as a [store.Watch] does, and has
// looked for what the stream is interested in.
type Watch struct {
	*store.Watch
	src   *Source
	group string         // as of Next; what is found is put there
	held  map[key]*entry // that it is subscribed to; guarded by the source
}

// Watch returns a watch of what the node may see, or why it may see nothing ([store.Store.Watch]).
func (s *Source) Watch(ctx context.Context, node *xds.Node) (*Watch, error) {
	w, err := s.store.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	return &Watch{Watch: w, src: s, group: w.Group()}, nil
}

// Interested is [store.Watch.Interested]. Names that are added and that nobody
// has put into the store are looked for.
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
		if k := w.key(t, name); asked(t, k.name) {
			w.hold(w.src.want(k, t, newest))
		}
	}
}

func (w *Watch) key(t *xds.Type, name string) key {
	return key{w.group, t.URL, xds.CanonicalName(name)}
}

// hold keeps an entry, which may be nil, for as long as the watch is subscribed
// to it.
func (w *Watch) hold(e *entry) {
	if e == nil || w.held[e.key] != nil {
		return
	}
	if w.held == nil {
		w.held = map[key]*entry{}
	}
	w.held[e.key] = e
	e.users++
	w.src.settle(e)
}

func (w *Watch) release(k key) {
	if e := w.held[k]; e != nil {
		delete(w.held, k)
		e.users--
		w.src.settle(e)
	}
}

// Close ends the watch. Closing it again does nothing.
func (w *Watch) Close() {
	w.Watch.Close()
	w.releaseAll()
}

func (w *Watch) releaseAll() {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	for k := range w.held {
		w.release(k)
	}
}

// Next is [store.Watch.Next]. The view is [xds.Undecided] of what is still being
// looked for.
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	v, names, err := w.Watch.Next()
	if err != nil {
		return nil, names, err
	}
	if g := w.Group(); g != w.group { // what is not there is looked for when it is missed: see Undecided
		w.releaseAll()
		w.group = g
	}
	if v == nil {
		return nil, names, nil
	}
	return &view{v, w}, names, nil
}

// A view is a view of the store.
type view struct {
	xds.View
	watch *Watch
}

// Undecided reports whether it is not known yet if the name exists. A name that
// nobody has looked for is looked for from now on: it may be one that the store
// had until now.
func (v *view) Undecided(t *xds.Type, name string) bool {
	s := v.watch.src
	k := v.watch.key(t, name)
	if !s.types[t.URL] || !asked(t, k.name) || finds(v, t, k.name) {
		u, is := v.View.(xds.Undecided)
		return is && u.Undecided(t, name) && !finds(v, t, k.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := v.watch.View()
	e := s.want(k, t, newest)
	if e == nil {
		return finds(newest, t, k.name)
	}
	if v.watch.Wants(t, name) { // of what its client has given up it may ask, too: nobody would let go of that
		v.watch.hold(e)
	}
	return e.status != absent // if it is found, a newer view has it
}
