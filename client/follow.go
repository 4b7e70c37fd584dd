package client

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A Follower is one watch of names that come and go, of any types: for who passes on what it is
// told, as a relay does. Its methods but C are for one goroutine at a time.
type Follower struct {
	c    *Client
	bell chan struct{}
	of   map[string]*watch // by type URL; the loop's
}

// News are the steps of names of one type, in the order in which they came.
type News struct {
	Type   *xds.Type
	Events []Event
}

// Follow returns a follower of nothing yet.
func (c *Client) Follow() *Follower {
	return &Follower{c: c, bell: make(chan struct{}, 1), of: map[string]*watch{}}
}

// C rings when Take is worth calling: a channel with one slot.
func (f *Follower) C() <-chan struct{} { return f.bell }

// Done is closed when the client is.
func (f *Follower) Done() <-chan struct{} { return f.c.ctx.Done() }

// Add watches names of a type, too. An error is one of [Client.Watch], and none is watched then.
func (f *Follower) Add(t *xds.Type, names ...string) error {
	w, err := newWatch(t, names)
	if err != nil {
		return err
	}
	w.box.bell = f.bell
	err = ErrClosed
	f.c.wait(func() { err = f.add(w) })
	return err
}

func (f *Follower) add(w *watch) error {
	old, added := f.of[w.typ.URL], w.names
	if old != nil {
		added = maps.Clone(w.names)
		maps.DeleteFunc(added, func(name, _ string) bool { return old.named(name) })
		maps.Copy(old.names, added)
		w = old
	}
	if err := f.c.joinNow(w, slices.Sorted(maps.Keys(added))); err != nil {
		maps.DeleteFunc(w.names, func(name, _ string) bool { _, is := added[name]; return is })
		return err
	}
	f.of[w.typ.URL] = w
	return nil
}

// Remove watches names no more. What was to be told of them, and of what only they found, may
// still come.
func (f *Follower) Remove(t *xds.Type, names ...string) {
	f.c.wait(func() {
		w := f.of[t.URL]
		if w == nil {
			return
		}
		var gone []string
		for _, name := range names {
			if name = xds.CanonicalName(name); w.named(name) {
				gone = append(gone, name)
			}
		}
		f.c.leave(w, slices.Values(gone))
		for _, name := range gone {
			delete(w.names, name)
		}
		if len(w.names) == 0 {
			delete(f.of, t.URL)
		}
	})
}

// Doubt asks for what is in use under names of resources once more, on a new stream, so that
// Config.Check is asked about it though it is the same: for who learns later whether it can be used.
// What is refused then stays in use.
func (f *Follower) Doubt(t *xds.Type, names ...string) {
	f.c.wait(func() {
		for _, a := range f.c.authorities {
			if a.tables[t.URL] == nil {
				continue
			}
			if l := f.c.upstreams[a.charged()].link(t); l != nil && l.core.Doubt(t, names...) {
				l.anew = true
			}
		}
	})
}

// Away reports whether a server that is asked for a type cannot be reached. Not all that is known is told anew when
// it can be again: that there is nothing is not.
func (f *Follower) Away(t *xds.Type) (away bool) {
	f.c.wait(func() {
		for _, a := range f.c.authorities {
			away = away || a.tables[t.URL] != nil && a.tables[t.URL].outage != nil
		}
	})
	return away
}

// Take returns what has become of names since it was last called, in push order of their types. Of
// a response there is all or nothing.
func (f *Follower) Take() (all []News) {
	f.c.wait(func() {
		for _, w := range f.of {
			n := News{Type: w.typ}
			for ev, ok := w.box.take(); ok; ev, ok = w.box.take() {
				n.Events = append(n.Events, ev)
			}
			if len(n.Events) > 0 {
				all = append(all, n)
			}
		}
	})
	slices.SortFunc(all, func(a, b News) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), strings.Compare(a.Type.URL, b.Type.URL))
	})
	return all
}

// Close watches nothing more.
func (f *Follower) Close() {
	f.c.wait(func() {
		for url, w := range f.of {
			f.c.leave(w, maps.Keys(w.names))
			delete(f.of, url)
		}
	})
}

// wait has the loop call f, unless the client is closed, and waits until it has.
func (c *Client) wait(f func()) {
	done := make(chan struct{})
	select {
	case c.calls <- func() { f(); close(done) }:
		<-done
	case <-c.ctx.Done():
	}
}
