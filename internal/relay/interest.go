package relay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A kind is what is known of a type of which something was asked for.
type kind struct {
	typ   *xds.Type
	names map[string]*name
	known bool // it is known what there is of it: "*" may be answered; as in Source.known

	// Of Run.
	complete bool           // the upstream, or the disk, has said what there is
	live     int            // names that have a resource upstream
	finders  int            // "*" and collections that the upstream is asked for
	owners   map[string]int // names that show a resource, by its own name
	empty    time.Time      // since when there is nothing, and that is not passed on yet; zero: there is something
	lost     bool           // the upstream cannot be reached

	unusable map[string]bool // names of which the upstream has what cannot be used, and nothing is in use

	refused map[*name]*xds.Resource // what cannot be in the store beside the others: each commit tries it again
}

// A name is one that was asked for, or that the upstream has told of.
type name struct {
	*kind
	name   string
	finder bool // "*" or a collection

	users  int       // streams that want it
	since  time.Time // when the last of these left
	listed bool      // in dirty
	absent bool      // it is decided that it does not exist

	// Of Run.
	asked bool          // the upstream is asked for it
	told  bool          // the upstream has said something of it
	res   *xds.Resource // as the upstream has it; nil: it has none
	shown *xds.Resource // in the store; nil: none is
	gone  time.Time     // since when the upstream has it no more, and it is shown still; zero: not so
}

// left is a name that the last stream has left.
type left struct {
	*name
	at time.Time
}

func finds(n string) bool {
	return n == xds.Wildcard || strings.HasPrefix(n, "xdstp:") && strings.HasSuffix(strings.TrimRight(cut(n), "/"), "/*")
}

// cut is an xdstp name without its context parameters.
func cut(n string) string {
	n, _, _ = strings.Cut(n, "?")
	return n
}

// kind returns a type by its URL.
func (s *Source) kind(url string) *kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.types[url]
}

// name returns a name, new if there is none. The source is locked.
func (s *Source) name(t *xds.Type, n string) *name {
	k := s.types[t.URL]
	if k == nil {
		k = &kind{typ: t, names: map[string]*name{}, owners: map[string]int{}}
		s.types[t.URL] = k
	}
	e := k.names[n]
	if e == nil {
		n = strings.Clone(n) // requests share their memory
		e = &name{kind: k, name: n, finder: finds(n)}
		k.names[n] = e
	}
	return e
}

// use notes that one more stream wants a name, or one less. The source is locked.
func (s *Source) use(e *name, by int) {
	if e.users += by; e.users == 0 {
		e.since = time.Now()
		s.idle = append(s.idle, left{e, e.since})
	}
	if !e.listed {
		e.listed = true
		s.dirty = append(s.dirty, e)
	}
	s.ring()
}

// ask asks the upstream for what is wanted, and gives up what nobody has wanted for long enough.
func (s *Source) ask(now time.Time) {
	add, drop, c := map[string][]string{}, map[string][]string{}, change{now: now}
	s.mu.Lock()
	for _, e := range s.dirty {
		if e.listed = false; e.users > 0 && !e.asked {
			e.asked = true
			if e.finder {
				e.finders++
				s.widen(e.kind, &c)
			}
			add[e.typ.URL] = append(add[e.typ.URL], e.name)
		}
	}
	s.dirty = nil
	n := 0
	for ; n < len(s.idle); n++ {
		e := s.idle[n]
		if now.Before(e.at.Add(s.opts.Linger)) && len(s.idle)-n <= maxLingering {
			break
		}
		switch {
		case e.users > 0 || e.since != e.at: // it is wanted again, or was
		case e.asked:
			if e.asked = false; e.finder {
				e.finders--
			}
			drop[e.typ.URL] = append(drop[e.typ.URL], e.name.name)
		default: // it was wanted for no time at all
			c.add(e.kind)
			c.names = append(c.names, e.name)
		}
	}
	s.idle = slices.Delete(s.idle, 0, n)
	s.mu.Unlock()

	for url, names := range drop {
		k := s.kind(url)
		s.follow.Remove(k.typ, names...)
		s.forget(k, names, &c)
	}
	s.commit(&c)
	c = change{now: now}
	for url, names := range add {
		k := s.kind(url)
		if err := s.follow.Add(k.typ, names...); err == nil {
			continue
		}
		for _, n := range names { // one cannot be asked for, and would keep the others from it
			if err := s.follow.Add(k.typ, n); err != nil {
				s.opts.Log.Warn("a name cannot be asked of the upstream", "type", k.typ.String(), "name", n, "error", err)
				s.decide(k, n, &c)
			}
		}
	}
	s.commit(&c)
}

