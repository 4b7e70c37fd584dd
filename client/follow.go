package client

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A Follower is a watch of names of several types. Names can be added and removed. A Follower is
// made for programs that pass on the events, such as a relay. Only one goroutine at a time may call
// its methods, except C.
type Follower struct {
	c       *Client
	bell    chan struct{}
	watches map[string]*watch // by type URL; owned by the loop
}

// TypeEvents are the events of one type, in the order of their arrival.
type TypeEvents struct {
	Type   *xds.Type
	Events []Event
}

// Follow returns a Follower without names.
func (c *Client) Follow() *Follower {
	return &Follower{c: c, bell: make(chan struct{}, 1), watches: map[string]*watch{}}
}

// C returns a channel that receives a value when [Follower.Take] has events. The channel has one
// slot.
func (f *Follower) C() <-chan struct{} { return f.bell }

// Done returns a channel that is closed when the client is closed.
func (f *Follower) Done() <-chan struct{} { return f.c.ctx.Done() }

// Add adds names of a type. It returns the same errors as [Client.Watch]. If it returns an error,
// it has added no name.
func (f *Follower) Add(t *xds.Type, names ...string) error {
	w, err := newWatch(t, names)
	if err != nil {
		return err
	}
	w.box.bell = f.bell
	err = ErrClosed
	f.c.doAndWait(func() { err = f.add(w) })
	return err
}

func (f *Follower) add(w *watch) error {
	old, added := f.watches[w.typ.URL], w.names
	if old != nil {
		added = maps.Clone(w.names)
		maps.DeleteFunc(added, func(name, _ string) bool { return old.named(name) })
		maps.Copy(old.names, added)
		w = old
	}
	if err := f.c.addWatchNow(w, slices.Sorted(maps.Keys(added))); err != nil {
		maps.DeleteFunc(w.names, func(name, _ string) bool { _, is := added[name]; return is })
		return err
	}
	f.watches[w.typ.URL] = w
	return nil
}

// Remove removes names. Take may still return earlier events of these names, and of resources that
// only these names matched.
func (f *Follower) Remove(t *xds.Type, names ...string) {
	f.c.doAndWait(func() {
		w := f.watches[t.URL]
		if w == nil {
			return
		}
		var gone []string
		for _, name := range names {
			name = xds.CanonicalName(name)
			if w.named(name) {
				gone = append(gone, name)
			}
		}
		f.c.removeWatch(w, slices.Values(gone))
		for _, name := range gone {
			delete(w.names, name)
		}
		if len(w.names) == 0 {
			delete(f.watches, t.URL)
		}
	})
}

// Recheck asks the server again for these resources, on a new stream, so that Config.Check is called
// for them although they have not changed. Use it if the result of Check depends on something that has
// changed. A resource that Check now refuses stays in use.
func (f *Follower) Recheck(t *xds.Type, names ...string) {
	f.c.doAndWait(func() {
		for _, a := range f.c.authorities {
			if a.tables[t.URL] == nil {
				continue
			}
			if l := f.c.upstreams[a.activeServer()].link(t); l != nil && l.core.Doubt(t, names...) {
				l.reopen = true
			}
		}
	})
}

// Unreachable reports whether an active server for names of this type cannot be reached. When the
// server can be reached again, Take does not return all states again: names without a resource are
// left out.
func (f *Follower) Unreachable(t *xds.Type) (away bool) {
	f.c.doAndWait(func() {
		for _, a := range f.c.authorities {
			away = away || a.tables[t.URL] != nil && a.tables[t.URL].outage != nil
		}
	})
	return away
}

// Take returns the events since its last call, sorted by push order of the types. It returns all events
// of a response together.
func (f *Follower) Take() (all []TypeEvents) {
	f.c.doAndWait(func() {
		for _, w := range f.watches {
			n := TypeEvents{Type: w.typ}
			for ev, ok := w.box.take(); ok; ev, ok = w.box.take() {
				n.Events = append(n.Events, ev)
			}
			if len(n.Events) > 0 {
				all = append(all, n)
			}
		}
	})
	slices.SortFunc(all, func(a, b TypeEvents) int {
		return cmp.Or(cmp.Compare(a.Type.Rank(), b.Type.Rank()), strings.Compare(a.Type.URL, b.Type.URL))
	})
	return all
}

// Close removes all names.
func (f *Follower) Close() {
	f.c.doAndWait(func() {
		for url, w := range f.watches {
			f.c.removeWatch(w, maps.Keys(w.names))
			delete(f.watches, url)
		}
	})
}

// doAndWait asks the loop to call f and waits until f has returned. If the client is closed,
// doAndWait does nothing.
func (c *Client) doAndWait(f func()) {
	done := make(chan struct{})
	select {
	case c.calls <- func() { f(); close(done) }:
		<-done
	case <-c.ctx.Done():
	}
}
