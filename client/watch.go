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

// A watch belongs to one loop over the iterator that Client.Watch returned, or to one type of a
// Follower.
type watch struct {
	typ   *xds.Type
	names map[string]string // canonical name → name as the caller gave it
	box   *mailbox
	self  []*watch // a list with only this watch: all entries that only this watch uses share the list, instead of a slice each
}

func newWatch(t *xds.Type, names []string) (*watch, error) {
	if t == nil || t.URL == "" {
		return nil, errors.New("watch: no type")
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("watch %s: no names", t)
	}
	w := &watch{typ: t, names: make(map[string]string, len(names)), box: newMailbox()}
	w.self = []*watch{w}
	for _, name := range names {
		if err := checkName(t, name); err != nil {
			return nil, fmt.Errorf("watch %s %q: %w", t, name, err)
		}
		w.names[xds.CanonicalName(name)] = name
	}
	return w, nil
}

// checkName returns an error if a resource of the type cannot have this name.
func checkName(t *xds.Type, name string) error {
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

// named reports whether the watch has this canonical name.
func (w *watch) named(name string) bool {
	_, ok := w.names[name]
	return ok
}

// put adds an event to the mailbox, under the name that the caller gave. For fresh and keep see
// [mailbox.put].
func (w *watch) put(ev Event, fresh, keep bool) {
	if as, ok := w.names[ev.Name]; ok {
		ev.Name = as
	}
	w.box.put(ev, fresh, keep)
}

// Watch watches names of a type. A name may be [xds.Wildcard], or a collection such as
// "xdstp://authority/type/*". The watch starts when the loop over the iterator starts, and ends with
// the loop. The loop receives an error and ends if ctx is done ([context.Cause]), if the client is
// closed ([ErrClosed]), or if a name cannot be watched. In the last case no other name is watched,
// either.
//
// After the first call of the generic function [Watch] for type t, Client.Watch also sends Refused
// if a resource cannot be decoded into the Go message of t.
//
// A slow watch does not delay other watches or the client: see [Event]. The body of the loop may start
// and end other watches.
func (c *Client) Watch(ctx context.Context, t *xds.Type, names ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := newWatch(t, names)
		if err == nil {
			err = c.addWatch(ctx, w)
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer c.do(func() { c.removeWatch(w, maps.Keys(w.names)) })
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