// A Watch is one stream's. It is a [store.Watch] whose interest the upstream is asked for.
type Watch struct {
	*store.Watch
	source *Source
	wants  map[*name]bool
	known  *map[string]bool // as of the last view
	closed bool
}

// Watch implements [server.Source].
func (s *Source) Watch(ctx context.Context, node *xds.Node) (*Watch, error) {
	w, err := s.store.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	own := &Watch{Watch: w, source: s, wants: map[*name]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[own] = true
	return own, nil
}

// Interested is [store.Watch.Interested], and asks the upstream.
func (w *Watch) Interested(t *xds.Type, wildcard bool, added, removed []string) {
	w.Watch.Interested(t, wildcard, added, removed)
	if t == nil || w.closed {
		return
	}
	s := w.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range removed {
		w.release(t, n)
	}
	for _, n := range added {
		w.want(t, n)
	}
	if wildcard {
		w.want(t, xds.Wildcard)
	} else {
		w.release(t, xds.Wildcard)
	}
}

func (w *Watch) want(t *xds.Type, n string) {
	if n == "" {
		return // of no resource
	}
	if e := w.source.name(t, xds.CanonicalName(n)); !w.wants[e] {
		w.wants[e] = true
		w.source.use(e, 1)
	}
}

func (w *Watch) release(t *xds.Type, n string) {
	k := w.source.types[t.URL]
	if k == nil {
		return
	}
	if e := k.names[xds.CanonicalName(n)]; e != nil && w.wants[e] {
		delete(w.wants, e)
		w.source.use(e, -1)
	}
}

// Close ends the watch. Closing it again does nothing.
func (w *Watch) Close() {
	w.Watch.Close()
	s := w.source
	s.mu.Lock()
	defer s.mu.Unlock()
	w.closed = true
	for e := range w.wants {
		s.use(e, -1)
	}
	w.wants = nil
	delete(s.watches, w)
}

// Next is [store.Watch.Next]. The view is [xds.Undecided] of what the upstream has not answered.
func (w *Watch) Next() (xds.View, []xds.Names, error) {
	known := w.source.known.Load() // before the view is taken, which then has all that made it so
	v, names, err := w.Watch.Next()
	if err != nil || v == nil {
		return nil, names, err
	}
	if known != w.known {
		w.known, names = known, nil // a wildcard may be answered now
	}
	return &view{View: v, source: w.source, known: known}, names, nil
}

// A view is one of the store.
type view struct {
	xds.View
	source *Source
	known  *map[string]bool
}

// Undecided implements [xds.Undecided]. Of a name that was found since a newer view has the resource.
func (v *view) Undecided(t *xds.Type, n string) bool {
	if n == xds.Wildcard {
		return !(*v.known)[t.URL]
	}
	if all := v.Table(t); all.Lookup(n) != nil || all.Aliased(n).Len() > 0 {
		return false
	}
	s := v.source
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.types[t.URL]
	if k == nil {
		return true
	}
	e := k.names[xds.CanonicalName(n)]
	if e == nil {
		return !k.known // of what nobody asks for by name the wildcard decides
	}
	return !e.absent
}
