package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// A watch is one range over an iterator.
type watch struct {
	typ   *xds.Type
	names map[string]string // as they were given, by their canonical form
	box   *mailbox
	alone []*watch // itself
}

func newWatch(t *xds.Type, names []string) (*watch, error) {
	if t == nil || t.URL == "" {
		return nil, errors.New("watch: no type")
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("watch %s: no names", t)
	}
	w := &watch{typ: t, names: make(map[string]string, len(names)), box: newMailbox()}
	w.alone = []*watch{w}
	for _, name := range names {
		if err := fits(t, name); err != nil {
			return nil, fmt.Errorf("watch %s %q: %w", t, name, err)
		}
		w.names[xds.CanonicalName(name)] = name
	}
	return w, nil
}

// fits says why a name can be none of the type.
func fits(t *xds.Type, name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if _, ok := authorityOf(name); !ok {
		return nil
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(name, "xdstp://"), "/")
	of, _, _ := strings.Cut(path, "/")
	if want := t.URL[strings.LastIndexByte(t.URL, '/')+1:]; of != want {
		return fmt.Errorf("the name is of type %q, not %q", of, want)
	}
	return nil
}

// named reports whether the watch asked for the name itself.
func (w *watch) named(name string) bool {
	_, ok := w.names[name]
	return ok
}

// put leaves an event, with the name as it was given.
func (w *watch) put(ev Event, fresh, keep bool) {
	if as, ok := w.names[ev.Name]; ok {
		ev.Name = as
	}
	w.box.put(ev, fresh, keep)
}

// Watch watches names of a type; [xds.Wildcard] is a name, and so is a collection as
// "xdstp://authority/type/*". It begins when the iterator is ranged over, and ends when the
// body does, with an error if ctx is done ([context.Cause]), the client is closed
// ([ErrClosed]), or a name cannot be watched: then no other name is, either.
//
// Where [Watch] has watched a type as messages, what is no such message is Refused for all watches
// of it, those of this method, too.
//
// A watch that takes its events slowly, or not at all, holds up nobody: see [Event]. Other
// watches may begin and end in its body.
func (c *Client) Watch(ctx context.Context, t *xds.Type, names ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := newWatch(t, names)
		if err == nil {
			err = c.join(ctx, w)
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer c.do(func() { c.leave(w, maps.Keys(w.names)) })
		for {
			ev, err := w.next(ctx, c.ctx)
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// next waits for the next event.
func (w *watch) next(ctx, client context.Context) (Event, error) {
	for {
		switch {
		case ctx.Err() != nil:
			return Event{}, context.Cause(ctx)
		case client.Err() != nil:
			return Event{}, ErrClosed
		}
		if ev, ok := w.box.take(); ok {
			return ev, nil
		}
		select {
		case <-w.box.bell:
		case <-ctx.Done():
		case <-client.Done():
		}
	}
}
